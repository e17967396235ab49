"""Files to take in: found in folders, named in a stable way, read one at a time."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from kbmesh_client import MAX_DOCUMENT_BYTES, IngestDocument, IngestOutcome, IngestResult, ItemError

from kbmesh_cli.errors import CliError
from kbmesh_cli.slack_export import LISTS, SlackChannel, slack_channels, slack_channels_in_zip

SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})
"""Never entered unless they are named. Hidden folders (.git, .venv) are not entered either."""


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """A file that is to be taken in."""

    external_id: str
    """Its name in the knowledge base."""
    path: Path
    """Where it is."""
    channel: SlackChannel | None = None
    """What is taken in, where it is a channel of a Slack export and no file."""
    described: Mapping[str, Any] = field(default_factory=dict)
    """What is known of it besides: fields of `IngestDocument`."""


def find_files(paths: Sequence[Path], *, base: Path | None = None) -> list[SourceFile]:
    """Gives every file that is named and every file in every folder that is named, each once, sorted by folder.

    A file is named by the path as it was given ("docs/a.md" of `ingest docs`), so the same command from the same place
    names it the same; or relative to `base`. Hidden files and folders and the usual junk are skipped unless named.
    A folder that is a Slack export, and a zip file of one that is too large for a document, gives its channels.
    Raises CliError for a path that there is not, or one outside `base`.
    """
    found: dict[Path, SourceFile] = {}
    for given in paths:
        if not given.exists():
            raise CliError("FILE_NOT_FOUND", f"there is no {given}")
        for path, channel in _walk(given) if given.is_dir() else _file(given):
            name = path if channel is None else path.with_name(f"{channel.name}.slack.zip")
            source = SourceFile(external_id=_name(name, base), path=path, channel=channel)
            found.setdefault(path.resolve(), source)
    return list(found.values())


def _walk(folder: Path) -> Iterator[tuple[Path, SlackChannel | None]]:
    for parent, folders, files in os.walk(folder):
        channels = {channel.name: channel for channel in slack_channels(Path(parent))}
        for name, channel in channels.items():
            yield Path(parent, name), channel
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and name not in SKIPPED_FOLDERS and name not in channels
        )
        for name in sorted(files):
            path = Path(parent, name)
            if not name.startswith(".") and path.is_file() and not (channels and name in LISTS):
                yield from _file(path)


def _file(path: Path) -> Iterator[tuple[Path, SlackChannel | None]]:
    if path.suffix.lower() == ".zip" and path.stat().st_size > MAX_DOCUMENT_BYTES:
        channels = slack_channels_in_zip(path)
        yield from ((path / channel.name, channel) for channel in channels)
        if channels:
            return
    yield path, None


def _name(path: Path, base: Path | None) -> str:
    if base is not None:
        try:
            path = path.resolve().relative_to(base.resolve())
        except ValueError as error:
            raise CliError("USAGE", f"{path} is not inside --base {base}") from error
    # Only "." and "//" go; ".." stays, for it may lead over a link.
    name = PurePosixPath(path.as_posix()).as_posix()
    # A file name may hold bytes that are no text; a name that travels may not.
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def read_document(source: SourceFile, *, max_bytes: int) -> IngestDocument | IngestResult:
    """Reads a file. Gives the failed result of one that is too large or cannot be read. An empty one is sent: the mesh
    knows whether it was empty before."""
    if source.channel is not None:
        return _read_channel(source, source.channel, max_bytes=max_bytes)
    try:
        status = source.path.stat()
        if status.st_size > max_bytes:
            return failed(
                source,
                "DOCUMENT_TOO_LARGE",
                f"{status.st_size:,} bytes are more than the limit of {max_bytes:,}",
                limit=str(max_bytes),
                actual=str(status.st_size),
            )
        content = source.path.read_bytes()
    except OSError as error:
        return failed(source, "DOCUMENT_UNREADABLE", f"cannot be read: {error.strerror or error}")
    return IngestDocument(
        external_id=source.external_id,
        content=content,
        filename=PurePosixPath(source.external_id).name,
        uri=source.path.absolute().as_uri(),
        **{"created_at": datetime.fromtimestamp(status.st_mtime, UTC), **source.described},
    )


def _read_channel(source: SourceFile, channel: SlackChannel, *, max_bytes: int) -> IngestDocument | IngestResult:
    try:
        content = channel.pack(max_bytes=max_bytes)
    except OSError as error:
        return failed(source, "DOCUMENT_UNREADABLE", f"cannot be read: {error.strerror or error}")
    if content is None:
        message = f"the channel is more than the limit of {max_bytes:,} bytes, packed"
        return failed(source, "DOCUMENT_TOO_LARGE", message, limit=str(max_bytes))
    return IngestDocument(
        external_id=source.external_id,
        content=content,
        filename=PurePosixPath(source.external_id).name,
        uri=source.path.absolute().as_uri(),
    )


def failed(source: SourceFile, reason: str, message: str, **metadata: str) -> IngestResult:
    """The result of a file that was never sent."""
    return IngestResult(
        external_id=source.external_id,
        document_id="",
        outcome=IngestOutcome.FAILED,
        error=ItemError(reason=reason, message=message, metadata=metadata),
    )
