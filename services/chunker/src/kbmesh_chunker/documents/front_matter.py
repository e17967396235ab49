"""The block at the head of a Markdown file in which it says what it is: YAML, or TOML."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, time
from typing import Any

import yaml

MAX_CHARACTERS = 32_768
MAX_ENTRIES = 64
MAX_VALUE = 1_000

_OPENING = re.compile(r"\ufeff?(?:---|(\+\+\+))[ \t]*(?:\r\n?|\n)")
_CLOSING = re.compile(r"^(?:---|\.\.\.)[ \t]*(?:\r\n?|\n|\Z)", re.MULTILINE)
_CLOSING_TOML = re.compile(r"^\+\+\+[ \t]*(?:\r\n?|\n|\Z)", re.MULTILINE)
_COMMENTS = re.compile(r"(?:[ \t]*#[^\n]*\n)*")
_KEY = re.compile(r"\s*[\w-]+[ \t]*[:=]")
_PAIR = re.compile(r"([\w][\w.-]{0,100})[ \t]*[:=](?:[ \t]+|$)(.*)")


class _PlainLoader(yaml.BaseLoader):
    """YAML of which every value is the text that was written: a version 1.20 is no number, `NO` is a country.

    Without aliases: a few lines of them would stand for gigabytes.
    """

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        return super().compose_node(parent, index)


@dataclass(frozen=True, kw_only=True)
class FrontMatter:
    """The block, where there is one."""

    end: int = 0
    """Where the rest of the text begins; 0 without a block."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Keys and values as they are written; lists of plain values are joined by commas, deeper things are left out."""
    broken: bool = False
    """Whether the block is not YAML or TOML that can be read. Of such a block, each line of a key and a value was
    read alone."""


def read_front_matter(text: str) -> FrontMatter:
    """Finds the block between two lines of three hyphens, or of three plus signs, at the very start. A block without an
    end is none."""
    opening = _OPENING.match(text)
    if opening is None:
        return FrontMatter()
    # A carriage return alone ends a line for Markdown, but not for `^`.
    head = text[: opening.end() + MAX_CHARACTERS].replace("\r\n", " \n").replace("\r", "\n")
    toml = opening.group(1) is not None
    closing = (_CLOSING_TOML if toml else _CLOSING).search(head, opening.end())
    if closing is None:
        return FrontMatter()
    block = head[opening.end() : closing.start()]
    try:
        loaded = _load_toml(block) if toml else yaml.load(block, Loader=_PlainLoader)  # noqa: S506 - it makes texts only
    except (yaml.YAMLError, ValueError, RecursionError):
        # A rule at the head of a text looks like the opening of a block; only keys make it one.
        if _KEY.match(block) is None:
            return FrontMatter()
        return FrontMatter(end=closing.end(), metadata=_plain(_by_line(block)), broken=True)
    if not loaded and _COMMENTS.fullmatch(block):
        # A heading between two rules has empty lines around it.
        return FrontMatter(end=closing.end())
    if not isinstance(loaded, dict):
        return FrontMatter()
    return FrontMatter(end=closing.end(), metadata=_plain(loaded))


def _load_toml(block: str) -> dict[str, Any]:
    return tomllib.loads(block, parse_float=str)


def _by_line(block: str) -> dict[str, str]:
    """The lines at the margin that are a key and a value."""
    found: dict[str, str] = {}
    for line in block.split("\n"):
        pair = _PAIR.fullmatch(line.rstrip())
        if pair is None:
            continue
        value = pair.group(2).strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        if not value.startswith(tuple("[{&*!|>")):
            # What these begin is no plain value.
            found.setdefault(pair.group(1), value)
    return found


def _plain(loaded: Mapping[Any, Any]) -> dict[str, str]:
    metadata: dict[str, str] = {}
    for key, value in loaded.items():
        written = _write(value)
        if written is not None and key and isinstance(key, str) and len(metadata) < MAX_ENTRIES:
            metadata[key[:MAX_VALUE]] = written[:MAX_VALUE]
    return metadata


def _write(value: Any) -> str | None:
    """A plain value, or a list of such; None for what is deeper."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, list):
        items = [None if isinstance(item, list) else _write(item) for item in value]
        written = [item for item in items if item is not None]
        return ", ".join(written) if len(written) == len(items) else None
    return None
