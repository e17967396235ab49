"""What a retrieval notes on its way: times, degradations and, where asked for, what each stage saw."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from uuid import UUID

from kbmesh_rpc.spans import span

from kbmesh_retriever.attribution.sources import title_of
from kbmesh_retriever.catalog.port import Document
from kbmesh_retriever.retrieve.answer import CandidateTrace, StageTrace
from kbmesh_retriever.retrieve.candidates import above
from kbmesh_retriever.retrieve.fragment import Candidate, Fragment
from kbmesh_retriever.retrieve.plan import Target
from kbmesh_retriever.retrieve.search import Found, Lists, Version
from kbmesh_retriever.retrieve.stage import Degradation, ScoreStage, Stage


class Journal:
    """Of one retrieval."""

    def __init__(self, *, explain: bool, clock: Callable[[], float] = time.perf_counter) -> None:
        self._explain = explain
        self._clock = clock
        self._started = clock()
        self._milliseconds: dict[Stage, float] = {}
        self._starts: dict[Stage, float] = {}
        self._decisions: dict[Stage, list[str]] = {}
        self._traces: list[tuple[Stage, str, tuple[CandidateTrace, ...]]] = []
        self._names: dict[int, str] = {}
        self._documents: Mapping[Version, Document] = {}
        self.degradations: list[Degradation] = []

    def name_targets(self, targets: Sequence[Target]) -> None:
        """Lets traces call the knowledge bases by their names."""
        self._names = {target.position: target.knowledge_base.name for target in targets}

    @contextmanager
    def timing(self, stage: Stage) -> Iterator[None]:
        """Adds what happens inside to the stage's time."""
        started = self._clock()
        self._starts.setdefault(stage, (started - self._started) * 1000)
        try:
            with span(f"retrieve {stage.value}"):
                yield
        finally:
            elapsed = (self._clock() - started) * 1000
            self._milliseconds[stage] = self._milliseconds.get(stage, 0.0) + elapsed

    def decide(self, stage: Stage, note: str) -> None:
        """What the stage decided, and why, for whoever reads the explanation."""
        if self._explain:
            self._decisions.setdefault(stage, []).append(note)

    def timings(self) -> dict[str, float]:
        """Milliseconds so far."""
        stages = {stage.value: milliseconds for stage, milliseconds in self._milliseconds.items()}
        return {**stages, "total": (self._clock() - self._started) * 1000}

    def explanation(self) -> tuple[StageTrace, ...]:
        """The traces so far; empty where none were asked for."""
        if not self._explain:
            return ()
        traced = {stage for stage, _, _ in self._traces}
        plain = [(stage, "", ()) for stage in self._milliseconds if stage not in traced]
        return tuple(
            StageTrace(
                stage=stage,
                label=label,
                milliseconds=self._milliseconds.get(stage, 0.0),
                started_milliseconds=self._starts.get(stage, 0.0),
                note="; ".join(self._decisions.get(stage, ())),
                candidates=candidates,
            )
            for stage, label, candidates in sorted([*plain, *self._traces], key=lambda trace: _ORDER[trace[0]])
        )

    def note_lists(self, all_lists: Sequence[Lists], documents: Mapping[Version, Document]) -> None:
        """Each list of each knowledge base, with what its threshold dropped. `documents` are those of all fragments,
        by which traces call them from then on."""
        if not self._explain:
            return
        self._documents = documents
        for lists in all_lists:
            for stage, found in ((ScoreStage.VECTOR, lists.dense), (ScoreStage.KEYWORD, lists.keyword)):
                label = f"{stage.value} {lists.target.knowledge_base.name}"
                if lists.query:
                    label += f", query {lists.query + 1}"
                self._note_list(label, lists, stage, found)

    def _note_list(self, label: str, lists: Lists, stage: ScoreStage, found: Sequence[Found]) -> None:
        passed = {one.fragment.chunk_id for one in above(lists, stage)}
        least = lists.target.thresholds.get(stage)
        name = lists.target.knowledge_base.name
        self._traces.append(
            (
                Stage.SEARCH,
                label,
                tuple(
                    CandidateTrace(
                        chunk_id=one.fragment.chunk_id,
                        knowledge_base=name,
                        rank=rank,
                        score=one.score,
                        dropped="" if one.fragment.chunk_id in passed else f"below the {stage.value} threshold {least}",
                        external_id=self._external_id(one.fragment),
                        title=self._title(one.fragment),
                    )
                    for rank, one in enumerate(found, start=1)
                ),
            )
        )

    def note(
        self,
        stage: Stage,
        candidates: Sequence[Candidate],
        *,
        dropped: Mapping[UUID, str] | None = None,
        label: str = "",
    ) -> None:
        """What a stage saw, in its order, and whom it dropped, and why. The score is the final one where there is
        one, else the fused one."""
        if not self._explain:
            return
        reasons = dropped or {}
        self._traces.append(
            (
                stage,
                label,
                tuple(
                    CandidateTrace(
                        chunk_id=one.chunk_id,
                        knowledge_base=self._names.get(one.target, ""),
                        rank=rank,
                        score=one.fused if one.scores.final is None else one.final,
                        dropped=reasons.get(one.chunk_id, ""),
                        external_id=self._external_id(one.fragment),
                        title=self._title(one.fragment),
                    )
                    for rank, one in enumerate(candidates, start=1)
                ),
            )
        )

    def _external_id(self, fragment: Fragment) -> str:
        document = self._documents.get(fragment.version)
        return document.external_id if document else ""

    def _title(self, fragment: Fragment) -> str:
        document = self._documents.get(fragment.version)
        return title_of(document, fragment.metadata) if document else ""


_ORDER = {stage: place for place, stage in enumerate(Stage)}
