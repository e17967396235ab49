"""Any part of the mesh is down, hangs or is slow, under deadlines of 1 to 500 ms: every answer is typed, comes in time
and is never empty without a reason, and healthy knowledge bases are in it whenever there was time.

In virtual time, over the parts as retrieval has them: breakers and second attempts before each.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from kbmesh_retriever.mesh.guard import (
    GuardedCatalog,
    GuardedEmbedder,
    GuardedRephraser,
    GuardedReranker,
    GuardedStore,
)
from kbmesh_retriever.retrieve.answer import Answer
from kbmesh_retriever.retrieve.estimates import Estimates
from kbmesh_retriever.retrieve.metrics import DEGRADED
from kbmesh_retriever.retrieve.pipeline import Retrieval
from kbmesh_retriever.retrieve.request import RetrievalLimits, RetrievalRequest, Selector
from kbmesh_retriever.retrieve.stage import RerankMethod, Stage, Status, Strategy
from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import DeadlineExceeded, DependencyUnavailable, KbmeshError, Reason
from virtual_time import VirtualLoop, run_virtually

from benchmarks.fake_mesh import TENANT, Behaviour, FakeMesh, always, make_fake_mesh

T = TypeVar("T")

MILLISECOND = 0.001
DEADLINES = (1, 2, 5, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 500)
ENOUGH = 15
"""Milliseconds within which resolving, embedding, searching, checking and attributing are done here."""
SICK = "kb-3"
HANGS = always(3600.0)
NO_HITS = {Status.TIMEOUT, Status.UNAVAILABLE, Status.EMPTY, Status.BELOW_THRESHOLD}


class Scene:
    """A mesh whose parts take a few milliseconds each."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.mesh: FakeMesh = make_fake_mesh(8, passages=12)
        for behaviour in self.mesh.store.behaviours.values():
            behaviour.seconds = always(3 * MILLISECOND)
        self.mesh.embedder.behaviour.seconds = always(2 * MILLISECOND)
        self.mesh.embedder.counting.seconds = always(MILLISECOND)
        self.mesh.catalog.behaviour.seconds = always(MILLISECOND)
        self.mesh.rephraser.behaviour.seconds = always(3 * MILLISECOND)
        self.mesh.reranker.seconds_each = 0.5 * MILLISECOND
        clock = loop.time
        self.retrieval = Retrieval(
            catalog=GuardedCatalog(self.mesh.catalog, clock=clock),
            store=GuardedStore(self.mesh.store, name="store", clock=clock),
            embedder=GuardedEmbedder(self.mesh.embedder, clock=clock),
            reranker=GuardedReranker(self.mesh.reranker, clock=clock),
            rephraser=GuardedRephraser(self.mesh.rephraser, clock=clock),
            limits=RetrievalLimits(),
            estimates=Estimates(clock=clock),
            clock=clock,
        )

    async def ask(
        self, milliseconds: float, strategy: Strategy = Strategy.HYBRID_RERANK, *, top_k: int = 100
    ) -> Answer | KbmeshError:
        """What the caller gets, in time."""
        selectors = tuple(Selector(knowledge_base=name) for name in self.mesh.names)
        request = RetrievalRequest(
            query="why did the deployment fail?", selectors=selectors, strategy=strategy, top_k=top_k
        )
        deadline = Deadline.after(milliseconds * MILLISECOND, clock=self.loop.time)
        got: Answer | KbmeshError
        try:
            got = await self.retrieval.answer(request, tenant=TENANT, deadline=deadline)
        except KbmeshError as error:
            got = error
        assert self.loop.time() <= deadline.at + 1e-9, "late"
        return got


def story_of(story: Callable[[Scene], Awaitable[T]]) -> T:
    async def told(loop: VirtualLoop) -> T:
        return await story(Scene(loop))

    return run_virtually(told)


def check_reasons(answer: Answer | KbmeshError) -> None:
    """An error has its reason by its type. An answer has one for each knowledge base that gave nothing, and for each
    stage that was skipped."""
    if isinstance(answer, KbmeshError):
        assert answer.reason in {Reason.DEADLINE_EXCEEDED, Reason.DEPENDENCY_UNAVAILABLE}
        return
    for report in answer.reports:
        assert (report.status in NO_HITS) == (report.hits == 0)
        assert (report.error is not None) == (report.status in {Status.TIMEOUT, Status.UNAVAILABLE})
    if any(report.error is not None for report in answer.reports):
        assert Stage.SEARCH in {one.stage for one in answer.degradations}
    if answer.strategy.reranks and answer.rerank_method is RerankMethod.NONE and answer.results:
        assert Stage.RERANK in {one.stage for one in answer.degradations}
    if not answer.results:
        assert all(report.status in NO_HITS for report in answer.reports)


def check_healthy(answer: Answer | KbmeshError, milliseconds: float, *, sick: frozenset[str] = frozenset()) -> None:
    """Healthy knowledge bases are there if there was time."""
    check_reasons(answer)
    if milliseconds < ENOUGH:
        return
    assert isinstance(answer, Answer), f"{answer!r} within {milliseconds} ms"
    for report in answer.reports:
        if report.knowledge_base not in sick:
            assert report.status is Status.OK, f"{report.knowledge_base} within {milliseconds} ms"
    assert {one.place.knowledge_base.name for one in answer.results} >= {
        report.knowledge_base for report in answer.reports if report.knowledge_base not in sick
    }


@pytest.mark.parametrize("strategy", list(Strategy))
def test_while_all_is_well(strategy: Strategy) -> None:
    async def story(scene: Scene) -> None:
        for milliseconds in DEADLINES:
            check_healthy(await scene.ask(milliseconds, strategy), milliseconds)
        full = await scene.ask(1000, strategy)
        assert isinstance(full, Answer)
        assert full.degradations == ()

    story_of(story)


FAULTS = {
    "down": Behaviour(error=DependencyUnavailable("store", "down")),
    "down after a while": Behaviour(seconds=always(20 * MILLISECOND), error=DependencyUnavailable("store", "down")),
    "hanging": Behaviour(seconds=HANGS),
    "slow": Behaviour(seconds=always(40 * MILLISECOND)),
}


@pytest.mark.parametrize("fault", list(FAULTS))
@pytest.mark.parametrize("strategy", [Strategy.VECTOR_ONLY, Strategy.HYBRID_RERANK])
def test_one_of_eight_knowledge_bases(fault: str, strategy: Strategy) -> None:
    async def story(scene: Scene) -> None:
        scene.mesh.store.behaviours[SICK].error = FAULTS[fault].error
        scene.mesh.store.behaviours[SICK].seconds = FAULTS[fault].seconds
        for milliseconds in DEADLINES:
            answer = await scene.ask(milliseconds, strategy)
            check_healthy(answer, milliseconds, sick=frozenset({SICK}))
        unhurried = await scene.ask(2000, strategy)
        assert isinstance(unhurried, Answer)
        status = unhurried.reports[scene.mesh.names.index(SICK)].status
        assert status is {"slow": Status.OK, "hanging": Status.TIMEOUT}.get(fault, Status.UNAVAILABLE)

    story_of(story)


@pytest.mark.parametrize("behaviour", [FAULTS["down"], FAULTS["hanging"]], ids=["down", "hanging"])
def test_all_knowledge_bases_fail_and_each_says_why(behaviour: Behaviour) -> None:
    async def story(scene: Scene) -> None:
        for one in scene.mesh.store.behaviours.values():
            one.error, one.seconds = behaviour.error, behaviour.seconds
        for milliseconds in DEADLINES:
            answer = await scene.ask(milliseconds)
            check_reasons(answer)
            if milliseconds >= ENOUGH:
                assert isinstance(answer, Answer)
                assert answer.results == ()

    story_of(story)


@pytest.mark.parametrize("fault", ["down", "hanging", "slow"])
def test_the_embedder(fault: str) -> None:
    """Searched by keyword, which says so; vectors alone cannot do without."""

    async def story(scene: Scene) -> None:
        scene.mesh.embedder.behaviour.error = FAULTS[fault].error
        scene.mesh.embedder.behaviour.seconds = FAULTS[fault].seconds
        scene.mesh.embedder.counting = scene.mesh.embedder.behaviour
        for milliseconds in DEADLINES:
            answer = await scene.ask(milliseconds)
            check_reasons(answer)
            if milliseconds >= 2 * ENOUGH:
                check_healthy(answer, milliseconds)
                assert isinstance(answer, Answer)
                if fault != "slow":
                    assert Stage.EMBED in {one.stage for one in answer.degradations}
        alone = await scene.ask(300, Strategy.VECTOR_ONLY)
        assert isinstance(alone, Answer if fault == "slow" else KbmeshError)

    story_of(story)


@pytest.mark.parametrize("fault", ["down", "hanging", "slow"])
def test_the_reranker(fault: str) -> None:
    async def story(scene: Scene) -> None:
        scene.mesh.reranker.behaviour.error = FAULTS[fault].error
        scene.mesh.reranker.behaviour.seconds = FAULTS[fault].seconds
        for milliseconds in DEADLINES:
            answer = await scene.ask(milliseconds)
            check_healthy(answer, milliseconds)
            if fault != "slow" and isinstance(answer, Answer):
                assert answer.rerank_method is RerankMethod.NONE

    story_of(story)


@pytest.mark.parametrize("fault", ["down", "hanging", "slow"])
def test_the_catalog(fault: str) -> None:
    """Nothing goes without it: the call fails, by its reason."""

    async def story(scene: Scene) -> None:
        scene.mesh.catalog.behaviour.error = FAULTS[fault].error
        scene.mesh.catalog.behaviour.seconds = FAULTS[fault].seconds
        for milliseconds in DEADLINES:
            answer = await scene.ask(milliseconds)
            check_reasons(answer)
            if fault == "slow" and milliseconds >= 150:
                check_healthy(answer, milliseconds)
            else:
                assert isinstance(answer, KbmeshError) or fault == "slow"

    story_of(story)


@pytest.mark.parametrize("fault", ["down", "hanging", "slow"])
def test_the_language_model(fault: str) -> None:
    async def story(scene: Scene) -> None:
        scene.mesh.rephraser.behaviour.error = FAULTS[fault].error
        scene.mesh.rephraser.behaviour.seconds = FAULTS[fault].seconds
        for milliseconds in DEADLINES:
            answer = await scene.ask(milliseconds, Strategy.ADVANCED)
            check_reasons(answer)
            if milliseconds >= 2 * ENOUGH:
                check_healthy(answer, milliseconds)
                assert isinstance(answer, Answer)
                assert len(answer.queries) == 1 or fault == "slow"

    story_of(story)


def test_a_part_that_hangs_is_not_waited_for_again_and_again() -> None:
    """After five calls the breaker answers in its place, and the others get the whole time."""

    async def story(scene: Scene) -> None:
        scene.mesh.embedder.behaviour.seconds = HANGS
        for _ in range(8):
            await scene.ask(2000)
        calls, started = scene.mesh.embedder.behaviour.calls, scene.loop.time()
        answer = await scene.ask(2000)
        assert isinstance(answer, Answer)
        assert scene.mesh.embedder.behaviour.calls == calls
        assert scene.loop.time() - started < 0.1
        assert (Stage.EMBED, Reason.DEPENDENCY_UNAVAILABLE) in {(one.stage, one.reason) for one in answer.degradations}

        scene.mesh.embedder.behaviour.seconds = always(2 * MILLISECOND)
        await asyncio.sleep(31)
        answer = await scene.ask(2000)
        assert isinstance(answer, Answer)
        assert answer.degradations == ()

    story_of(story)


def test_the_reranker_gets_as_many_as_there_is_time_for() -> None:
    async def story(scene: Scene) -> None:
        scene.mesh.reranker.seconds_each = 10 * MILLISECOND
        for _ in range(10):
            await scene.ask(5000)
        scene.mesh.reranker.seen.clear()
        degraded = DEGRADED.labels("rerank", "DEADLINE_EXCEEDED")._value.get()
        answer = await scene.ask(150)
        assert isinstance(answer, Answer)
        (seen,) = scene.mesh.reranker.seen
        assert 5 <= seen < 20
        assert answer.rerank_method is RerankMethod.CROSS_ENCODER
        assert [(one.stage, one.reason) for one in answer.degradations] == [(Stage.RERANK, Reason.DEADLINE_EXCEEDED)]
        assert DEGRADED.labels("rerank", "DEADLINE_EXCEEDED")._value.get() == degraded + 1
        # And none at all where only a few could be read.
        answer = await scene.ask(50)
        assert isinstance(answer, Answer)
        assert (len(scene.mesh.reranker.seen), answer.rerank_method) == (1, RerankMethod.NONE)
        # It became faster, but nobody asks it in a hurry: what it took is forgotten after a minute.
        scene.mesh.reranker.seconds_each = 0.5 * MILLISECOND
        await asyncio.sleep(61)
        answer = await scene.ask(600)
        assert isinstance(answer, Answer)
        assert answer.degradations == ()

    story_of(story)


def test_a_slow_reranker_that_is_seldom_asked_is_given_less_the_next_time() -> None:
    """Twenty fragments would never be done in time. Fewer are, from the second question on."""

    async def story(scene: Scene) -> None:
        scene.mesh.reranker.seconds_each = 0.4
        first = await scene.ask(8000)
        await asyncio.sleep(10)
        second = await scene.ask(8000)
        assert isinstance(first, Answer)
        assert isinstance(second, Answer)
        assert (first.rerank_method, second.rerank_method) == (RerankMethod.NONE, RerankMethod.CROSS_ENCODER)
        assert second.degradations, "that not all were read is told"

    story_of(story)


def test_one_lost_packet_costs_no_answer_its_time() -> None:
    """A search that hangs once is tried again."""

    async def story(scene: Scene) -> None:
        for _ in range(20):
            await scene.ask(1000)
        hangs = iter([3600.0])
        scene.mesh.store.behaviours[SICK].seconds = lambda: next(hangs, 3 * MILLISECOND)
        started = scene.loop.time()
        answer = await scene.ask(1000)
        assert isinstance(answer, Answer)
        assert {report.status for report in answer.reports} == {Status.OK}
        assert scene.loop.time() - started < 50 * MILLISECOND

    story_of(story)


def test_an_answer_that_nobody_waits_for_any_more_is_not_made() -> None:
    """The processor is kept from the call for a second after everything was found; others wait for it too."""

    async def story(scene: Scene) -> None:
        base = scene.loop.time()
        stolen = 0.0

        def at_the_second_query() -> float:
            nonlocal stolen
            stolen = 1.0 if scene.mesh.catalog.behaviour.calls == 2 else 0.0
            return 0.0

        scene.mesh.catalog.behaviour.seconds = at_the_second_query
        deadline = Deadline(at=base + 0.5, clock=lambda: scene.loop.time() + stolen)
        request = RetrievalRequest(
            query="why did the deployment fail?", selectors=tuple(Selector(knowledge_base=n) for n in scene.mesh.names)
        )
        with pytest.raises(DeadlineExceeded):
            await scene.retrieval.answer(request, tenant=TENANT, deadline=deadline)
        assert scene.mesh.reranker.seen == []

    story_of(story)


def test_a_deadline_that_has_passed_is_said() -> None:
    async def story(scene: Scene) -> None:
        assert isinstance(await scene.ask(0), DeadlineExceeded)
        assert math.isclose(scene.loop.time(), 0.0)

    story_of(story)
