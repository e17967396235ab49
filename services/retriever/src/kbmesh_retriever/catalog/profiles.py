"""Retrieval profiles in the catalog."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from kbmesh_rpc.errors import ProfileAlreadyExists, ProfileNotFound
from sqlalchemy import and_, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from kbmesh_retriever.catalog.database import Database
from kbmesh_retriever.catalog.profile_port import Profile
from kbmesh_retriever.catalog.tables import profiles


class SqlProfiles:
    """A `ProfileCatalog` on behalf of `SqlCatalog`."""

    def __init__(self, database: Database, *, now: Callable[[], datetime]) -> None:
        self._database = database
        self._now = now

    async def create(self, tenant: str, name: str, *, description: str, defaults: Mapping[str, Any]) -> Profile:
        now = self._now()
        made = Profile(
            tenant=tenant, name=name, description=description, defaults=defaults, created_at=now, updated_at=now
        )
        try:
            async with self._database.writing() as connection:
                await connection.execute(
                    insert(profiles).values(
                        tenant=tenant,
                        name=name,
                        description=description,
                        defaults=dict(defaults),
                        created_at=now,
                        updated_at=now,
                    )
                )
        except IntegrityError as error:
            raise ProfileAlreadyExists(name) from error
        return made

    async def get(self, tenant: str, name: str) -> Profile:
        async with self._database.reading() as connection:
            found = await connection.execute(
                select(profiles).where(profiles.c.tenant == tenant, profiles.c.name == name)
            )
            row = found.mappings().first()
        if row is None:
            raise ProfileNotFound(name)
        return Profile(**row)

    async def list(self, tenant: str, *, limit: int, after: str) -> Sequence[Profile]:
        async with self._database.reading() as connection:
            rows = await connection.execute(
                select(profiles)
                .where(profiles.c.tenant == tenant, profiles.c.name > after)
                .order_by(profiles.c.name)
                .limit(limit)
            )
            return [Profile(**row) for row in rows.mappings()]

    async def update(
        self, tenant: str, name: str, *, description: str | None = None, defaults: Mapping[str, Any] | None = None
    ) -> Profile:
        changes: dict[str, Any] = {"updated_at": self._now()}
        if description is not None:
            changes["description"] = description
        if defaults is not None:
            changes["defaults"] = dict(defaults)
        named = and_(profiles.c.tenant == tenant, profiles.c.name == name)
        async with self._database.writing() as connection:
            found = await connection.execute(update(profiles).where(named).values(**changes).returning(profiles))
            row = found.mappings().first()
        if row is None:
            raise ProfileNotFound(name)
        return Profile(**row)

    async def delete(self, tenant: str, name: str) -> None:
        async with self._database.writing() as connection:
            deleted = await connection.execute(
                delete(profiles).where(profiles.c.tenant == tenant, profiles.c.name == name)
            )
        if deleted.rowcount == 0:
            raise ProfileNotFound(name)
