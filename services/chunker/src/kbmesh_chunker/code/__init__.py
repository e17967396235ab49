"""Source code: which language it is in, what it defines, and where it may be cut."""
