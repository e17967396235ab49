"""SLACK: whole threads, and conversations of messages that are in none."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kbmesh_rpc.errors import InvalidField

from kbmesh_chunker.breaks import Breaks
from kbmesh_chunker.config import Options, Sizes, Strategy
from kbmesh_chunker.context import Context
from kbmesh_chunker.documents.source import Grammar, SlackLayout, SlackMessage
from kbmesh_chunker.piece import Piece
from kbmesh_chunker.strategies.port import Work

WHOLE_BELOW = 1500
MAX_WHOLE_BELOW = 100_000
NEAR_SECONDS = 30 * 60
"""Messages this near to each other in time are one conversation."""
FAR_SECONDS = 12 * 60 * 60
"""Conversations that are short are gathered, but not over a longer silence than this."""
_ROOT_CHARACTERS = 200
_MAX_USERS = 50
_TIMESTAMP = re.compile(r"(\d{1,12})(?:\.\d+)?")
_DATED = re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}")
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*|\n")


class Slack:
    """Threads and conversations."""

    strategy = Strategy.SLACK
    description = "Whole Slack threads where they are short, else runs of their messages; what is in no thread by time."
    # Messages are repeated whole or not at all, and the thread's first message is context of every piece.
    sizes = Sizes(size=1500, overlap=0, minimum=500)
    needs_embedder = False
    grammars = frozenset({Grammar.SLACK})

    def options(self, given: Options, path: str) -> Options:
        below = given.get("whole_below", WHOLE_BELOW)
        if not isinstance(below, int) or not 0 <= below <= MAX_WHOLE_BELOW:
            raise InvalidField(f"{path}.whole_below", f"must be 0 to {MAX_WHOLE_BELOW}, is {below}")
        return {"whole_below": below, "exclude_bots": bool(given.get("exclude_bots", False))}

    async def cut(self, work: Work) -> Sequence[Piece]:
        return await work.aside(cut_slack, work)


def cut_slack(work: Work) -> list[Piece]:
    """Every message, but for those of bots where these are left out. No piece holds messages of two threads."""
    layout = work.document.layout
    assert isinstance(layout, SlackLayout)
    pieces: list[Piece] = []
    for unit in _units(work, layout.messages):
        work.checkpoint()
        pieces.extend(_Cut(work, unit, layout.channel).pieces())
    return pieces


@dataclass(frozen=True, kw_only=True)
class _Unit:
    """Messages that belong together and follow one another."""

    messages: tuple[SlackMessage, ...]
    root: SlackMessage | None = None
    """The message that opens the thread; None where it is not known, is left out, or where this is no thread."""
    thread: str = ""
    """Empty where this is a conversation outside of threads."""
    complete: bool = True
    """Whether nothing of it was left out."""


@dataclass(frozen=True, kw_only=True)
class _Span:
    start: int
    end: int
    first: int
    """The first of its messages, by their place in the unit."""
    last: int


def _units(work: Work, messages: Sequence[SlackMessage]) -> Iterator[_Unit]:
    exclude = bool(work.options["exclude_bots"])
    lone: list[SlackMessage] = []
    for thread in _threads(messages):
        kept = [message for message in thread if not (exclude and message.bot)]
        if len(thread) == 1 and not _is_reply(thread[0]):
            if kept:
                lone.append(thread[0])
            else:
                yield from _conversations(work, lone)
                lone = []
            continue
        yield from _conversations(work, lone)
        lone = []
        root = thread[0] if not _is_reply(thread[0]) and thread[0] in kept[:1] else None
        for run in _runs(thread, exclude=exclude):
            yield _Unit(messages=run, root=root, thread=thread[0].thread, complete=len(kept) == len(thread))
    yield from _conversations(work, lone)


def _threads(messages: Sequence[SlackMessage]) -> Iterator[list[SlackMessage]]:
    thread: list[SlackMessage] = []
    for message in messages:
        if thread and not (_is_reply(message) and message.thread == thread[0].thread):
            yield thread
            thread = []
        thread.append(message)
    if thread:
        yield thread


def _is_reply(message: SlackMessage) -> bool:
    return bool(message.thread) and message.thread != message.timestamp


def _runs(thread: Sequence[SlackMessage], *, exclude: bool) -> Iterator[tuple[SlackMessage, ...]]:
    """The messages of a thread that follow one another when bots are left out."""
    run: list[SlackMessage] = []
    for message in thread:
        if exclude and message.bot:
            if run:
                yield tuple(run)
            run = []
        else:
            run.append(message)
    if run:
        yield tuple(run)


def _conversations(work: Work, messages: Sequence[SlackMessage]) -> Iterator[_Unit]:
    """Messages outside of threads, apart where it was silent for long, and by less where there is enough before."""
    run: list[SlackMessage] = []
    for message in messages:
        if run:
            silence = _silence(run[-1], message)
            enough = work.measure.length(run[0].start, run[-1].end) >= work.limits.minimum
            if silence > FAR_SECONDS or (enough and silence > NEAR_SECONDS):
                yield _Unit(messages=tuple(run))
                run = []
        run.append(message)
    if run:
        yield _Unit(messages=tuple(run))


def _silence(first: SlackMessage, second: SlackMessage) -> float:
    """Seconds between two messages; none where a time is not known."""
    before, after = _seconds(first.timestamp), _seconds(second.timestamp)
    return abs(after - before) if before is not None and after is not None else 0


def _seconds(timestamp: str) -> int | None:
    """Unix time of a timestamp of Slack's, or of one that was pasted with its full date, which is taken as UTC."""
    found = _TIMESTAMP.fullmatch(timestamp)
    if found:
        return int(found[1])
    if _DATED.match(timestamp):
        try:
            return int(datetime.fromisoformat(timestamp[:16]).replace(tzinfo=UTC).timestamp())
        except ValueError:
            return None
    return None


class _Cut:
    """The pieces of one unit."""

    def __init__(self, work: Work, unit: _Unit, channel: str) -> None:
        self._work = work
        self._unit = unit
        self._channel = channel
        self._contexts: dict[tuple[bool, bool, int], Context] = {}

    def pieces(self) -> Iterator[Piece]:
        unit = self._unit
        messages = unit.messages
        start, end = messages[0].start, messages[-1].end
        below = int(self._work.options["whole_below"])
        if unit.thread and end - start < below and self._fits(start, end, minimum=self._work.limits.minimum):
            kind = "complete_thread" if unit.complete else "slack_messages"
            yield self._piece(_Span(start=start, end=end, first=0, last=len(messages) - 1), kind)
            return
        for span in self._gathered(list(self._spans())):
            yield self._piece(span, "slack_messages")

    def _spans(self) -> Iterator[_Span]:
        """Runs of whole messages up to the size; messages that are longer alone, in parts."""
        messages, limits = self._unit.messages, self._work.limits
        first = 0
        while first < len(messages):
            self._work.checkpoint()
            start, last = messages[first].start, first
            if not self._fits(start, messages[first].end):
                yield from self._parts(first)
                first += 1
                continue
            while last + 1 < len(messages) and self._fits(start, messages[last + 1].end):
                last += 1
            yield _Span(start=start, end=messages[last].end, first=first, last=last)
            following = last + 1
            if following < len(messages) and limits.overlap:
                # Whole messages are repeated, as long as there is room for a new one.
                back = following
                while (
                    back - 1 > first
                    and self._work.measure.length(messages[back - 1].start, messages[last].end) <= limits.overlap
                    and self._fits(messages[back - 1].start, messages[following].end)
                ):
                    back -= 1
                following = back
            first = following

    def _parts(self, place: int) -> Iterator[_Span]:
        message = self._unit.messages[place]
        text = self._work.document.text
        breaks = [
            (found.end(), 2 if found.group().count("\n") > 1 else 1)
            for found in _PARAGRAPH.finditer(text, message.start, message.end)
        ]
        cutter = self._work.cutter(Breaks(breaks))
        for start, end in cutter.cut(message.start, message.end, lambda position: self._context(position).tokens):
            yield _Span(start=start, end=end, first=place, last=place)

    def _gathered(self, spans: Sequence[_Span]) -> Sequence[_Span]:
        """The spans, those below the minimum joined to a neighbour."""
        limits, measure = self._work.limits, self._work.measure
        result: list[_Span] = []
        for span in spans:
            if result:
                before = result[-1]
                short = min(measure.length(before.start, before.end), measure.length(span.start, span.end))
                if short < limits.minimum and self._fits(before.start, span.end, minimum=limits.minimum):
                    result[-1] = _Span(start=before.start, end=span.end, first=before.first, last=span.last)
                    continue
            result.append(span)
        return result

    def _fits(self, start: int, end: int, *, minimum: int = 0) -> bool:
        """Whether a stretch is no longer than a piece may be, with `minimum` more for the sake of a stub."""
        work = self._work
        if work.measure.length(start, end) > work.limits.size + minimum:
            return False
        return work.cap is None or work.cap.measure.length(start, end) + self._context(start).tokens <= work.cap.tokens

    def _piece(self, span: _Span, kind: str) -> Piece:
        messages = self._unit.messages[span.first : span.last + 1]
        return Piece(
            start=span.start,
            end=span.end,
            type=kind,
            context=self._context(span.start).text,
            metadata=_metadata(messages, self._unit.thread, self._channel),
        )

    def _context(self, position: int) -> Context:
        """What a piece that starts at `position` needs: the thread's first message, or the last one of a conversation
        that goes on, and who goes on to speak."""
        unit, text = self._unit, self._work.document.text
        index = self._place(position)
        message = unit.messages[index]
        inside = position > message.start
        own = inside or (not unit.thread and index > 0)
        key = (unit.root is not None and position > unit.root.start, inside, index if own else -1)
        if key not in self._contexts:
            lines = []
            if key[0] and unit.root is not None and message is not unit.root:
                lines.append(f"Thread: {_shortened(text, unit.root)}")
            if not unit.thread and index and not inside and not unit.messages[index - 1].bot:
                lines.append(f"Before: {_shortened(text, unit.messages[index - 1])}")
            if inside:
                lines.append(f"{_speaker(message)} (continued)" if _speaker(message) else "(continued)")
            self._contexts[key] = self._work.context(*lines)
        return self._contexts[key]

    def _place(self, position: int) -> int:
        """The message in which a position is."""
        low, high = 0, len(self._unit.messages) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._unit.messages[middle].start <= position:
                low = middle
            else:
                high = middle - 1
        return low


def _shortened(text: str, message: SlackMessage) -> str:
    line = " ".join(text[message.start : min(message.end, message.start + 2 * _ROOT_CHARACTERS)].split())
    if len(line) <= _ROOT_CHARACTERS and message.end - message.start <= 2 * _ROOT_CHARACTERS:
        return line
    return line[:_ROOT_CHARACTERS].rsplit(" ", 1)[0] + "…"


def _speaker(message: SlackMessage) -> str:
    return ", ".join(part for part in (message.author, _shown_time(message.timestamp)) if part)


def _shown_time(timestamp: str) -> str:
    moment = _moment(timestamp)
    return moment.strftime("%Y-%m-%d %H:%M") if moment is not None else timestamp


def _moment(timestamp: str) -> datetime | None:
    seconds = _seconds(timestamp)
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds is not None else None
    except (ValueError, OverflowError, OSError):
        return None


def _metadata(messages: Sequence[SlackMessage], thread: str, channel: str) -> Mapping[str, str]:
    users = list(dict.fromkeys(message.author for message in messages if message.author))
    times = [message.timestamp for message in messages if message.timestamp]
    first = _moment(times[0]) if times else None
    known = {
        "channel": channel,
        "thread_ts": thread,
        "users": ", ".join(users[:_MAX_USERS]) + (", …" if len(users) > _MAX_USERS else ""),
        "start_ts": times[0] if times else "",
        "end_ts": times[-1] if times else "",
        "start_time": _shown_time(times[0]) if times else "",
        "date": first.strftime("%Y-%m-%d") if first is not None else "",
        "message_count": str(len(messages)),
    }
    return {name: value for name, value in known.items() if value}
