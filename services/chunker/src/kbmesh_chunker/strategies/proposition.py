"""PROPOSITION: self-contained statements by a language model, each tied to the sentences that it comes from.

After Chen et al., "Dense X Retrieval" (EMNLP 2024): statements are found more often than passages, as each says one
thing. The text of a chunk stays the source; the statement is what is embedded.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import (
    DeadlineExceeded,
    DependencyInvalidResponse,
    DependencyUnavailable,
    FeatureUnsupported,
    InvalidField,
    KbmeshError,
    Reason,
)

from kbmesh_chunker.blank import trim_end
from kbmesh_chunker.config import Options, Sizes, Strategy
from kbmesh_chunker.context import estimate_tokens
from kbmesh_chunker.documents.source import Grammar, Warning  # noqa: A004 - the contract's name
from kbmesh_chunker.language_model import LANGUAGE_MODEL, LanguageModel
from kbmesh_chunker.piece import Piece
from kbmesh_chunker.strategies.port import Work
from kbmesh_chunker.strategies.sentence_units import Structure, Unit, read_structure, sentence_units
from kbmesh_chunker.strategies.statements import Statement, question, read_answer

MAX_MODEL_CHARACTERS = 200
ASKED_AT_ONCE = 8
"""Windows of one document that wait for an answer at the same time; the language model takes fewer at a time."""
PATIENCE = 4
"""After so many windows in a row without an answer, the others are not asked: the model is not there."""
RESERVE_SHARE = 0.25
RESERVE_SECONDS = 5.0
"""What is kept of the caller's time, at most, to cut and count what came without an answer."""


class Proposition:
    """Statements, and paragraphs where there is none."""

    strategy = Strategy.PROPOSITION
    description = "Self-contained statements by a language model, each pointing at the sentences that it comes from."
    sizes = Sizes(size=1500, overlap=0, minimum=500)
    needs_embedder = False
    grammars = frozenset(Grammar) - {Grammar.CODE}

    def options(self, given: Options, path: str) -> Options:
        model = given.get("model", "")
        if not isinstance(model, str) or len(model) > MAX_MODEL_CHARACTERS:
            raise InvalidField(f"{path}.model", f"must be a name of at most {MAX_MODEL_CHARACTERS} characters")
        return {"model": model}

    async def cut(self, work: Work) -> Sequence[Piece]:
        language_model = work.models.language_model
        if language_model is None:
            raise FeatureUnsupported("STRATEGY_PROPOSITION")
        work.made_with("language_model", str(work.options["model"]) or language_model.model)
        structure = await work.aside(read_structure, work)
        windows = await work.aside(_windows, work, structure)
        asking = _Asking(work=work, language_model=language_model)
        await asking.ask(windows)
        return await work.aside(_pieces, work, structure, windows)


@dataclass(kw_only=True)
class _Window:
    """A stretch of a document that the language model is asked about."""

    units: Sequence[Unit]
    sentences: Sequence[str]
    above: Sequence[str]
    statements: Sequence[Statement] = ()


def _windows(work: Work, structure: Structure) -> list[_Window]:
    text = work.document.text
    title = work.document.title
    cutter = replace(work, limits=replace(work.limits, overlap=0)).cutter(structure.breaks)
    windows = []
    for start, end in cutter.cut(0, len(text), structure.context_tokens):
        units = sentence_units(work, structure, start, end)
        above = dict.fromkeys((title, *structure.context(start).text.split("\n")))
        windows.append(
            _Window(
                units=units,
                sentences=[text[unit.start : unit.end].strip() for unit in units],
                above=[line for line in above if line],
            )
        )
    return windows


@dataclass(kw_only=True)
class _Asking:
    """The questions about one document."""

    work: Work
    language_model: LanguageModel
    failures: list[KbmeshError] = field(default_factory=list)
    refused: int = 0
    _in_a_row: int = 0

    async def ask(self, windows: Sequence[_Window]) -> None:
        """Fills in the statements of each window that is answered in time, and warns of the others."""
        until = _until(self.work.deadline)
        todo = iter(windows)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(ASKED_AT_ONCE, len(windows))):
                group.create_task(self._work_off(todo, until))
        self._warn(len(windows))

    async def _work_off(self, todo: Iterator[_Window], until: Deadline | None) -> None:
        for window in todo:
            try:
                window.statements = await self._ask(window, until)
            except KbmeshError as error:
                self.failures.append(error)

    async def _ask(self, window: _Window, until: Deadline | None) -> Sequence[Statement]:
        if until is not None and until.expired:
            raise DeadlineExceeded(LANGUAGE_MODEL)
        if self._in_a_row >= PATIENCE:
            raise DependencyUnavailable(LANGUAGE_MODEL, f"not asked after {PATIENCE} failures in a row")
        asked = question(window.sentences, window.above, model=str(self.work.options["model"]))
        try:
            answer = await self.language_model.ask(asked, timeout_seconds=until.remaining() if until else None)
        except (DeadlineExceeded, DependencyUnavailable):
            self._in_a_row += 1
            raise
        self._in_a_row = 0
        found = await self.work.aside(read_answer, answer, window.sentences, window.above)
        kept = [item for item in found.kept if estimate_tokens(item.text) <= self.work.room.tokens]
        self.refused += found.refused + len(found.kept) - len(kept)
        if not kept:
            raise DependencyInvalidResponse(LANGUAGE_MODEL, "no statement that can be used")
        return kept

    def _warn(self, windows: int) -> None:
        if self.failures:
            # The same settings would give other chunks with a model that answers.
            self.work.made_with("windows_without_statements", str(len(self.failures)))
            causes = Counter((error.reason, error.message) for error in self.failures)
            (reason, _), _ = causes.most_common(1)[0]
            told = "; ".join(f"{message} ({count} of them)" for (_, message), count in causes.most_common(3))
            self._add(
                reason,
                f"{len(self.failures)} of {windows} windows have no statements and were cut into paragraphs: {told}",
                windows=len(self.failures),
            )
        if self.refused:
            self._add(
                Reason.DEPENDENCY_INVALID_RESPONSE,
                f"{self.refused} statements were left out: the text does not bear them out, or they are too long",
                statements=self.refused,
            )

    def _add(self, reason: Reason, message: str, **counts: int) -> None:
        key = "stage" if reason is Reason.DEADLINE_EXCEEDED else "dependency"
        metadata = {key: LANGUAGE_MODEL, **{name: str(count) for name, count in counts.items()}}
        self.work.warn(Warning(reason=reason, message=message, metadata=metadata))


def _until(deadline: Deadline | None) -> Deadline | None:
    """Until when answers are waited for."""
    if deadline is None:
        return None
    return deadline.less(min(RESERVE_SECONDS, deadline.remaining() * RESERVE_SHARE))


def _pieces(work: Work, structure: Structure, windows: Sequence[_Window]) -> list[Piece]:
    text = work.document.text
    pieces = []
    for window in windows:
        for statement in window.statements:
            start = window.units[statement.first].start
            pieces.append(
                Piece(
                    start=start,
                    end=trim_end(text, start, window.units[statement.last].end),
                    type="proposition",
                    context=structure.context(start).text,
                    heading_path=structure.path(start),
                    statement=statement.text,
                )
            )
    cutter = work.cutter(structure.breaks)
    for first, last in _unmentioned(windows):
        pieces.extend(
            Piece(
                start=start,
                end=end,
                type="paragraph",
                context=structure.context(start).text,
                heading_path=structure.path(start),
            )
            for start, end in cutter.cut(first, last, structure.context_tokens)
        )
    return sorted(pieces, key=lambda piece: (piece.start, piece.end))


def _unmentioned(windows: Sequence[_Window]) -> Iterator[tuple[int, int]]:
    """Stretches of sentences to which no statement is tied, across windows."""
    open_: tuple[int, int] | None = None
    for window in windows:
        mentioned = bytearray(len(window.units))
        for statement in window.statements:
            mentioned[statement.first : statement.last + 1] = b"\1" * (statement.last + 1 - statement.first)
        for unit, known in zip(window.units, mentioned, strict=True):
            if not known:
                open_ = (unit.start if open_ is None else open_[0], unit.end)
            elif open_ is not None:
                yield open_
                open_ = None
    if open_ is not None:
        yield open_
