"""What tells a value of ours, whole, from anything else that may lie under its key."""

import hashlib

_MARK = b"kbmesh-value-1\0"
_DIGEST_BYTES = 32


def seal(key: str, value: bytes) -> bytes:
    """The value as it is kept outside of this process."""
    return _MARK + _digest(key, value) + value


def unseal(key: str, sealed: bytes) -> bytes | None:
    """The value that was sealed for this key. None for another version's, another key's, or a broken one.

    This finds accidents, not forgers: who can write to the store can write answers."""
    start = len(_MARK) + _DIGEST_BYTES
    if len(sealed) < start or not sealed.startswith(_MARK):
        return None
    value = sealed[start:]
    return value if sealed[len(_MARK) : start] == _digest(key, value) else None


def _digest(key: str, value: bytes) -> bytes:
    digest = hashlib.sha256(key.encode())
    digest.update(b"\0")
    digest.update(value)
    return digest.digest()
