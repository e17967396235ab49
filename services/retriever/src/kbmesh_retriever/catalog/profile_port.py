"""What is kept of a retrieval profile, and the port through which it is kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How an agent asks, under one name."""

    tenant: str
    name: str
    """Unique within the tenant."""
    description: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What a request that names the profile says where it says nothing itself, as JSON."""
    created_at: datetime
    updated_at: datetime


class ProfileCatalog(Protocol):
    """Keeps profiles. Raises DependencyUnavailable."""

    async def create(self, tenant: str, name: str, *, description: str, defaults: Mapping[str, Any]) -> Profile:
        """Raises ProfileAlreadyExists."""
        ...

    async def get(self, tenant: str, name: str) -> Profile:
        """Raises ProfileNotFound."""
        ...

    async def list(self, tenant: str, *, limit: int, after: str) -> Sequence[Profile]:
        """By name, those beyond `after`."""
        ...

    async def update(
        self, tenant: str, name: str, *, description: str | None = None, defaults: Mapping[str, Any] | None = None
    ) -> Profile:
        """Changes what is not None. Raises ProfileNotFound."""
        ...

    async def delete(self, tenant: str, name: str) -> None:
        """Raises ProfileNotFound."""
        ...
