"""Raw messages of a channel to those that stand there at last: edited, deleted, put in order and into threads."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbmesh_chunker.documents.slack_blocks import render_attachments, render_blocks, render_files
from kbmesh_chunker.documents.slack_directory import SLACKBOT, Directory, dicts, one_line, string
from kbmesh_chunker.documents.slack_markup import render_markup

Raw = Mapping[str, Any]

_TIMESTAMP = re.compile(r"\s*(\d{1,12})(?:\.(\d{1,20}))?\s*")
_PRECISE = re.compile(r"\d+\.\d+")
_EVENT_NAMES = """
    channel_join channel_leave channel_archive channel_unarchive channel_convert_to_private
    group_join group_leave group_archive group_unarchive bot_add bot_remove bot_enable bot_disable app_conversation_join
    pinned_item unpinned_item reminder_add ekm_access_denied channel_posting_permissions joiner_notification
    joiner_notification_for_inviter mpim_created
"""
_EVENTS = frozenset(_EVENT_NAMES.split())
"""Who came and went. Said by nobody, and a search for anything else would find it."""
_WORD = re.compile(r"\w+")
# The same list is numbered in one way in the text and in another in its blocks.
_NO_WORD = re.compile(r"&(?:amp|lt|gt);|^[^\w\n]*(?:\d{1,4}|[a-z]{1,4})[.)](?=\s)", re.MULTILINE)
_BESIDE = ("blocks", "attachments", "files", "file")
_OF_THE_PLACE = ("user", "bot_id", "username", "bot_profile", "thread_ts")
_LONG_TEXT = 40_000
"""Slack takes no longer text. What stands beside a longer one is not looked for in it."""
_MAX_NESTED = 8
_LAST = chr(0x10FFFF)
_NEVER = (-1, "")
_BEFORE_ALL = (-2, "")


@dataclass(frozen=True, kw_only=True)
class ChannelMessage:
    """A message as it is to be shown."""

    timestamp: str
    """Slack's `ts`; empty where it has none."""
    thread: str
    """The `ts` of the message that opens its thread; its own where that is itself."""
    author: str
    bot: bool
    text: str

    @property
    def is_reply(self) -> bool:
        return self.thread != self.timestamp


@dataclass(kw_only=True)
class LeftOut:
    """How many messages are not shown, and why."""

    events: int = 0
    deleted: int = 0
    hidden: int = 0
    """What Slack itself does not show."""
    silent: int = 0
    """What says nothing, as one whose file is gone."""
    broken: int = 0
    """What stands in a list of messages and is none."""

    def add(self, more: "LeftOut") -> None:
        """Counts those of another channel too."""
        self.events += more.events
        self.deleted += more.deleted
        self.hidden += more.hidden
        self.silent += more.silent
        self.broken += more.broken


@dataclass(kw_only=True)
class _Version:
    message: Raw
    order: tuple[int, str]
    """When it was written so; the newest stands."""
    sequence: int


@dataclass(kw_only=True)
class _Collected:
    versions: dict[object, _Version] = field(default_factory=dict)
    keys: dict[str, object] = field(default_factory=dict)
    """Of the first message of each time."""
    deleted: set[str] = field(default_factory=set)
    threads: dict[str, str] = field(default_factory=dict)
    """The thread of replies that do not name it themselves."""
    spelled: dict[str, str] = field(default_factory=dict)
    """How each time is written: as the message of that time has it, else as the first that names it."""


def timestamp_of(value: Any) -> str:
    """A `ts` as a string, digit by digit as it was written. Empty where it is none."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if 0 <= value < 10**12 else ""
    return value.strip() if isinstance(value, str) and _TIMESTAMP.fullmatch(value) else ""


def _same_time(timestamp: str) -> str:
    """One spelling of a timestamp, with six digits behind the point as Slack has them: what some tool wrote as a
    number lost the zeros at its end."""
    found = _TIMESTAMP.fullmatch(timestamp)
    if found is None:
        return ""
    return f"{found[1]}.{found[2].rstrip('0').ljust(6, '0')}" if found[2] else found[1]


def timestamp_order(timestamp: str) -> tuple[int, str]:
    """Sorts timestamps by time. Never as a float, which does not tell neighbouring ones apart."""
    found = _TIMESTAMP.fullmatch(timestamp)
    return (int(found[1]), (found[2] or "").rstrip("0")) if found else _NEVER


def looks_like_message(value: Any) -> bool:
    """Whether a JSON value is a message of Slack, or an event about one."""
    if not isinstance(value, dict) or not timestamp_of(value.get("ts")):
        return False
    if value.get("type") == "message" or value.get("subtype") == "message_deleted":
        return True
    if isinstance(value.get("message"), dict) and value.get("subtype") == "message_changed":
        return True
    by_somebody = any(isinstance(value.get(name), str) for name in ("user", "bot_id", "username", "subtype"))
    return (by_somebody or bool(timestamp_of(value.get("thread_ts")))) and _says_something(value)


def may_be_message(value: Any) -> bool:
    """Whether a JSON value is a message where only messages of Slack are to be expected: some tools write neither
    its type nor who wrote it."""
    return looks_like_message(value) or (
        isinstance(value, dict) and bool(timestamp_of(value.get("ts"))) and _says_something(value)
    )


def _says_something(value: Raw) -> bool:
    return value.get("text") is not None or any(
        isinstance(value.get(name), list) for name in ("blocks", "attachments", "files")
    )


def assemble(
    raw: Iterable[Any], directory: Directory, checkpoint: Callable[[], None]
) -> tuple[Sequence[ChannelMessage], LeftOut]:
    """The messages of a channel from all its files in any order: threads by the time of their root, replies behind it.

    Of a message that was edited the newest text stands; what was deleted is gone; what is there twice is there once.
    """
    left_out = LeftOut()
    collected = _collect(raw, directory, left_out)
    found: list[tuple[tuple[Any, ...], ChannelMessage]] = []
    last = _NEVER
    for version in sorted(collected.versions.values(), key=lambda version: version.sequence):
        checkpoint()
        message = version.message
        timestamp = timestamp_of(message.get("ts"))
        if _same_time(timestamp) in collected.deleted:
            continue
        # A message without a time stands behind the one before it.
        last = timestamp_order(timestamp) if timestamp else last
        if string(message.get("subtype")) in _EVENTS:
            left_out.events += 1
            continue
        shown = _message(message, timestamp, collected, directory)
        if not shown.text:
            if timestamp or _says_something(message):
                left_out.silent += 1
            else:
                left_out.broken += 1
            continue
        root = timestamp_order(shown.thread) if shown.thread else last
        found.append(((root, shown.thread or _LAST, shown.is_reply, last, version.sequence), shown))
    found.sort(key=lambda pair: pair[0])
    return [message for _, message in found], left_out


def _collect(raw: Iterable[Any], directory: Directory, left_out: LeftOut) -> _Collected:
    collected = _Collected()
    events: list[tuple[int, Raw, tuple[int, str]]] = []
    for sequence, value in enumerate(_flat(raw)):
        if not isinstance(value, dict):
            left_out.broken += 1
            continue
        directory.add_profile(value)
        timestamp = timestamp_of(value.get("ts"))
        inner = value.get("message")
        match value.get("subtype"):
            case "message_deleted":
                collected.deleted.add(_same_time(timestamp_of(_deleted(value))))
            case "message_changed" | "message_replied" if isinstance(inner, dict):
                edited = value.get("subtype") == "message_changed"
                events.append((sequence, inner, timestamp_order(timestamp) if edited else _BEFORE_ALL))
            case _ if _is_tombstone(value):
                collected.deleted.add(_same_time(timestamp))
            case _ if value.get("hidden") is True:
                left_out.hidden += 1
            case _:
                _add(collected, value, sequence)
                if isinstance(value.get("root"), dict):
                    events.append((sequence, value["root"], _BEFORE_ALL))
                for reply in dicts(value.get("replies")):
                    if timestamp and (answered := timestamp_of(reply.get("ts"))):
                        collected.threads.setdefault(_same_time(answered), timestamp)
    # An event may stand before its message, in the file of an earlier day or in one that is listed the newest first.
    for sequence, message, order in events:
        directory.add_profile(message)
        if _is_tombstone(message):
            collected.deleted.add(_same_time(timestamp_of(message.get("ts"))))
        else:
            _change(collected, message, order, sequence)
    collected.deleted.discard("")
    for version in collected.versions.values():
        written = timestamp_of(version.message.get("ts"))
        collected.spelled.setdefault(_same_time(written), written)
    left_out.deleted = len(collected.deleted)
    return collected


def _flat(raw: Iterable[Any]) -> Iterator[Any]:
    """Replies that some tools put inside the message that they answer come after it."""
    for value in raw:
        yield from _with_replies(value, _MAX_NESTED)


def _with_replies(value: Any, depth: int) -> Iterator[Any]:
    yield value
    if isinstance(value, dict) and depth:
        for name in ("replies", "slackdump_thread_replies", "thread_replies"):
            for reply in dicts(value.get(name)):
                if "text" in reply or "blocks" in reply:
                    thread = value.get("thread_ts") or value.get("ts")
                    yield from _with_replies({"thread_ts": thread, **reply}, depth - 1)


def _is_tombstone(message: Raw) -> bool:
    return message.get("subtype") == "tombstone"


def _deleted(event: Raw) -> Any:
    previous = event.get("previous_message")
    gone = event.get("deleted_ts")
    return previous.get("ts") if gone is None and isinstance(previous, dict) else gone


def _edited(message: Raw) -> tuple[int, str]:
    edited = message.get("edited")
    return timestamp_order(timestamp_of(edited.get("ts"))) if isinstance(edited, dict) else _NEVER


def _add(collected: _Collected, message: Raw, sequence: int) -> None:
    """Takes a message of a file, once and as it was written at last."""
    timestamp, author = _same_time(timestamp_of(message.get("ts"))), _identity(message)
    key: object = sequence
    if _PRECISE.fullmatch(timestamp):
        key = timestamp
        known = collected.versions.get(key)
        if known is not None and author and _identity(known.message) not in {"", author}:
            # Slack gives no time twice in a channel: these come from somewhere else.
            key = (timestamp, author)
    elif timestamp:
        # Many messages may be of one second.
        key = (timestamp, author, str(message.get("text"))[:_LONG_TEXT])
    if timestamp:
        collected.keys.setdefault(timestamp, key)
    _keep(collected, key, message, _edited(message), sequence)


def _change(collected: _Collected, message: Raw, order: tuple[int, str], sequence: int) -> None:
    """Takes a message from an event about it, which `order` dates."""
    timestamp = _same_time(timestamp_of(message.get("ts")))
    key = collected.keys.get(timestamp, timestamp or sequence)
    known = collected.versions.get(key)
    if known is not None:
        # What the event leaves out, the message still knows.
        kept = {name: known.message[name] for name in _OF_THE_PLACE if name in known.message}
        message = {**kept, **message}
    _keep(collected, key, message, max(order, _edited(message)), sequence)


def _keep(collected: _Collected, key: object, message: Raw, order: tuple[int, str], sequence: int) -> None:
    known = collected.versions.get(key)
    if known is None:
        collected.versions[key] = _Version(message=message, order=order, sequence=sequence)
    elif order >= known.order:
        known.message, known.order = message, order


def _identity(message: Raw) -> str:
    return next((value for name in ("user", "bot_id", "username") if (value := one_line(message.get(name)))), "")


def _message(message: Raw, timestamp: str, collected: _Collected, directory: Directory) -> ChannelMessage:
    author, bot = _author(message, directory)
    thread = timestamp_of(message.get("thread_ts")) or collected.threads.get(_same_time(timestamp), "") or timestamp
    thread = collected.spelled.setdefault(_same_time(thread), thread)
    if thread and timestamp and timestamp_order(thread) == timestamp_order(timestamp):
        thread = timestamp
    return ChannelMessage(timestamp=timestamp, thread=thread, author=author, bot=bot, text=_text(message, directory))


def _author(message: Raw, directory: Directory) -> tuple[str, bool]:
    user = message.get("user")
    comment = message.get("comment")
    if not isinstance(user, str) and isinstance(comment, dict):
        user = comment.get("user")
    profile = message.get("bot_profile")
    profile = profile if isinstance(profile, dict) else {}
    bot_id = message.get("bot_id")
    bot = message.get("subtype") == "bot_message" or (isinstance(bot_id, str) and bool(bot_id)) or bool(profile)
    identity = one_line(user)
    person = directory.people.get(identity)
    bot = bot or identity == SLACKBOT or (person is not None and person.bot)
    written = one_line(message.get("username"))
    if bot:
        # One bot speaks under many names; the name of the message is the one that was seen.
        names = (written, one_line(profile.get("name")), directory.user(identity), directory.user(one_line(bot_id)))
        return next((name for name in names if name), ""), True
    return (directory.user(identity) if identity else written), False


def _text(message: Raw, directory: Directory) -> str:
    """What a message says: its text, and what blocks, attachments and files say beyond it."""
    text = render_markup(_written(message.get("text")), directory).strip()
    comment = message.get("comment")
    if not text and isinstance(comment, dict) and isinstance(comment.get("comment"), str):
        text = render_markup(comment["comment"], directory).strip()
    if not any(message.get(name) for name in _BESIDE):
        return text
    blocks = [shown for part in render_blocks(message.get("blocks"), directory) if (shown := part.strip())]
    if blocks and text and _words(text) in _words("\n".join(blocks)) and _words(text) != _words("\n".join(blocks)):
        # The text is what a notification shows: the blocks say it too, and more.
        text = ""
    said = _Said()
    parts = [text] if said.is_new(text) else []
    for part in (
        *blocks,
        *render_attachments(message.get("attachments"), directory, text[:_LONG_TEXT]),
        *render_files(message, directory),
    ):
        shown = part.strip()
        if said.is_new(shown):
            parts.append(shown)
    return "\n".join(parts)


def _written(value: Any) -> str:
    """A text as a string; what is no string as its JSON."""
    if isinstance(value, str) or value is None:
        return value or ""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "…"


class _Said:
    """What a message has said so far."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._first = ""

    def is_new(self, text: str) -> bool:
        """Whether a text says anything that was not said."""
        if not text:
            return False
        words = _words(text)
        if words in self._seen or (self._first and words in self._first):
            return False
        self._seen.add(words)
        if not self._first and len(words) <= _LONG_TEXT:
            self._first = words
        return True


def _words(text: str) -> str:
    """The words of a text, each between two spaces; the text itself where it has none."""
    words = _WORD.findall(_NO_WORD.sub(" ", text).casefold())
    return f" {' '.join(words)} " if words else f" {''.join(text.split())} "
