"""Qdrant's gRPC API, the part kbmesh uses, over Qdrant's own engine embedded in this process."""
