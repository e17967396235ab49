"""Text to chunks: one module for each way to cut."""
