"""A list of files to take in, in a file: JSON lines that many workers share."""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from kbmesh_client import IngestOutcome, IngestResult, ItemError

from kbmesh_cli.errors import CliError
from kbmesh_cli.sources import SourceFile

COMPLETION_INDEX = "JOB_COMPLETION_INDEX"
"""Environment variable in which an Indexed Job of Kubernetes tells a pod its number, from 0."""

_SHARD = re.compile(r"(?:(\d+)?/)?(\d+)")
_URI = re.compile(r"(?:(?=file:/)|(?=[^:]+://))([A-Za-z][A-Za-z0-9+.-]*):")
"""A scheme (RFC 3986), where what follows is no path of this machine: a colon in a file's name makes none."""
_TEXTS = ("title", "author", "media_type", "source_type")
_LISTS = ("principals", "tags")
_KEYS = {"external_id", "path", "uri", "metadata", "created_at", *_TEXTS, *_LISTS}


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One of `count` parts of a list; every document is in exactly one, wherever it stands in the list."""

    index: int
    """From 0."""
    count: int

    def has(self, external_id: str) -> bool:
        """Whether the document is in this part: by the SHA-256 of its name, so that each worker finds the same."""
        digest = hashlib.sha256(external_id.encode("utf-8", "backslashreplace")).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.index

    @classmethod
    def parse(cls, text: str, environment: Mapping[str, str] = os.environ) -> "Shard":
        """Reads "i/n", or "n" where the environment says i. Raises CliError."""
        found = _SHARD.fullmatch(text.strip())
        if found is None:
            raise CliError("USAGE", f"--shard {text!r} is neither I/N nor N")
        index = found[1] if found[1] is not None else environment.get(COMPLETION_INDEX, "")
        if not index.isdecimal():
            raise CliError("USAGE", f"--shard {text!r} names no index, and {COMPLETION_INDEX} is not set to one")
        shard = cls(index=int(index), count=int(found[2]))
        if not shard.count:
            raise CliError("USAGE", f"--shard {text!r}: there must be at least one part")
        if shard.index >= shard.count:
            raise CliError("USAGE", f"--shard {shard.index}/{shard.count}: the index must be 0 to {shard.count - 1}")
        return shard


@dataclass(frozen=True, kw_only=True)
class _Entry:
    external_id: str
    path: str
    described: Mapping[str, Any] = field(default_factory=dict)


def read_manifest(path: Path, shard: Shard | None) -> Iterator[SourceFile | IngestResult]:
    """The files of this part of the list, line by line as they are asked for. A line that cannot be used is the failed
    result of the document that it would name; it fails alone, in the part that its place in the list falls into.

    Raises CliError where the list cannot be read.
    """
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    entry = _entry(line)
                    source = _source(entry, path)
                except ValueError as error:
                    name = f"{path.name}:{number}"
                    if shard is None or shard.has(name):
                        yield _failed(name, "INVALID_FIELD", f"line {number} of {path}: {error}", field="manifest")
                    continue
                if shard is not None and not shard.has(entry.external_id):
                    continue
                yield source
    except OSError as error:
        raise CliError("FILE_NOT_FOUND", f"{path} cannot be read: {error.strerror or error}") from error


def count_manifest(path: Path, shard: Shard | None) -> int | None:
    """How many documents this part of the list has. None where it can be read once only, as from a pipe."""
    return sum(1 for _ in read_manifest(path, shard)) if path.is_file() or not path.exists() else None


def _entry(line: str) -> _Entry:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"is no JSON: {error.msg}") from error
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    if isinstance(value, str):
        value = {"path": value}
    if not isinstance(value, dict):
        raise ValueError("is neither an object nor a path")
    if unknown := sorted(set(value) - _KEYS):
        raise ValueError(f"has unknown keys: {', '.join(unknown)}")
    metadata = value.get("metadata", {})
    texts = [value.get(key, "") for key in ("external_id", "path", "uri", *_TEXTS)]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("has a value that is no text")
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError("has metadata that is no map of texts")
    place = value.get("path") or value.get("uri", "")
    if not place:
        raise ValueError("has neither path nor uri")
    described = {key: value[key] for key in _TEXTS if value.get(key)}
    if metadata:
        described["metadata"] = metadata
    # An empty list of principals says that it is for everybody, whoever the run is for.
    described |= {key: _names(key, value[key]) for key in _LISTS if key in value}
    if value.get("created_at"):
        described["created_at"] = _moment(value["created_at"])
    return _Entry(external_id=value.get("external_id") or place, path=place, described=described)


def _names(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"has {key} that are no list of texts")
    return tuple(value)


def _moment(value: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise ValueError("has a created_at that is no date or time of ISO 8601") from error
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _source(entry: _Entry, manifest: Path) -> SourceFile | IngestResult:
    place = entry.path
    if (named := _URI.match(place)) is not None:
        parts = urlsplit(place)
        far = f"{named[1]}://" if parts.scheme != "file" else f"file://{parts.netloc}"
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            return _failed(
                entry.external_id,
                "FEATURE_UNSUPPORTED",
                f"{far} cannot be read: a manifest names paths and file:// URIs of this machine. Copy the document "
                "here, or mount what holds it, and name the file",
                feature=f"{parts.scheme} URIs",
                allowed="path, file:// of this machine",
            )
        place = unquote(parts.path)
    return SourceFile(external_id=entry.external_id, path=manifest.parent / place, described=entry.described)


def _failed(external_id: str, reason: str, message: str, **metadata: str) -> IngestResult:
    return IngestResult(
        external_id=external_id,
        document_id="",
        outcome=IngestOutcome.FAILED,
        error=ItemError(reason=reason, message=message, metadata=metadata),
    )
