"""Finding the fragments that answer a query: plan, search, fuse, deduplicate, rerank."""
