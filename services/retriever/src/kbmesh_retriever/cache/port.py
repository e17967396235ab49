"""Where values are kept for a while."""

from typing import Protocol


class Cache(Protocol):
    """Keeps bytes under names for a while. Whatever goes wrong in it is a miss: nothing is ever raised, and nothing is
    promised to be there again."""

    async def get(self, key: str) -> bytes | None:
        """The value as it was put under exactly this key, or None."""
        ...

    async def put(self, key: str, value: bytes, *, ttl_seconds: float) -> None:
        """Keeps it for at most so long, in place of an older one. Not above 0: it is not kept."""
        ...

    async def open(self) -> None:
        """Makes it ready. It may be used before, and without."""
        ...

    async def close(self) -> None: ...
