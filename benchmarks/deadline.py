"""How well deadlines are kept: `python -m benchmarks.deadline [--json]`.

Retrievals over a mesh in memory (`fake_mesh`) whose parts take a few milliseconds, and now and then far too long; the
process and its clock are real, its event loop and garbage collector as in a server. Reports, for each deadline, by how
much answers came after it.
"""

import argparse
import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from kbmesh_retriever.mesh.guard import GuardedCatalog, GuardedEmbedder, GuardedReranker, GuardedStore
from kbmesh_retriever.retrieve.answer import Answer
from kbmesh_retriever.retrieve.pipeline import Retrieval
from kbmesh_retriever.retrieve.request import RetrievalLimits, RetrievalRequest, Selector
from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import KbmeshError

from benchmarks.fake_mesh import TENANT, FakeMesh, make_fake_mesh
from benchmarks.server_loop import run_as_in_a_server

DEADLINES_MILLISECONDS = (20, 30, 50, 100, 200, 500)
_KNOWLEDGE_BASES = 8
_LATE_SHARE = 0.05
"""Of all calls, those that take far too long."""
_LATE_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Kept:
    """How one deadline was kept."""

    deadline_ms: int
    questions: int
    p50_ms: float
    p99_ms: float
    p99_over_deadline_ms: float
    """Below zero where all but one in a hundred came in time."""
    answered: float
    """Share with results."""
    full: float
    """Share in which no stage was cut short."""
    failed: float
    """Share that ended with a typed error."""


def measure(deadline_milliseconds: int, *, questions: int, seed: int = 4815) -> Kept:
    """Asks one question after the other."""
    chance = random.Random(seed)
    mesh = make_fake_mesh(_KNOWLEDGE_BASES)
    _disturb(mesh, chance)
    return run_as_in_a_server(_measure(mesh, deadline_milliseconds, questions))


def _disturb(mesh: FakeMesh, chance: random.Random) -> None:
    def around(milliseconds: float, *, late: bool = True) -> Callable[[], float]:
        def seconds() -> float:
            if late and chance.random() < _LATE_SHARE:
                return _LATE_SECONDS
            return milliseconds / 1000 * chance.uniform(0.5, 1.5)

        return seconds

    mesh.catalog.behaviour.seconds = around(1, late=False)
    mesh.embedder.behaviour.seconds = around(4)
    mesh.embedder.counting.seconds = around(1)
    mesh.reranker.behaviour.seconds = around(2)
    mesh.reranker.seconds_each = 0.004
    for behaviour in mesh.store.behaviours.values():
        behaviour.seconds = around(4)


async def _measure(mesh: FakeMesh, deadline_milliseconds: int, questions: int) -> Kept:
    retrieval = Retrieval(
        catalog=GuardedCatalog(mesh.catalog),
        store=GuardedStore(mesh.store, name="fake"),
        embedder=GuardedEmbedder(mesh.embedder),
        reranker=GuardedReranker(mesh.reranker),
        rephraser=None,
        limits=RetrievalLimits(),
    )
    request = RetrievalRequest(
        query="why does the payment fail?", selectors=tuple(Selector(knowledge_base=name) for name in mesh.names)
    )
    took: list[float] = []
    answered = full = failed = 0
    for _ in range(questions):
        started = time.perf_counter()
        try:
            answer: Answer = await retrieval.answer(
                request, tenant=TENANT, deadline=Deadline.after(deadline_milliseconds / 1000)
            )
        except KbmeshError:
            failed += 1
        else:
            answered += bool(answer.results)
            full += not answer.degradations
        took.append((time.perf_counter() - started) * 1000)
    took.sort()
    p99 = took[min(int(len(took) * 0.99), len(took) - 1)]
    return Kept(
        deadline_ms=deadline_milliseconds,
        questions=questions,
        p50_ms=round(took[len(took) // 2], 2),
        p99_ms=round(p99, 2),
        p99_over_deadline_ms=round(p99 - deadline_milliseconds, 2),
        answered=round(answered / questions, 3),
        full=round(full / questions, 3),
        failed=round(failed / questions, 3),
    )


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=200, help="for each deadline")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    kept = [measure(deadline, questions=arguments.questions) for deadline in DEADLINES_MILLISECONDS]
    if arguments.json:
        worst = max(one.p99_over_deadline_ms for one in kept)
        print(json.dumps({"p99_over_deadline_ms": worst, "deadlines": [asdict(one) for one in kept]}, indent=2))
        return
    print(f"{'deadline':>10}{'p50':>10}{'p99':>10}{'over':>10}{'answered':>10}{'full':>8}{'failed':>8}")
    for one in kept:
        print(
            f"{one.deadline_ms:>7} ms{one.p50_ms:>10.1f}{one.p99_ms:>10.1f}{one.p99_over_deadline_ms:>10.1f}"
            f"{one.answered:>10.1%}{one.full:>8.0%}{one.failed:>8.1%}"
        )


if __name__ == "__main__":
    main()
