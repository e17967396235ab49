"""Bytes to text, part by part."""

import codecs

from kbmesh_rpc.errors import DocumentUnreadable

from kbmesh_chunker.documents.decoding import CUT_OFF, WESTERN, certain_encoding, decode
from kbmesh_chunker.documents.source import Warning  # noqa: A004 - the contract's name for it

_LONGEST_CHARACTER = 4
_WESTERN_BYTES = {escaped - 0xDC00: character for escaped, character in WESTERN.items()}


class StreamDecoder:
    """Decodes a file that comes in parts, which may end inside a character. Its head decides in what encoding it is."""

    def __init__(self, head: bytes, *, charset: str, media_type: str) -> None:
        """`head` are the first bytes of the file; they are to be given to `decode` too, together and first.

        Raises DocumentUnreadable where they are no text.
        """
        self._media_type = media_type
        self._bytes = 0
        self._foreign: dict[int, str] = {}
        self.warnings: tuple[Warning, ...] = ()
        """What was not certain about the head, and, once the file has ended, about its end."""
        self._declared = False
        certain = certain_encoding(head, charset)
        if certain is not None:
            encoding, self._mark = certain
            errors, self._declared = "strict", True
        else:
            self._mark = 0
            guessed = decode(_whole_characters(head), charset=charset, media_type=media_type)
            self.warnings = guessed.warnings
            encoding, errors = guessed.encoding, "replace"
            if encoding == "windows-1252":
                # Five of its bytes mean nothing to Python; see `decode`.
                encoding, self._foreign = "latin-1", _WESTERN_BYTES
            elif encoding == "utf-8":
                foreign = any("not UTF-8" in warning.message for warning in guessed.warnings)
                errors, self._foreign = ("surrogateescape", WESTERN) if foreign else ("strict", {})
        self.encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)(errors)

    def decode(self, data: bytes, *, final: bool = False) -> str:
        """The text of the next bytes, as far as its characters are complete.

        Raises DocumentUnreadable for bytes that are not what the head is.
        """
        data, self._mark = data[self._mark :], 0
        self._bytes += len(data)
        try:
            text = self._decoder.decode(data, final)
        except UnicodeDecodeError as error:
            if final and not self._declared and error.reason == "unexpected end of data":
                self.warnings = (*self.warnings, CUT_OFF)
                return error.object[: error.start].decode(self.encoding) + "\ufffd"
            place = self._bytes - len(error.object) + error.start
            raise DocumentUnreadable(self._media_type, f"byte {place} is not {self.encoding}") from error
        return text.translate(self._foreign) if self._foreign and not text.isascii() else text


def _whole_characters(head: bytes) -> bytes:
    """Without the bytes of a character of UTF-8 that goes on after the head."""
    for count in range(1, min(_LONGEST_CHARACTER, len(head)) + 1):
        byte = head[-count]
        if byte < 0x80:
            return head
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return head if count >= needed else head[:-count]
    return head
