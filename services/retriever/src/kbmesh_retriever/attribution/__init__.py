"""Saying where a fragment comes from: source, display fields, preview and the context block."""
