"""A service is killed with SIGKILL while documents go in. After a new start the same ingestion leaves every document
there once, current and searchable, and nothing else in the vector store."""

import asyncio
import json
import logging
import os
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from kbmesh_retriever.catalog.database import Database
from kbmesh_retriever.catalog.tables import CURRENT, LIVE, generations, knowledge_bases
from mesh_process import Mesh
from runbooks import SEED, check_every_runbook_is_there_once, write_runbooks
from sqlalchemy import select

logger = logging.getLogger(__name__)

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
    ingestion = mesh.start_ingest("runbooks", folder, concurrency=CONCURRENCY, reconnect_seconds=0)
    mesh.wait_for(lambda: mesh.json("kb", "show", "runbooks")["document_count"] >= 3, "the first documents")
    services = mesh.pids.values()
    mesh.kill_all()
    ingestion.communicate(timeout=120)
    mesh.wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in services), "the end of all services")

    mesh.up()
    assert mesh.json("ingest", "runbooks", folder)["failed"] == 0
    check_every_runbook_is_there_once(mesh, folder, count=DOCUMENTS)


class Reading:
    """An ingestion whose results are read as they come: who does not read holds it up."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.went_in = 0
        """Documents that were new or changed."""
        self.reasons: Counter[str] = Counter()
        """Why documents, or all that were left of them, did not go in."""
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def takes_in(self, more: int) -> bool:
        """Waits until so many more are in. False where it ends before."""
        wanted = self.went_in + more
        while self.runs and self.went_in < wanted:
            time.sleep(0.02)
        return self.runs

    def end(self) -> None:
        self._thread.join(timeout=1800)
        assert not self.runs
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            self.went_in += told.get("outcome") in ("NEW", "CHANGED")
            if error := told.get("error"):
                self.reasons[error["reason"]] += 1


@pytest.mark.soak
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_many_kills_during_one_long_ingestion(
    database: str, make_mesh: Callable[[], Mesh], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Again and again one to three services are killed while documents go in, and the command is called again; once
    all are in, another version of them goes in. Kills are spread evenly over the documents."""
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
    reasons: Counter[str] = Counter()
    calls = went_in = version = 0
    write_runbooks(folder, count=documents, version=version)
    while killed.total() < kills:
        ingestion = Reading(
            mesh.start_ingest("runbooks", folder, concurrency=max(CONCURRENCY, min(64, documents // 30)))
        )
        while killed.total() < kills and ingestion.takes_in(monkey.randint(1, max(1, 3 * documents // kills))):
            for _ in range(min(monkey.choice([1, 1, 1, 2, 2, 3]), kills - killed.total())):
                kill_one(mesh, monkey, killed)
                time.sleep(monkey.uniform(0, 3))
        ingestion.end()
        mesh.wait_until_serving()
        calls += 1
        went_in += ingestion.went_in
        reasons += ingestion.reasons
        if not ingestion.reasons:
            version += 1
            write_runbooks(folder, count=documents, version=version)
    logger.info("killed %s in %d calls; %d went in; %s", dict(killed), calls, went_in, dict(reasons))
    assert set(reasons) <= {"DEPENDENCY_UNAVAILABLE", "MODEL_NOT_READY", "SHUTTING_DOWN", "DEADLINE_EXCEEDED"}
    assert went_in > documents / 4, "the kills were in the middle of work"

    write_runbooks(folder, count=documents, version=version + 1)
    last = mesh.json("ingest", "runbooks", folder)
    assert last["failed"] == 0
    check_every_runbook_is_there_once(mesh, folder, count=documents)
    mesh.wait_for(lambda: asyncio.run(left_over(catalog_url)) == [], "a catalog that holds what is current alone")


def kill_one(mesh: Mesh, monkey: random.Random, killed: Counter[str]) -> None:
    """One that lives and has not been killed much more often than others; which one is for chance to say."""
    living = [service for service, pid in sorted(mesh.pids.items()) if Path(f"/proc/{pid}").exists()]
    if not living:
        return
    least = min(killed[service] for service in living)
    victim = monkey.choice([service for service in living if killed[service] <= least + 2])
    with suppress(ProcessLookupError):
        mesh.kill(victim)
        killed[victim] += 1


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
