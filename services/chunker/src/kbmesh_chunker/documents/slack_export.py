"""The zip file of a Slack export: lists of users and channels, and a folder of day files for each channel.

https://slack.com/help/articles/220556107-How-to-read-Slack-data-exports
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kbmesh_rpc.errors import DocumentTooLarge, DocumentUnreadable, Reason, UnsupportedMediaType

from kbmesh_chunker.documents.archive import ZIP, Archive
from kbmesh_chunker.documents.decoding import decode
from kbmesh_chunker.documents.slack_channels import RawChannel, describe, is_messages, load_json
from kbmesh_chunker.documents.slack_directory import Directory, dicts
from kbmesh_chunker.documents.source import Warning  # noqa: A004 - the contract's name

USERS = "users.json"
CHANNEL_LISTS = ("channels.json", "groups.json", "dms.json", "mpims.json")
DAY_FILE = re.compile(r"\d{4}-\d{2}-\d{2}\.json", re.IGNORECASE)
_KNOWN = re.compile(r"(?:^|/)(?:integration_logs|canvases|lists|org_users|bookmarks)\.json$|^__MACOSX/|(?:^|/)\.")
_NAMED = 8


@dataclass(frozen=True, kw_only=True)
class SlackExport:
    """What an export holds."""

    channels: Sequence[RawChannel]
    """In the order of the export's lists, those that are in none behind them by name."""
    directory: Directory
    warnings: tuple[Warning, ...]


def read_export(archive: Archive) -> SlackExport:
    """Reads an export. A file that is broken fails alone, with a warning that names it.

    Raises UnsupportedMediaType where the archive is no export, and what ends the reading as a whole.
    """
    names = [name for name in archive.names() if not _KNOWN.search(name)]
    root = _root(names)
    if root is None:
        raise UnsupportedMediaType(ZIP)
    loader = _Loader(archive)
    directory = Directory()
    directory.add_users(loader.load(root + USERS, names))
    listed = [
        channel
        for name in CHANNEL_LISTS
        for channel in dicts(loader.load(root + name, names))
        if isinstance(channel.get("id") or channel.get("name"), str)
    ]
    directory.add_channels(listed)
    folders = _folders(names, root)
    channels = []
    for channel in listed:
        described = describe(channel, directory)
        keys = dict.fromkeys(key for key in (channel.get("name"), channel.get("id")) if isinstance(key, str))
        files = [file for key in keys for file in folders.pop(key, ())]
        channels.append(_with_messages(described, files, loader))
    channels.extend(_with_messages(RawChannel(name=folder), folders[folder], loader) for folder in sorted(folders))
    if not listed and not any(channel.messages for channel in channels):
        raise UnsupportedMediaType(ZIP)
    lists = {root + name for name in (USERS, *CHANNEL_LISTS)}
    unread = [name for name in names if name not in loader.read and name not in lists]
    return SlackExport(channels=channels, directory=directory, warnings=(*loader.warnings, *_not_read(unread)))


class _Loader:
    """Reads files of an archive, each of which fails alone."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self.warnings: list[Warning] = []
        self.read: set[str] = set()

    def load(self, name: str, names: Sequence[str]) -> Any:
        """The JSON of a file; None where there is none or it is broken."""
        return self.load_file(name) if name in names else None

    def load_file(self, name: str) -> Any:
        """The JSON of a file that is there; None where it is broken."""
        self.read.add(name)
        try:
            data = self._archive.read(name)
            return load_json(decode(data, charset="", media_type="application/json").text)
        except DocumentTooLarge:
            raise
        except (DocumentUnreadable, ValueError) as error:
            self._archive.reading.checkpoint()
            self.warn(name, f"{name} was not read: {error}")
            return None

    def warn(self, name: str, message: str) -> None:
        self.warnings.append(Warning(reason=Reason.DOCUMENT_UNREADABLE, message=message, metadata={"part": name}))


def _root(names: Sequence[str]) -> str | None:
    """The folder around the export, with its slash; empty where there is none. None where nothing is an export's."""
    listed = [name for name in names if name.rpartition("/")[2] in (USERS, *CHANNEL_LISTS)]
    if listed:
        top = min(listed, key=lambda name: (name.count("/"), name))
        return top[: len(top) - len(top.rpartition("/")[2])]
    days = [name.split("/") for name in names if "/" in name and DAY_FILE.fullmatch(name.rpartition("/")[2])]
    if not days:
        return None
    shortest = min(days, key=len)
    return "".join(f"{part}/" for part in shortest[:-2])


def _folders(names: Sequence[str], root: str) -> dict[str, list[str]]:
    """The JSON files of each folder, by its name, in order of their days."""
    folders: dict[str, list[str]] = {}
    for name in sorted(names):
        folder, _, file = name.removeprefix(root).partition("/")
        if name.startswith(root) and file.lower().endswith(".json") and "/" not in file:
            folders.setdefault(folder, []).append(name)
    return folders


def _with_messages(channel: RawChannel, files: Sequence[str], loader: _Loader) -> RawChannel:
    for name in files:
        value = loader.load_file(name)
        if value is None:
            continue
        if isinstance(value, dict) and isinstance(value.get("messages"), list):
            value = value["messages"]
        is_day = DAY_FILE.fullmatch(name.rpartition("/")[2]) is not None
        if isinstance(value, list) and (not value or is_messages(value, expected=is_day)):
            channel.messages.extend(value)
        elif is_day:
            loader.warn(name, f"{name} was not read: it is no list of messages")
        else:
            loader.read.discard(name)
    return channel


def _not_read(names: Sequence[str]) -> tuple[Warning, ...]:
    if not names:
        return ()
    shown = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
    message = f"{len(names)} files of the export hold no messages and were not read: {shown}"
    return (Warning(reason=Reason.UNSUPPORTED_MEDIA_TYPE, message=message, metadata={"files": str(len(names))}),)
