"""Finding fragments by their words: one analyser for documents and queries, and BM25 as sparse vectors."""
