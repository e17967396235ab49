"""Files to take in: found in folders, named in a stable way, read one at a time."""

import os
import stat
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
DANGLING = "a link that leads nowhere"
LINKED_FOLDER = "a link to a folder, which is not followed"
NO_FILE = "a pipe, socket or device"


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


@dataclass(frozen=True, kw_only=True)
class SkippedPath:
    """What is in a folder and is not taken in, though nobody said so."""

    name: str
    """As its document would be called."""
    why: str

    @property
    def kept(self) -> str:
        """What is not missing where files are looked for: the name, or with "/" after it all that is below."""
        return f"{self.name}/" if self.why == LINKED_FOLDER else self.name


def find_files(
    paths: Sequence[Path], *, base: Path | None = None, skipped: list[SkippedPath] | None = None
) -> list[SourceFile]:
    """Gives every file that is named and every file in every folder that is named, each once, sorted by folder.

    A file is named by the path as it was given ("docs/a.md" of `ingest docs`), so the same command from the same place
    names it the same; or relative to `base`. Hidden files and folders and the usual junk are skipped unless named.
    A folder that is a Slack export, and a zip file of one that is too large for a document, gives its channels. A
    folder that cannot be listed is given itself, with "/" after its name: read_document tells why. Links that lead
    nowhere, links to folders, and pipes, sockets and devices are no files: they are added to `skipped`.
    Raises CliError for a path that there is not, or one outside `base`.
    """
    found: dict[Path, SourceFile] = {}
    for given in paths:
        if not given.exists():
            raise CliError("FILE_NOT_FOUND", f"there is no {given}")
        passed: list[tuple[Path, str]] = []
        for path, channel in _walk(given, passed) if given.is_dir() else _file(given):
            name = path if channel is None else path.with_name(f"{channel.name}.slack.zip")
            # A folder that cannot be listed stands for what may be in it; no file is named so.
            ending = "/" if channel is None and path.is_dir() else ""
            source = SourceFile(external_id=_name(name, base) + ending, path=path, channel=channel)
            there = found.get(real := path.resolve())
            # The file's own name is its name, whatever links lead to it.
            if there is None or (there.path.is_symlink() and not path.is_symlink()):
                found[real] = source
        if skipped is not None:
            skipped += [SkippedPath(name=_name(path, base, follow=False), why=why) for path, why in passed]
    return list(found.values())


def _walk(folder: Path, passed: list[tuple[Path, str]]) -> Iterator[tuple[Path, SlackChannel | None]]:
    """Adds what is no file to `passed`, with why."""
    unreadable: list[OSError] = []
    for parent, folders, files in os.walk(folder, onerror=unreadable.append):
        channels = {channel.name: channel for channel in slack_channels(Path(parent))}
        for name, channel in channels.items():
            yield Path(parent, name), channel
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and name not in SKIPPED_FOLDERS and name not in channels
        )
        passed += [(Path(parent, name), LINKED_FOLDER) for name in folders if Path(parent, name).is_symlink()]
        for name in sorted(files):
            path = Path(parent, name)
            if name.startswith(".") or (channels and name in LISTS):
                continue
            if path.is_file():
                yield from _file(path)
            else:
                passed.append((path, DANGLING if path.is_symlink() and not path.exists() else NO_FILE))
    yield from ((Path(error.filename), None) for error in unreadable)


def _file(path: Path) -> Iterator[tuple[Path, SlackChannel | None]]:
    if path.suffix.lower() == ".zip" and path.stat().st_size > MAX_DOCUMENT_BYTES:
        channels = slack_channels_in_zip(path)
        yield from ((path / channel.name, channel) for channel in channels)
        if channels:
            return
    yield path, None


def _name(path: Path, base: Path | None, *, follow: bool = True) -> str:
    if base is not None:
        try:
            # A link that is not followed is called by where it lies.
            real = path.resolve() if follow else path.parent.resolve() / path.name
            path = real.relative_to(base.resolve())
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
        if stat.S_ISDIR(status.st_mode):
            os.listdir(source.path)
            return failed(source, "DOCUMENT_UNREADABLE", "cannot be read: it is a folder")
        if not stat.S_ISREG(status.st_mode):
            # A pipe may wait for ever for somebody who writes, and a device never end.
            return failed(source, "DOCUMENT_UNREADABLE", f"cannot be read: it is {NO_FILE}")
        # Who opens a pipe waits, unless he says that he does not: it may have taken the file's place since.
        with open(os.open(source.path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return failed(source, "DOCUMENT_UNREADABLE", f"cannot be read: it is {NO_FILE}")
            # It may grow, or say nothing of its size.
            content = file.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else error
        return failed(source, "DOCUMENT_UNREADABLE", f"cannot be read: {said}")
    if len(content) > max_bytes:
        size = max(status.st_size, len(content))
        return failed(
            source,
            "DOCUMENT_TOO_LARGE",
            f"{size:,} bytes are more than the limit of {max_bytes:,}",
            limit=str(max_bytes),
            actual=str(size),
        )
    return IngestDocument(
        external_id=source.external_id,
        content=content,
        filename=PurePosixPath(source.external_id).name,
        uri=source.path.absolute().as_uri(),
        **{"created_at": _moment(status.st_mtime), **source.described},
    )


def _moment(seconds: float) -> datetime | None:
    """None where the calendar does not reach that far: file systems do."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


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
