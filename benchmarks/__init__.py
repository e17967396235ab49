"""Measurements, run from the repository root. Not part of any package."""
