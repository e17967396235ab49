"""What embedder and reranker share of `tei.v1`, the contract of text-embeddings-inference."""
