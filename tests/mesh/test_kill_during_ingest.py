"""A service is killed with SIGKILL while documents go in. After a new start the same ingestion leaves every document
there once, current and searchable, and nothing else in the vector store."""

import asyncio
import logging
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from kbmesh_retriever.catalog.database import Database
from kbmesh_retriever.catalog.tables import CURRENT, LIVE, generations, knowledge_bases
from mesh_process import Mesh
from runbooks import SEED, check_every_runbook_is_there_once, write_runbooks
from sqlalchemy import select

DOCUMENTS = 48
CONCURRENCY = 2
"""Documents that are worked on together are published together: with few, there is a middle to be killed in."""
SERVICES = ["retriever", "edge", "embedder", "chunker", "reranker"]
IMPATIENT = {"KBMESH_SUPERSEDED_GRACE_SECONDS": "1", "KBMESH_SWEEP_INTERVAL_SECONDS": "1"}
"""The sweeper need not wait for readers that there are not."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("victim", SERVICES)
def test_kill_a_service_and_ingest_again(victim: str, make_mesh: Callable[[], Mesh], tmp_path: Path) -> None:
    monkey = random.Random(f"{SEED} {victim}")
    folder = tmp_path / "runbooks"
    write_runbooks(folder, count=DOCUMENTS)
    mesh = make_mesh()
    mesh.environment |= IMPATIENT
    mesh.up()
    mesh.json("kb", "create", "runbooks")
    ingestion = mesh.start_ingest("runbooks", folder, concurrency=CONCURRENCY)
    mesh.wait_for(lambda: mesh.json("kb", "show", "runbooks")["document_count"] >= 3, "the first documents")
    time.sleep(monkey.random() / 2)
    assert ingestion.poll() is None, "the ingestion was over before the kill"
    killed = mesh.kill(victim)
    ingestion.communicate(timeout=120)
    mesh.wait_for(lambda: mesh.pids[victim] != killed, "a new process")
    mesh.down()

    mesh.up()
    again = mesh.json("ingest", "runbooks", folder)
    assert again["failed"] == 0
    assert again["new"] + again["changed"] + again["unchanged"] == DOCUMENTS
    check_every_runbook_is_there_once(mesh, folder, count=DOCUMENTS)

    once_more = mesh.json("ingest", "runbooks", folder)
    assert (once_more["unchanged"], once_more["embedded"]) == (DOCUMENTS, 0)


@pytest.mark.timeout(300)
def test_kill_the_whole_mesh_and_ingest_again(make_mesh: Callable[[], Mesh], tmp_path: Path) -> None:
    """The process of `kbmesh up` is killed: its services end with it, and the next start finds a readable state."""
    folder = tmp_path / "runbooks"
    write_runbooks(folder, count=DOCUMENTS)
    mesh = make_mesh()
    mesh.environment |= IMPATIENT
    mesh.up()
    mesh.json("kb", "create", "runbooks")
    ingestion = mesh.start_ingest("runbooks", folder, concurrency=CONCURRENCY)
    mesh.wait_for(lambda: mesh.json("kb", "show", "runbooks")["document_count"] >= 3, "the first documents")
    services = mesh.pids.values()
    mesh.kill_all()
    ingestion.communicate(timeout=120)
    mesh.wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in services), "the end of all services")

    mesh.up()
    assert mesh.json("ingest", "runbooks", folder)["failed"] == 0
    check_every_runbook_is_there_once(mesh, folder, count=DOCUMENTS)


@pytest.mark.soak
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_many_kills_during_one_long_ingestion(
    database: str, make_mesh: Callable[[], Mesh], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Services are killed at random while the same folder is ingested again and again, in two versions."""
    monkey = random.Random(f"{SEED} {database}")
    documents, kills = (
        int(os.environ.get(f"KBMESH_SOAK_{name}", n)) for name, n in (("DOCUMENTS", 2000), ("KILLS", 100))
    )
    folder = tmp_path / "runbooks"
    mesh = make_mesh()
    mesh.environment |= IMPATIENT
    catalog_url = f"sqlite:///{mesh.home / 'data/catalog.db'}"
    if database == "postgresql":
        catalog_url = request.getfixturevalue("postgres").new_database()
        mesh.environment["KBMESH_CATALOG_URL"] = catalog_url
    mesh.up()
    mesh.json("kb", "create", "runbooks")
    killed: Counter[str] = Counter()
    rounds = 0
    while killed.total() < kills:
        write_runbooks(folder, count=documents, version=rounds % 2)
        ingestion = mesh.start_ingest("runbooks", folder)
        while ingestion.poll() is None and killed.total() < kills:
            time.sleep(monkey.uniform(0.5, 5))
            victim = monkey.choice(SERVICES)
            pid = mesh.pids[victim]
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGKILL)
                killed[victim] += 1
        ingestion.communicate(timeout=1800)
        mesh.wait_until_serving()
        rounds += 1
    write_runbooks(folder, count=documents, version=2)
    last = mesh.json("ingest", "runbooks", folder)
    assert last["failed"] == 0
    check_every_runbook_is_there_once(mesh, folder, count=documents)
    mesh.wait_for(lambda: asyncio.run(left_over(catalog_url)) == [], "a catalog that holds what is current alone")
    logging.getLogger(__name__).info("killed %s in %d rounds", dict(killed), rounds)


async def left_over(catalog_url: str) -> list[str]:
    """States of versions and knowledge bases that only the sweeper has to do with."""
    catalog = Database(catalog_url)
    try:
        async with catalog.reading() as connection:
            versions = await connection.scalars(select(generations.c.state).where(generations.c.state != CURRENT))
            knowledge = await connection.scalars(select(knowledge_bases.c.state).where(knowledge_bases.c.state != LIVE))
            return [*versions, *knowledge]
    finally:
        await catalog.close()
