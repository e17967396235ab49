"""Messages in a conversation that was copied from Slack's window, or written down like one.

The text stays as it is; a message runs from its own heading to the next. What stands above the first heading is a
message of nobody.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kbmesh_chunker.documents.source import SlackMessage

_SPACE = "[ \t\u00a0\u2002-\u200a\u202f]"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_WEEKDAY = r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_DATE = (
    rf"(?:\d{{4}}-\d{{2}}-\d{{2}}|\d{{1,2}}[/.]\d{{1,2}}[/.]\d{{2,4}}|Today|Yesterday|(?:{_WEEKDAY},?{_SPACE})?"
    rf"(?:{_MONTH}{_SPACE}{_DAY}|{_DAY}{_SPACE}{_MONTH})(?:,?{_SPACE}\d{{4}})?|{_WEEKDAY})"
)
_TIME = rf"\d{{1,2}}:\d{{2}}(?::\d{{2}})?(?:\.\d{{1,6}})?(?:{_SPACE}?[AaPp]\.?[Mm]\.?)?"
_ZONE = rf"(?:{_SPACE}?(?:Z|[A-Z]{{3,4}}|[+-]\d{{2}}:?\d{{2}}))?"
_WHEN = rf"(?P<when>(?:{_DATE}(?:,?{_SPACE}at{_SPACE}|T|,?{_SPACE}))?{_TIME}{_ZONE})"
_NAME = r"\*{0,2}(?P<name>[^\s:\[\]()<>*|\-•][^:\[\]()<>*|\n]{0,59}?)\*{0,2}"
_APP = rf"(?:{_SPACE}+(?P<app>APP|BOT|WORKFLOW))?"
_HEADINGS = tuple(
    re.compile(pattern)
    for pattern in (
        # Ada Lovelace  9:12 AM
        rf"(?P<name>[^\s:\[<*|\-•][^:\[\]<>|\n]{{0,79}}?){_APP}(?:{_SPACE}{{2,8}}|\t){_WHEN}{_SPACE}*$",
        # [9:12 AM] Ada: text
        rf"[\[(]{_WHEN}[\])]{_SPACE}+(?:{_NAME}{_APP}:|<(?P<nick>[^<>\n]{{1,60}})>)(?:\*\*)?(?:{_SPACE}|$)",
        # Ada [2024-05-01 09:12]: text, **Ada** (2024-01-02 10:33): text
        rf"{_NAME}{_APP}{_SPACE}{{1,4}}[\[(]{_WHEN}[\])]{_SPACE}*(?:\*\*)?(?::|$)",
        # Ada:10:32
        rf"{_NAME}:{_SPACE}?{_WHEN}{_SPACE}*$",
        # 2024-05-01 09:12 Ada: text
        rf"(?P<when>\d{{4}}-\d{{2}}-\d{{2}}[T ]{_TIME}{_ZONE}),?{_SPACE}+(?:-{_SPACE})?{_NAME}{_APP}:(?:{_SPACE}|$)",
    )
)
_LONE_TIME = re.compile(rf"(?P<margin>{_SPACE}*)\[?{_WHEN}\]?{_SPACE}*")
_DIVIDER = re.compile(rf"[-—–_{_SPACE[1:-1]}]*(?P<date>{_DATE})[-—–_{_SPACE[1:-1]}]*")
_UNREAD = re.compile(rf"{_SPACE}*New(?: messages)?{_SPACE}*", re.IGNORECASE)
_REPLIES = re.compile(rf"^{_SPACE}*(\d{{1,4}}) repl(?:y|ies)\b", re.MULTILINE)
_LINE = re.compile(r"[^\r\n\u2028\u2029]*(?:\r\n?|\n|\u2028|\u2029|$)")
_LONGEST_HEADING = 200
_LONGEST_NAME = 60


@dataclass(frozen=True, kw_only=True)
class _Heading:
    start: int
    author: str
    timestamp: str
    bot: bool


def find_messages(text: str, checkpoint: Callable[[], None]) -> Sequence[SlackMessage]:
    """The messages of a text, in order; every character that is not white space is in one. None where none is found."""
    headings = _headings(text, checkpoint)
    if not headings:
        return ()
    if text[: headings[0].start].strip("\ufeff \t\r\n"):
        headings.insert(0, _Heading(start=0, author="", timestamp="", bot=False))
    messages = []
    for index, heading in enumerate(headings):
        end = headings[index + 1].start if index + 1 < len(headings) else len(text)
        start = heading.start if index else 0
        messages.append(
            SlackMessage(
                start=start,
                end=start + len(text[start:end].rstrip()),
                timestamp=heading.timestamp,
                thread=heading.timestamp,
                author=heading.author,
                bot=heading.bot,
            )
        )
    return _with_thread(text, messages)


def _headings(text: str, checkpoint: Callable[[], None]) -> list[_Heading]:
    found: list[_Heading] = []
    date = ""
    above: int | None = None
    """Where the lines begin that stand above a heading and belong to it: a date, a mark of what is new."""
    name: tuple[int, str] | None = None
    """A line that may be a name, if the next one is a time."""
    position = 0
    while position < len(text):
        line_found = _LINE.match(text, position)
        end = line_found.end() if line_found else len(text)
        line = text[position : min(end, position + _LONGEST_HEADING)].lstrip("\ufeff").rstrip("\r\n\u2028\u2029")
        if len(found) % 256 == 0:
            checkpoint()
        whole = end - position <= _LONGEST_HEADING
        divider = _DIVIDER.fullmatch(line) if whole else None
        if divider or (whole and _UNREAD.fullmatch(line)):
            date = divider["date"] if divider else date
            above = position if above is None else above
            name = None
        elif line.strip():
            place = position if above is None else above
            heading = _heading(line, place, date, whole=whole) or _lone_time(line, place, date, name, found)
            if heading is not None:
                found.append(heading)
            name = (place, line.strip()) if heading is None and whole and _may_be_name(line) else None
            above = None
        position = end
    return found


def _heading(line: str, start: int, date: str, *, whole: bool) -> _Heading | None:
    for pattern in _HEADINGS:
        heading = pattern.match(line)
        # A line that was shortened has its end elsewhere.
        if heading is None or (not whole and heading.end() == len(line)):
            continue
        groups = heading.groupdict()
        author = (groups.get("name") or groups.get("nick") or "").strip()
        if any(character.isalpha() for character in author):
            bot = bool(groups.get("app"))
            return _Heading(start=start, author=author, timestamp=_time(date, heading["when"]), bot=bot)
    return None


def _lone_time(
    line: str, start: int, date: str, name: tuple[int, str] | None, found: Sequence[_Heading]
) -> _Heading | None:
    """A time alone on its line: below the name of its author, or of the one who wrote the last message too."""
    time = _LONE_TIME.fullmatch(line)
    if time is None:
        return None
    timestamp = _time(date, time["when"])
    if name is not None and (time["margin"] or not found):
        author, bot = name[1], False
        for mark in (" APP", " BOT"):
            if author.endswith(mark):
                author, bot = author.removesuffix(mark).strip(), True
        return _Heading(start=name[0], author=author, timestamp=timestamp, bot=bot)
    if found:
        return _Heading(start=start, author=found[-1].author, timestamp=timestamp, bot=found[-1].bot)
    return None


def _may_be_name(line: str) -> bool:
    name = line.strip()
    return (
        len(name) <= _LONGEST_NAME
        and len(name.split()) <= 6
        and any(character.isalpha() for character in name)
        and not name.endswith((".", "!", "?", ":", ";", ",", "…", "```"))
    )


def _time(date: str, when: str) -> str:
    when = " ".join(when.split())
    return f"{date} {when}" if date and re.fullmatch(_TIME + _ZONE, when) else when


def _with_thread(text: str, messages: list[SlackMessage]) -> list[SlackMessage]:
    """A thread that was copied as a whole names as many replies below its first message as follow."""
    replies = _REPLIES.search(text, messages[0].start, messages[0].end)
    root = messages[0].timestamp
    if replies is None or int(replies[1]) != len(messages) - 1 or not root:
        return messages
    if any(message.timestamp == root for message in messages[1:]):
        return messages
    return [messages[0], *(replace(message, thread=root) for message in messages[1:])]
