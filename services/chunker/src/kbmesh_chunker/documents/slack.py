"""Slack: a zip file of an export, JSON of messages, or a conversation that was pasted; each channel to a text.

A message reads alone, `Ada, 2016-01-14 09:22: text`, with times in UTC; replies follow the message that they answer and
begin with an arrow. Who came and went is left out and counted.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from kbmesh_rpc.errors import DocumentUnreadable, Reason

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

    Where no channel has a message, one of no text. Raises UnsupportedMediaType where the archive is no export, and
    DocumentUnreadable where nothing of it could be read.
    """
    assert isinstance(source.content, bytes)
    export = read_export(open_archive(source.content, reading))
    return _write(source, export.channels, export.directory, export.warnings, reading)


def read_slack_json(source: SourceDocument, reading: Reading) -> Sequence[TextDocument]:
    """The channels of which a JSON text holds messages; nothing where it is not of Slack.

    Where none of the messages has a text, or all are deleted, one channel of no text.
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
    told = source.grammar is Grammar.SLACK
    channels = channels_of(value, source.filename, directory, told=told)
    if not channels and isinstance(value, dict) and (told or source.media_type == JSON_LINES):
        channels = channels_of([value], source.filename, directory, told=told)
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
    gone = LeftOut()
    for channel in channels:
        reading.checkpoint()
        messages, left_out = assemble(channel.messages, directory, reading.checkpoint)
        if messages:
            documents.append(_document(source, channel, messages, left_out, reading))
            continue
        gone.add(left_out)
        if left_out.broken:
            warnings = (*warnings, _unread(f"{channel.title or 'a channel'} holds {left_out.broken} broken messages"))
    if not documents:
        if any(warning.reason is Reason.DOCUMENT_UNREADABLE for warning in warnings):
            # What was said before stays: nobody can tell that it was taken back.
            raise DocumentUnreadable(source.media_type, warnings[0].message)
        documents.append(_nothing(source, channels, gone))
    return (replace(documents[0], warnings=(*warnings, *documents[0].warnings)), *documents[1:])


def _nothing(source: SourceDocument, channels: Sequence[RawChannel], gone: LeftOut) -> TextDocument:
    """What was read and says nothing, or nothing any more. It takes the place of what was said before."""
    named = RawChannel() if len(channels) != 1 else channels[0]
    counts = _counts(gone)
    why = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
    message = f"{_clean(named.title) or 'it'} holds no messages to read" + (f": {why}" if why else "")
    return TextDocument(
        text="",
        media_type=source.media_type,
        source_type=source.source_type or SourceType.SLACK,
        grammar=Grammar.SLACK,
        abreast=True,
        filename=source.filename,
        title=_clean(named.title),
        metadata={**_where(named), "messages": "0", **counts},
        layout=SlackLayout(channel=_clean(named.name), messages=()),
        warnings=(Warning(reason=Reason.CONTENT_LEFT_OUT, message=message, metadata=counts),),
    )


def _where(channel: RawChannel) -> dict[str, str]:
    known = (("channel", _clean(channel.name)), ("channel_id", _clean(channel.identity)))
    return {key: value for key, value in known if value}


def _counts(left_out: LeftOut) -> dict[str, str]:
    counts = (
        ("events_left_out", left_out.events),
        ("deleted_messages", left_out.deleted),
        ("hidden_messages", left_out.hidden),
        ("messages_without_text", left_out.silent),
    )
    return {key: str(count) for key, count in counts if count}


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
    where = _where(channel)
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
        metadata={**where, **_described(placed), **_counts(left_out)},
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
