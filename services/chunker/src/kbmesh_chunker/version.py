"""The version of what the chunker does to a document."""

CHUNKER_VERSION = "5"
"""Version of extraction and cutting. It rises whenever some document might be read or cut in another way, so that
those who keep chunks know that theirs are old."""
