"""CODE: functions, classes and other definitions of source code."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

from kbmesh_rpc.errors import InvalidField, Reason, shown

from kbmesh_chunker.breaks import Breaks
from kbmesh_chunker.code.definition import Definition
from kbmesh_chunker.code.languages import Language, known_names, language_by_name, language_of
from kbmesh_chunker.code.line_map import LineMap
from kbmesh_chunker.code.lines import line_breaks
from kbmesh_chunker.code.outline import Outline
from kbmesh_chunker.code.packing import even_cutter
from kbmesh_chunker.code.stretch import Stretch
from kbmesh_chunker.code.stretches import Stretches
from kbmesh_chunker.code.syntax import Role, syntax_of
from kbmesh_chunker.code.understanding import understand
from kbmesh_chunker.config import Options, Sizes, Strategy
from kbmesh_chunker.documents.source import Grammar, Warning  # noqa: A004 - the contract's name
from kbmesh_chunker.piece import Piece
from kbmesh_chunker.strategies.port import Work

MAX_SYMBOLS = 2000
"""Characters of the list of symbols of a piece. What is beyond is left out: the text has it."""


class Code:
    """Functions, classes and other definitions of source code."""

    strategy = Strategy.CODE
    description = "Definitions of source code with the comments above them; what is too long between its statements."
    sizes = Sizes(size=1500, overlap=0, minimum=0)
    needs_embedder = False
    grammars = frozenset({Grammar.CODE})

    def options(self, given: Options, path: str) -> Options:
        name = given.get("language", "")
        if not isinstance(name, str):
            raise InvalidField(f"{path}.language", "must be the name of a language")
        if not name.strip():
            return {"language": ""}
        language = language_by_name(name)
        if language is None:
            raise InvalidField(f"{path}.language", f"must be one of {', '.join(known_names())}, is {shown(name)}")
        return {"language": language.name}

    async def cut(self, work: Work) -> Sequence[Piece]:
        return await work.aside(cut_code, work)


def cut_code(work: Work) -> list[Piece]:
    """All of the text, definition by definition where its language has a grammar, else between its lines."""
    text = work.document.text
    language = language_by_name(str(work.options["language"])) or language_of(work.document)
    if language is None or language.grammar is None:
        name = language.name if language is not None else ""
        what = f"the definitions of {name} are not known" if name else "the language of the code is not known"
        _warn(work, Reason.FEATURE_UNSUPPORTED, f"{what}; it was cut between lines", name)
        return _by_lines(work, name)
    found = understand(text, language, work.checkpoint)
    if found.outline is not None:
        return _by_definitions(work, language, found.outline, stopped=found.stopped)
    if found.stopped:
        message = "parsing it would take too long; it was cut between lines"
        _warn(work, Reason.DOCUMENT_TOO_LARGE, message, language.name)
    else:
        message = f"most of it is not {language.name}; it was cut between lines"
        _warn(work, Reason.DOCUMENT_UNREADABLE, message, language.name)
    return _by_lines(work, language.name)


def _by_definitions(work: Work, language: Language, outline: Outline, *, stopped: bool) -> list[Piece]:
    stretches = Stretches(work, outline, syntax_of(language))
    pieces = list(_pieces(work, language, outline, stretches))
    if outline.errors:
        first = LineMap(work.document.text).line(outline.errors[0][0])
        message = f"it is not {language.name} throughout, from line {first} on; these places were cut between lines"
        if stopped:
            message += ", and all that is behind the place where parsing would have taken too long"
        _warn(work, Reason.DOCUMENT_UNREADABLE, message, language.name, line=str(first))
    return pieces


def _warn(work: Work, reason: Reason, message: str, language: str, **more: str) -> None:
    metadata = {"language": language} if language else {}
    work.warn(Warning(reason=reason, message=message, metadata={**metadata, **more}))


def _by_lines(work: Work, language: str) -> list[Piece]:
    """All of the text, between its lines."""
    text = work.document.text
    cutter = even_cutter(work, Breaks(line_breaks(text, 0, len(text))))
    context = work.context()
    lines = LineMap(text)
    metadata = {"language": language} if language else {}
    return [
        Piece(
            start=start,
            end=end,
            type="lines",
            context=context.text,
            metadata={
                **metadata,
                "fallback": "lines",
                "start_line": str(lines.line(start)),
                "end_line": str(lines.line(end - 1)),
            },
        )
        for start, end in cutter.cut(0, len(text), context.at)
    ]


def _pieces(work: Work, language: Language, outline: Outline, stretches: Stretches) -> Iterator[Piece]:
    lines = LineMap(work.document.text)
    found = stretches.all()
    names = _Names(outline.definitions)
    for stretch in found:
        inside = names.within(stretch.start, stretch.end)
        subject = _subject(stretch, inside)
        metadata: dict[str, Any] = {
            "language": language.name,
            "start_line": str(lines.line(stretch.start)),
            "end_line": str(lines.line(stretch.end - 1)),
        }
        if symbols := _listed(stretch, inside):
            metadata["symbols"] = symbols
        if subject is not None:
            metadata["symbol"], metadata["kind"] = subject.symbol, subject.kind
        if stretch.parts:
            metadata["part"] = f"{stretch.part}/{stretch.parts}"
        statements = not stretch.whole and stretch.about is None
        if stretches.broken(stretch):
            metadata["fallback"] = "lines"
        path = [definition.name for definition in stretch.around if definition.name]
        if subject is not None and subject not in stretch.around and subject.name:
            path.append(subject.name)
        yield Piece(
            start=stretch.start,
            end=stretch.end,
            type="statements" if statements else "definition",
            context=stretches.context(stretch).text,
            heading_path=tuple(path),
            metadata=metadata,
        )


class _Names:
    """Finds the definitions that begin within a stretch."""

    def __init__(self, definitions: Sequence[Definition]) -> None:
        self._all = list(_flattened(definitions))
        self._all.sort(key=lambda definition: definition.head)
        self._heads = [definition.head for definition in self._all]

    def within(self, start: int, end: int) -> list[Definition]:
        return self._all[bisect_left(self._heads, start) : bisect_left(self._heads, end)]


def _flattened(definitions: Sequence[Definition]) -> Iterator[Definition]:
    for definition in definitions:
        if definition.name:
            yield definition
        yield from _flattened(definition.inner)


def _subject(stretch: Stretch, inside: Sequence[Definition]) -> Definition | None:
    """The definition that a piece is about: the only one in it, or what it is a part of."""
    if stretch.about is not None and stretch.about.name:
        return stretch.about
    outermost = [one for one in inside if one not in stretch.around and one.role is not Role.ALIAS]
    if outermost and all(one.start < outermost[0].end or one.symbol == outermost[0].symbol for one in outermost):
        # What is in it is not beside it, and a property with its setter is one.
        return outermost[0]
    return next((definition for definition in reversed(stretch.around) if definition.name), None)


def _listed(stretch: Stretch, inside: Sequence[Definition]) -> str:
    """The symbols of a piece, outermost first."""
    symbols = [definition.symbol for definition in inside]
    if stretch.about is not None and stretch.about.symbol and stretch.about not in inside:
        symbols.insert(0, stretch.about.symbol)
    listed: list[str] = []
    length = 0
    for symbol in dict.fromkeys(symbols):
        length += len(symbol) + 2
        if length > MAX_SYMBOLS:
            break
        listed.append(symbol)
    return ", ".join(listed)
