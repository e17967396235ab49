"""Zip files, opened within bounds. Nothing is written to disk, so names are names and never paths."""

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from kbmesh_rpc.errors import DocumentUnreadable

from kbmesh_chunker.documents.reading import Reading

ZIP = "application/zip"

_ENTRY = b"PK\x01\x02"
_END = b"PK\x05\x06"
_END_SEARCHED = 65_535 + 22
_BLOCK = 262_144
_ENCRYPTED = 0x41
# All that Office Open XML allows and that exports use. The others unpack blocks without a bound.
_METHODS = {ZIP_STORED, ZIP_DEFLATED}
_BROKEN = (BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError, ValueError, OverflowError)


@dataclass(frozen=True, kw_only=True)
class Archive:
    """The entries of a zip file. Folders are not among them."""

    reading: Reading
    media_type: str
    """What errors name."""
    _zip: ZipFile = field(repr=False)
    _entries: Mapping[str, ZipInfo] = field(repr=False)

    def names(self) -> Sequence[str]:
        """In the order of the archive's directory."""
        return tuple(self._entries)

    def size(self, name: str) -> int:
        """How many bytes the entry has unpacked, as the directory says. Raises KeyError."""
        return self._entries[name].file_size

    def read(self, name: str) -> bytes:
        """The bytes of an entry, taken into account as they are unpacked.

        Raises KeyError where there is none, DocumentTooLarge where it unpacks to more than is left for this file, and
        DocumentUnreadable where it is encrypted, damaged, or longer than the directory says.
        """
        entry = self._entries[name]
        if entry.flag_bits & _ENCRYPTED:
            raise DocumentUnreadable(self.media_type, f"{name[:200]!r} is encrypted")
        if entry.compress_type not in _METHODS:
            raise DocumentUnreadable(
                self.media_type, f"{name[:200]!r} is packed by method {entry.compress_type}, which is not read"
            )
        # What the directory says is checked first, so that an honest bomb costs nothing.
        self.reading.spend_text(entry.file_size)
        blocks = []
        try:
            with self._zip.open(entry) as stream:
                while block := stream.read(_BLOCK):
                    self.reading.checkpoint()
                    blocks.append(block)
        except _BROKEN as error:
            raise DocumentUnreadable(self.media_type, f"{name[:200]!r} is damaged: {error}") from error
        data = b"".join(blocks)
        if len(data) != entry.file_size:
            raise DocumentUnreadable(self.media_type, f"{name[:200]!r} has not the length that the archive says")
        return data


def open_archive(data: bytes, reading: Reading, *, media_type: str = ZIP) -> Archive:
    """Opens a zip file that is in memory.

    Raises DocumentUnreadable where it is damaged, has more entries than a file may have parts, or two of one name.
    """
    # Counted before the directory is read, which makes an object of some hundred bytes for each entry.
    if _count(data) > reading.limits.max_parts:
        raise DocumentUnreadable(media_type, f"it has more than {reading.limits.max_parts} entries")
    try:
        opened = ZipFile(BytesIO(data))
    except (*_BROKEN, KeyError, IndexError) as error:
        raise DocumentUnreadable(media_type, f"it is no zip file that can be read: {error}") from error
    entries: dict[str, ZipInfo] = {}
    for entry in opened.infolist():
        if entry.is_dir():
            continue
        if entry.filename in entries:
            raise DocumentUnreadable(media_type, f"it has two entries of the name {entry.filename[:200]!r}")
        entries[entry.filename] = entry
    return Archive(reading=reading, media_type=media_type, _zip=opened, _entries=entries)


def _count(data: bytes) -> int:
    """How many entries the directory has at most."""
    end = data.rfind(_END, max(0, len(data) - _END_SEARCHED))
    if end < 0 or end + 22 > len(data):
        return 0
    (size,) = struct.unpack_from("<L", data, end + 12)
    start = end - size if size <= end else 0
    return data.count(_ENTRY, start, end)
