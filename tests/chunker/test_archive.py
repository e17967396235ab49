"""Zip files that are honest, damaged, or made to do harm."""

import io
import struct
import zipfile

import pytest
from kbmesh_chunker.documents.archive import Archive, open_archive
from kbmesh_chunker.documents.reader import read_documents
from kbmesh_chunker.documents.reading import Reading, ReadingLimits
from kbmesh_rpc.errors import DocumentTooLarge, DocumentUnreadable


def zipped(entries: dict[str, bytes], *, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return data.getvalue()


def opened(data: bytes, **limits: float) -> Archive:
    return open_archive(data, Reading.begin(read_documents, ReadingLimits(**limits)))


def test_entries_are_read_by_their_names() -> None:
    archive = opened(zipped({"folder/": b"", "folder/a.txt": b"one", "../b.txt": b"two"}))
    assert archive.names() == ("folder/a.txt", "../b.txt")
    assert archive.read("../b.txt") == b"two"
    assert archive.size("folder/a.txt") == 3
    with pytest.raises(KeyError):
        archive.read("c.txt")


def test_what_unpacks_to_too_much_is_refused_before_it_is_unpacked() -> None:
    bomb = zipped({"a": b"\0" * 3_000_000, "b": b"small"})
    archive = opened(bomb, max_text_bytes=1_000_000)
    with pytest.raises(DocumentTooLarge):
        archive.read("a")


def test_all_that_is_unpacked_counts_together() -> None:
    archive = opened(zipped({"a": b"x" * 600, "b": b"y" * 600}), max_text_bytes=1_000)
    archive.read("a")
    with pytest.raises(DocumentTooLarge):
        archive.read("b")


def test_an_entry_that_is_longer_than_it_says_is_refused() -> None:
    data = zipped({"a": b"\0" * 3_000_000})
    lie = data.replace(struct.pack("<L", 3_000_000), struct.pack("<L", 10))
    with pytest.raises(DocumentUnreadable):
        opened(lie).read("a")


def test_an_entry_that_is_shorter_than_it_says_is_refused() -> None:
    data = zipped({"a": b"\0" * 3_000})
    lie = data.replace(struct.pack("<L", 3_000), struct.pack("<L", 4_000))
    with pytest.raises(DocumentUnreadable):
        opened(lie).read("a")


def test_more_entries_than_a_file_may_have_parts_are_refused() -> None:
    data = zipped({f"{number}": b"" for number in range(30)})
    assert len(opened(data, max_parts=30).names()) == 30
    with pytest.raises(DocumentUnreadable):
        opened(data, max_parts=29)


def test_two_entries_of_one_name_are_refused() -> None:
    data = zipped({"a.txt": b"one", "b.txt": b"two"}).replace(b"b.txt", b"a.txt")
    with pytest.raises(DocumentUnreadable):
        opened(data)


def test_encrypted_entries_are_refused() -> None:
    data = bytearray(zipped({"a": b"secret"}))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    with pytest.raises(DocumentUnreadable, match="encrypted"):
        opened(bytes(data)).read("a")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_that_unpack_without_a_bound_are_refused(method: int) -> None:
    with pytest.raises(DocumentUnreadable):
        opened(zipped({"a": b"x" * 100}, method=method)).read("a")


@pytest.mark.parametrize(
    "data", [b"", b"PK\x03\x04", b"PK\x05\x06", b"PK\x05\x06" + b"\xff" * 18, b"no zip at all" * 9]
)
def test_what_is_no_zip_file_is_refused(data: bytes) -> None:
    with pytest.raises(DocumentUnreadable):
        opened(data)


def test_a_damaged_zip_file_never_fails_in_another_way() -> None:
    data = zipped({"a.txt": b"one two three " * 50, "b/c.txt": bytes(range(256)) * 4})
    for place in range(0, len(data), 3):
        for damaged in (data[:place], data[:place] + b"\xff" + data[place + 1 :], data[:place] + data[place + 5 :]):
            try:
                archive = opened(damaged)
                for name in archive.names():
                    archive.read(name)
            except (DocumentUnreadable, DocumentTooLarge):
                pass
