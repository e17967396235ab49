"""Calling the HTTP API of a vendor that serves models: keys, addresses, failures, patience, and what is measured.

It knows no vendor and no SDK. What a vendor's SDK raises never leaves here: it may hold texts, or the key.
"""
