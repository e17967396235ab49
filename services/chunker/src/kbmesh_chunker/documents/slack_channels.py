"""A Slack channel before its messages are put in order, from any of the shapes that JSON of Slack has."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kbmesh_chunker.documents.slack_directory import Directory, dicts, one_line, string
from kbmesh_chunker.documents.slack_markup import render_markup
from kbmesh_chunker.documents.slack_messages import looks_like_message, may_be_message

_MAX_TOPIC = 300
_DAY_FILE = re.compile(r"(?:^|/)([^/]+)/\d{4}-\d{2}-\d{2}\.json", re.IGNORECASE)
_MESSAGE_SHARE = 0.5
"""How many of the objects in a list must be messages, so that it is one of Slack."""


@dataclass(kw_only=True)
class RawChannel:
    """A channel, a private group or a direct conversation."""

    name: str = ""
    """Without `#`; names of those who talk in a direct conversation. Empty where none is known."""
    identity: str = ""
    direct: bool = False
    topic: str = ""
    purpose: str = ""
    messages: list[Any] = field(default_factory=list)

    @property
    def title(self) -> str:
        """How it is called."""
        if not self.name:
            return ""
        return f"Direct messages: {self.name}" if self.direct else f"#{self.name}"

    @property
    def about(self) -> str:
        """Its title and what it is for, on one line."""
        texts = dict.fromkeys(text for text in (self.topic, self.purpose) if text)
        return " — ".join(part for part in (self.title, *texts) if part)


def describe(channel: Any, directory: Directory) -> RawChannel:
    """A channel as `channels.json` or `conversations.info` describes it; also by its name alone."""
    if not isinstance(channel, dict):
        return RawChannel(name=one_line(channel).removeprefix("#"))
    identity, name = one_line(channel.get("id")), one_line(channel.get("name")).removeprefix("#")
    members = channel.get("members")
    direct = not name or channel.get("is_im") is True or channel.get("is_mpim") is True or name.startswith("mpdm-")
    if direct and isinstance(members, list):
        name = ", ".join(directory.user(member) for member in members[:20] if isinstance(member, str)) or name
    elif direct and isinstance(channel.get("user"), str):
        name = directory.user(channel["user"])
    return RawChannel(
        name=name or identity,
        identity=identity,
        direct=direct and bool(name),
        topic=_said_of(channel.get("topic"), directory),
        purpose=_said_of(channel.get("purpose"), directory),
    )


def _said_of(value: Any, directory: Directory) -> str:
    text = string(value.get("value") if isinstance(value, dict) else value)
    return one_line(render_markup(text[: 8 * _MAX_TOPIC], directory), _MAX_TOPIC)


def load_json(text: str) -> Any:
    """Parses JSON; numbers with a point come as they are written.

    Raises ValueError, also where it is nested too deep.
    """
    try:
        return json.loads(text.lstrip("\ufeff"), parse_float=str, parse_constant=str)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def load_lines(text: str) -> tuple[list[Any], int]:
    """The values of JSON lines, and how many lines are none."""
    values, broken = [], 0
    for line in text.lstrip("\ufeff").splitlines():
        if line.strip():
            try:
                values.append(load_json(line))
            except ValueError:
                broken += 1
    return values, broken


def channels_of(value: Any, filename: str, directory: Directory, *, told: bool = False) -> Sequence[RawChannel]:
    """The channels of which a JSON value holds messages; none where it is nothing of Slack's.

    It is a day of an export, an answer of `conversations.history` or `conversations.replies`, an object with the
    messages and what belongs to them, or several of these under "channels".
    Where it was `told` that it is of Slack, also events that hold a message each, and lists without any.
    """
    folder = _DAY_FILE.search(filename.replace("\\", "/"))
    default = RawChannel(name=folder[1] if folder else "")
    result: list[RawChannel] = []
    for channel, messages in _holders(_without_envelopes(value) if told else value, default, directory):
        if not isinstance(messages, list):
            continue
        if is_messages(messages, expected=told or messages is not value or folder is not None) or (
            told and not messages
        ):
            result.extend(_by_channel(channel, messages, directory))
    return _merged(result)


def _holders(value: Any, default: RawChannel, directory: Directory) -> Iterator[tuple[RawChannel, Any]]:
    """What may be a list of messages, and the channel that is said to be theirs."""
    if isinstance(value, list) and value and all(_is_page(page) for page in value):
        for page in value:
            yield from _holders(page, default, directory)
    elif isinstance(value, dict):
        directory.add_users(value.get("users"))
        channels = dicts(value.get("channels"))
        directory.add_channels(channels)
        holders = [channel for channel in channels if _is_page(channel)]
        for holder in holders:
            yield describe(holder, directory), holder["messages"]
        if not holders:
            yield _channel_of(value, directory) or replace(default), value.get("messages")
    else:
        yield default, value


def _is_page(value: Any) -> bool:
    """Whether it is one of several answers that hold messages."""
    return isinstance(value, dict) and isinstance(value.get("messages"), list)


def _merged(channels: Sequence[RawChannel]) -> Sequence[RawChannel]:
    """Each channel once, with all its messages."""
    merged: dict[tuple[str, str], RawChannel] = {}
    for channel in channels:
        known = merged.setdefault((channel.identity, channel.name), channel)
        if known is not channel:
            known.messages = [*known.messages, *channel.messages]
    return tuple(merged.values())


def _without_envelopes(value: Any) -> Any:
    """Messages without the event that brought each of them (https://docs.slack.dev/apis/events-api)."""
    if isinstance(value, list):
        return [_message_of_event(member) for member in value]
    return _message_of_event(value)


def _message_of_event(value: Any) -> Any:
    return value["event"] if isinstance(value, dict) and isinstance(value.get("event"), dict) else value


def is_messages(values: Sequence[Any], *, expected: bool = False) -> bool:
    """Whether a list holds messages of Slack. Where they are `expected` one is enough."""
    if expected:
        return any(map(may_be_message, values))
    objects = [value for value in values if isinstance(value, dict)]
    if not objects:
        return False
    return sum(map(looks_like_message, objects)) >= max(1, len(objects) * _MESSAGE_SHARE)


def _channel_of(value: Mapping[str, Any], directory: Directory) -> RawChannel | None:
    for name in ("channel", "channel_info", "conversation"):
        if isinstance(value.get(name), dict | str) and value[name]:
            return _named(describe(value[name], directory), directory)
    if one_line(value.get("name")):
        return describe({**value, "id": value.get("id") or value.get("channel_id")}, directory)
    for name in ("channel_name", "channel_id"):
        if one_line(value.get(name)):
            return _named(describe(value[name], directory), directory)
    return None


def _named(channel: RawChannel, directory: Directory) -> RawChannel:
    if not channel.identity and channel.name in directory.channels:
        channel.identity, channel.name = channel.name, directory.channels[channel.name]
    return channel


def _by_channel(default: RawChannel, messages: list[Any], directory: Directory) -> list[RawChannel]:
    """Messages that say themselves where they were written, apart by that."""
    apart: dict[str, RawChannel] = {}
    for message in messages:
        place = message.get("channel") if isinstance(message, dict) else None
        if isinstance(place, dict):
            place = place.get("name") or place.get("id")
        key = one_line(place) or one_line(message.get("channel_name") if isinstance(message, dict) else None)
        if key not in apart:
            apart[key] = _named(RawChannel(name=key.removeprefix("#")), directory)
        apart[key].messages.append(message)
    if len(apart) > 1 and not default.name:
        return list(apart.values())
    if not default.name:
        default.name = next(iter(apart.values())).name if apart else ""
    default.messages = messages
    return [default]
