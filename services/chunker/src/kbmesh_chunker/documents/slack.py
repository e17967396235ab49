"""Slack: a zip file of an export, JSON of messages, or a conversation that was pasted; each channel to a text.

A message reads alone, `Ada, 2016-01-14 09:22: text`, with times in UTC; replies follow the message that they answer and
begin with an arrow. Who came and went is left out and counted.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from kbmesh_rpc.errors import DocumentEmpty, Reason

from kbmesh_chunker.documents.archive import open_archive
from kbmesh_chunker.documents.media_type import JSON_LINES
from kbmesh_chunker.documents.reading import Reading
from kbmesh_chunker.documents.slack_channels import RawChannel, channels_of, load_json, load_lines
from kbmesh_chunker.documents.slack_directory import Directory
from kbmesh_chunker.documents.slack_export import read_export
from kbmesh_chunker.documents.slack_markup import show_seconds
from kbmesh_chunker.documents.slack_messages import ChannelMessage, LeftOut, assemble, timestamp_of, timestamp_order
from kbmesh_chunker.documents.slack_transcript import find_messages
from kbmesh_chunker.documents.source import (
    Grammar,
    SlackLayout,
    SlackMessage,
    SourceDocument,
    SourceType,
    TextDocument,
    Warning,  # noqa: A004 - the contract's name
)

REPLY_MARK = "↳ "
_SEPARATOR = "\n\n"
_MAX_PARTICIPANTS = 50
_ON_ITS_OWN_LINE = ("```", "• ", "> ", "1. ")
# A lone surrogate is no character, and NUL is one that databases refuse.
_NO_TEXT = re.compile("[\ud800-\udfff\x00]")


def read_slack_archive(source: SourceDocument, reading: Reading) -> Sequence[TextDocument]:
    """The channels of an export, one after the other.

    Raises UnsupportedMediaType where the archive is none, and DocumentEmpty where no channel has a message.
    """
    assert isinstance(source.content, bytes)
    export = read_export(open_archive(source.content, reading))
    return _write(source, export.channels, export.directory, export.warnings, reading)


def read_slack_json(source: SourceDocument, reading: Reading) -> Sequence[TextDocument]:
    """The channels of which a JSON text holds messages; nothing where it is not of Slack.

    Raises DocumentEmpty where none of the messages has a text.
    """
    assert isinstance(source.content, str)
    directory = Directory()
    warnings: tuple[Warning, ...] = ()
    try:
        value = load_json(source.content)
    except ValueError:
        value, broken = load_lines(source.content)
        if broken:
            warnings = (_unread(f"{broken} lines are no JSON and were not read"),)
        if broken > len(value):
            return ()
    channels = channels_of(value, source.filename, directory)
    if not channels and isinstance(value, dict) and source.media_type == JSON_LINES:
        channels = channels_of([value], source.filename, directory)
    return _write(source, channels, directory, warnings, reading) if channels else ()


def read_slack_text(source: SourceDocument, reading: Reading) -> Sequence[TextDocument]:
    """A conversation as it was copied from Slack's window, unchanged; nothing where no message is found in it."""
    assert isinstance(source.content, str)
    text = source.content
    if text.lstrip("\ufeff \t\r\n")[:1] in {"[", "{"} and (documents := read_slack_json(source, reading)):
        return documents
    messages = find_messages(text, reading.checkpoint)
    if not messages:
        return ()
    reading.spend_text(len(text))
    return (
        TextDocument(
            text=text,
            media_type=source.media_type,
            source_type=source.source_type or SourceType.SLACK,
            grammar=Grammar.SLACK,
            filename=source.filename,
            metadata=_described(messages),
            layout=SlackLayout(channel="", messages=tuple(messages)),
        ),
    )


def _write(
    source: SourceDocument,
    channels: Sequence[RawChannel],
    directory: Directory,
    warnings: tuple[Warning, ...],
    reading: Reading,
) -> Sequence[TextDocument]:
    documents = []
    for channel in channels:
        reading.checkpoint()
        messages, left_out = assemble(channel.messages, directory, reading.checkpoint)
        if messages:
            documents.append(_document(source, channel, messages, left_out, reading))
        elif left_out.broken:
            warnings = (*warnings, _unread(f"{channel.title or 'a channel'} holds {left_out.broken} broken messages"))
    if not documents:
        raise DocumentEmpty
    return (replace(documents[0], warnings=(*warnings, *documents[0].warnings)), *documents[1:])


def _document(
    source: SourceDocument,
    channel: RawChannel,
    messages: Sequence[ChannelMessage],
    left_out: LeftOut,
    reading: Reading,
) -> TextDocument:
    parts: list[str] = []
    placed: list[SlackMessage] = []
    position = 0
    for message in messages:
        text = _clean(write_message(message))
        reading.spend_text(len(text))
        placed.append(
            SlackMessage(
                start=position,
                end=position + len(text),
                timestamp=message.timestamp,
                thread=message.thread,
                author=_clean(message.author),
                bot=message.bot,
            )
        )
        parts.append(text)
        position += len(text) + len(_SEPARATOR)
    name = _clean(channel.name)
    where = {key: value for key, value in (("channel", name), ("channel_id", _clean(channel.identity))) if value}
    counts = (
        ("events_left_out", left_out.events),
        ("deleted_messages", left_out.deleted),
        ("hidden_messages", left_out.hidden),
    )
    warnings: tuple[Warning, ...] = ()
    if left_out.broken:
        warnings = (_unread(f"{left_out.broken} entries of {channel.title or 'the messages'} are no messages"),)
    about = _clean(channel.about)
    return TextDocument(
        text=_SEPARATOR.join(parts),
        media_type=source.media_type,
        source_type=source.source_type or SourceType.SLACK,
        grammar=Grammar.SLACK,
        abreast=True,
        filename=source.filename,
        title=_clean(channel.title),
        metadata={**where, **_described(placed), **{key: str(count) for key, count in counts if count}},
        chunk_metadata=where,
        context=(about,) if about else (),
        layout=SlackLayout(channel=name, messages=tuple(placed)),
        warnings=warnings,
    )


def write_message(message: ChannelMessage) -> str:
    """`Ada, 2016-01-14 09:22: text`. What is not known is left out."""
    time = show_seconds(message.timestamp.partition(".")[0]) if message.timestamp else ""
    head = ", ".join(part for part in (message.author, time) if part)
    mark = REPLY_MARK if message.is_reply else ""
    between = "" if not head else ":\n" if message.text.startswith(_ON_ITS_OWN_LINE) else ": "
    return f"{mark}{head}{between}{message.text}"


def _described(messages: Sequence[SlackMessage]) -> dict[str, str]:
    authors = list(dict.fromkeys(message.author for message in messages if message.author))
    times = [message.timestamp for message in messages if timestamp_of(message.timestamp)]
    first, last = (min(times, key=timestamp_order), max(times, key=timestamp_order)) if times else ("", "")
    shown = ", ".join(authors[:_MAX_PARTICIPANTS]) + (", …" if len(authors) > _MAX_PARTICIPANTS else "")
    described = {
        "messages": str(len(messages)),
        "participants": shown,
        "first_date": show_seconds(first.partition(".")[0])[:10],
        "last_date": show_seconds(last.partition(".")[0])[:10],
    }
    return {name: value for name, value in described.items() if value}


def _clean(text: str) -> str:
    return _NO_TEXT.sub("\ufffd", text).replace("\r\n", "\n")


def _unread(message: str) -> Warning:
    return Warning(reason=Reason.DOCUMENT_UNREADABLE, message=_clean(message))
