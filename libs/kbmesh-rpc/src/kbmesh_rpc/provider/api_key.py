"""The key of a vendor's account: from the environment or from a file, and into nothing that is written down."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

LONGEST_KEY_BYTES = 16_384


class ApiKeyError(Exception):
    """There is no key where one was to be, or it is none."""


@dataclass(frozen=True, kw_only=True)
class KeySource:
    """Where a key stands. Without both there is none, for servers that want none."""

    env: str = ""
    """Name of an environment variable."""
    file: Path | None = None
    """A file that holds nothing else; it goes before the environment. Read anew when the key is not taken any more, so
    that it can be changed under a running server."""

    def read(self, environment: Mapping[str, str]) -> SecretStr:
        """The key; blocks. Raises ApiKeyError, which names the place and not what stands there."""
        if self.file is not None:
            try:
                with self.file.open("rb") as opened:
                    content = opened.read(LONGEST_KEY_BYTES + 1)
                text = content.decode("ascii")
            except OSError as error:
                raise ApiKeyError(f"the key's file {self.file} cannot be read: {error.strerror}") from None
            except UnicodeDecodeError:
                raise ApiKeyError(f"the key's file {self.file} holds more than ASCII") from None
            return _checked(text, f"the key's file {self.file}")
        if self.env:
            return _checked(environment.get(self.env, ""), f"the environment variable {self.env}")
        return SecretStr("")


def _checked(text: str, place: str) -> SecretStr:
    key = text.strip()
    if not key:
        raise ApiKeyError(f"{place} holds no key")
    if len(key) > LONGEST_KEY_BYTES or not key.isascii() or not key.isprintable() or " " in key:
        # It goes into a header of HTTP, and what refuses it there would quote it.
        raise ApiKeyError(f"{place} holds something that is no key")
    return SecretStr(key)
