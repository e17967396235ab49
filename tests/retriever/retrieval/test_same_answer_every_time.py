"""The same question to the same data gets the same bytes, whatever answers first, in every process."""

import asyncio
import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from kbmesh_retriever.answer_bytes import encode_answer
from kbmesh_retriever.catalog.sql import SqlCatalog
from kbmesh_retriever.mesh.guard import GuardedCatalog, GuardedEmbedder, GuardedReranker, GuardedStore
from kbmesh_retriever.retrieve.pipeline import Retrieval
from kbmesh_retriever.retrieve.request import RetrievalLimits, RetrievalRequest, Selector
from kbmesh_retriever.retrieve.stage import Strategy
from kbmesh_retriever.stores.qdrant import QdrantStore
from kbmesh_rpc.deadline import Deadline
from retrieval_world import World

from benchmarks.fake_mesh import TENANT, make_fake_mesh

REPOSITORY = Path(__file__).parents[3]
QUESTIONS = ("why does the payment fail?", "JIRA-4815", "how do I restart it and roll it back?")


async def digests(runs: int) -> set[str]:
    """Of answers over eight knowledge bases with many equal scores, which answer in any order."""
    mesh = make_fake_mesh(8)
    chance = random.Random()
    for behaviour in (*mesh.store.behaviours.values(), mesh.embedder.behaviour, mesh.reranker.behaviour):
        behaviour.seconds = lambda: chance.random() * 0.003
    retrieval = Retrieval(
        catalog=GuardedCatalog(mesh.catalog),
        store=GuardedStore(mesh.store, name="store"),
        embedder=GuardedEmbedder(mesh.embedder),
        reranker=GuardedReranker(mesh.reranker),
        rephraser=None,
        limits=RetrievalLimits(),
    )
    selectors = tuple(Selector(knowledge_base=name) for name in mesh.names)
    found: set[str] = set()
    for _ in range(runs):
        whole = hashlib.sha256()
        for query in QUESTIONS:
            for strategy in (Strategy.VECTOR_ONLY, Strategy.HYBRID_RERANK):
                request = RetrievalRequest(query=query, selectors=selectors, strategy=strategy, top_k=50)
                answer = await retrieval.answer(request, tenant=TENANT, deadline=Deadline.after(60))
                assert answer.degradations == ()
                whole.update(encode_answer(answer))
        found.add(whole.hexdigest())
    return found


def digests_of_processes(runs: int, seeds: range) -> set[str]:
    """Each with its own order of sets."""
    found: set[str] = set()
    for seed in seeds:
        done = subprocess.run(
            [sys.executable, __file__, str(runs)],
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'tests'}"},
            capture_output=True,
            text=True,
            check=True,
        )
        found.update(done.stdout.split())
    return found


def test_in_every_process_the_same() -> None:
    assert len(digests_of_processes(3, range(3))) == 1


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_thousand_times_the_same() -> None:
    assert len(digests_of_processes(250, range(4))) == 1


async def answers(world: World) -> set[bytes]:
    found: set[bytes] = set()
    for _ in range(10):
        whole = b""
        for query in QUESTIONS:
            answer = await world.ask(query, strategy=Strategy.HYBRID)
            assert answer.degradations == ()
            whole += encode_answer(answer)
        found.add(whole)
    return found


async def test_over_the_engine_and_after_a_restart(world: World, catalog_url: str, edge_url: str) -> None:
    texts = [f"Restart the payment service, then roll release {number} back." for number in range(8)]
    for name in ("a", "b", "c"):
        # The same words in all: scores are equal within and across knowledge bases.
        await world.make(name, *texts, "JIRA-4815: payments fail", "JIRA-4816: payments fail")
    before = await answers(world)
    assert len(before) == 1

    again = World(
        catalog=SqlCatalog(catalog_url),
        store=QdrantStore.connect(edge_url),
        embedder=world.embedder,
        bases=world.bases,
    )
    await again.catalog.open()
    assert await answers(again) == before
    await again.store.close()
    await again.catalog.close()


if __name__ == "__main__":
    sys.stdout.write(" ".join(asyncio.run(digests(int(sys.argv[1])))))
