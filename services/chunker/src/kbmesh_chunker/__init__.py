"""kbmesh chunker: documents in, chunks with exact spans out."""
