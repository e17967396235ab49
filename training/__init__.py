"""From an embedding model to a small cross-encoder, on two cores. README.md says how, and from which texts."""
