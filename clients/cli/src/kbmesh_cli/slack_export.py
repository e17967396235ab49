"""A Slack export in a folder, or in a zip file that is too large for one document: a document for each channel.

What is sent of a channel is a small export of its own: its days, and of the lists of users and channels only what they
speak of, so that it stays the same while other channels change.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo, is_zipfile
from zipfile import Path as ZipPath

Folder = Path | ZipPath

USERS = "users.json"
CHANNEL_LISTS = ("channels.json", "groups.json", "dms.json", "mpims.json")
LISTS = frozenset({USERS, *CHANNEL_LISTS, "integration_logs.json"})
"""Files of an export that are no documents of their own."""
MAX_PACKING = 8
"""A channel of more than this many times the limit is not packed to see whether it fits."""
_DAY_FILE = re.compile(r"\d{4}-\d{2}-\d{2}\.json")
_ID = re.compile(rb"\b[A-Z][A-Z0-9]{1,20}\b")
_USER_FIELDS = ("id", "name", "real_name", "is_bot", "deleted", "profile")
_PROFILE_FIELDS = ("display_name", "real_name", "bot_id")
_CHANNEL_FIELDS = ("id", "name", "topic", "purpose", "members", "user", "is_im", "is_mpim")


@dataclass(frozen=True, kw_only=True)
class SlackChannel:
    """A channel of an export, still to be packed."""

    export: Folder
    name: str
    """Of its folder."""

    def pack(self, *, max_bytes: int) -> bytes | None:
        """A zip file with the channel, the same bytes for the same content; None where it is more than `max_bytes`.

        Raises OSError where a file cannot be read.
        """
        days: dict[str, bytes] = {}
        room = max_bytes * MAX_PACKING
        for file in _children(self.export / self.name):
            if file.is_file() and file.name.endswith(".json"):
                days[f"{self.name}/{file.name}"] = content = file.read_bytes()
                room -= len(content)
                if room < 0:
                    return None
        ids = {found.decode() for content in days.values() for found in _ID.findall(content)}
        lists = {name: self._channels(name, ids) for name in CHANNEL_LISTS}
        # Last: who is in a conversation is known by now.
        lists[USERS] = [_user(entry) for entry in self._entries(USERS) if entry.get("id") in ids]
        packed = BytesIO()
        with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
            for name, entries in lists.items():
                if entries:
                    # ZipInfo has no time of its own, which would make the same content other bytes.
                    archive.writestr(ZipInfo(name), json.dumps(entries, sort_keys=True), ZIP_DEFLATED)
            for name, content in days.items():
                archive.writestr(ZipInfo(name), content, ZIP_DEFLATED)
        return packed.getvalue() if packed.tell() <= max_bytes else None

    def _channels(self, name: str, ids: set[str]) -> list[dict[str, Any]]:
        """This channel and the names of those that it speaks of. Adds who is in it to `ids`."""
        kept = []
        for entry in self._entries(name):
            if self.name in (entry.get("name"), entry.get("id")):
                kept.append(_fields(entry, _CHANNEL_FIELDS))
                if name in {"dms.json", "mpims.json"}:
                    ids.update(_ids(entry.get("members")))
            elif entry.get("id") in ids:
                kept.append(_fields(entry, ("id", "name")))
        return kept

    def _entries(self, name: str) -> list[dict[str, Any]]:
        """The entries of a list; none where it is broken: the channel's days can be read without it."""
        file = self.export / name
        if not file.is_file():
            return []
        try:
            entries = json.loads(file.read_bytes())
        except (ValueError, RecursionError):
            return []
        found = entries if isinstance(entries, list) else []
        return [entry for entry in found if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


def slack_channels(folder: Folder) -> Sequence[SlackChannel]:
    """The channels of the export that a folder is; none where it is none."""
    if not any((folder / name).is_file() for name in (USERS, *CHANNEL_LISTS)):
        return ()
    return tuple(SlackChannel(export=folder, name=child.name) for child in _children(folder) if _has_days(child))


def slack_channels_in_zip(path: Path) -> Sequence[SlackChannel]:
    """The channels of the export in a zip file, also in a folder of it; none where it is no such file."""
    if not is_zipfile(path):
        return ()
    try:
        root = ZipPath(ZipFile(path))
        return slack_channels(root) or next(filter(None, map(slack_channels, _children(root))), ())
    except (BadZipFile, OSError, ValueError):
        return ()


def _children(folder: Folder) -> Sequence[Any]:
    return sorted(folder.iterdir(), key=lambda child: child.name) if folder.is_dir() else ()


def _has_days(folder: Folder) -> bool:
    return any(_DAY_FILE.fullmatch(child.name) for child in _children(folder))


def _user(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Names alone: nobody's address or telephone number is sent."""
    user = _fields(entry, _USER_FIELDS)
    profile = entry.get("profile")
    return {**user, "profile": _fields(profile, _PROFILE_FIELDS) if isinstance(profile, dict) else {}}


def _fields(entry: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: entry[name] for name in names if name in entry}


def _ids(members: object) -> Iterable[str]:
    return [member for member in members if isinstance(member, str)] if isinstance(members, list) else []
