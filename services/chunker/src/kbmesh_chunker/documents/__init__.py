"""Bytes to text: what kind of document it is, how it is decoded, and how it is built."""
