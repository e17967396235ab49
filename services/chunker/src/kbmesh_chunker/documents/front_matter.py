"""The YAML block at the head of a Markdown file."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import yaml

MAX_CHARACTERS = 32_768
MAX_ENTRIES = 64
MAX_VALUE = 1_000

_OPENING = re.compile(r"\ufeff?---[ \t]*(?:\r\n?|\n)")
_CLOSING = re.compile(r"^(?:---|\.\.\.)[ \t]*(?:\r\n?|\n|\Z)", re.MULTILINE)
_COMMENTS = re.compile(r"(?:[ \t]*#[^\n]*\n)*")
_KEY = re.compile(r"\s*[\w-]+[ \t]*:")


class _PlainLoader(yaml.SafeLoader):
    """Safe YAML without aliases: a few lines of them would stand for gigabytes."""

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
    """Keys and values; lists of plain values are joined by commas, deeper things are left out."""
    broken: bool = False
    """Whether the block is not YAML that can be read. It is then a block of text like any other."""


def read_front_matter(text: str) -> FrontMatter:
    """Finds the block between two lines of three hyphens at the very start. A block without an end is none."""
    opening = _OPENING.match(text)
    if opening is None:
        return FrontMatter()
    # A carriage return alone ends a line for Markdown, but not for `^`.
    head = text[: opening.end() + MAX_CHARACTERS].replace("\r\n", " \n").replace("\r", "\n")
    closing = _CLOSING.search(head, opening.end())
    if closing is None:
        return FrontMatter()
    try:
        loaded = yaml.load(head[opening.end() : closing.start()], Loader=_PlainLoader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError):
        # A rule at the head of a text looks like the opening of a block; only keys make it one.
        keys = _KEY.match(head, opening.end()) is not None
        return FrontMatter(end=closing.end() if keys else 0, broken=keys)
    if loaded is None and _COMMENTS.fullmatch(head, opening.end(), closing.start()):
        # A heading between two rules has empty lines around it.
        return FrontMatter(end=closing.end())
    if not isinstance(loaded, dict):
        return FrontMatter()
    return FrontMatter(end=closing.end(), metadata=_plain(loaded))


def _plain(loaded: dict[Any, Any]) -> dict[str, str]:
    metadata: dict[str, str] = {}
    for key, value in loaded.items():
        written = _write(value)
        if written and isinstance(key, str) and len(metadata) < MAX_ENTRIES:
            metadata[key[:MAX_VALUE]] = written[:MAX_VALUE]
    return metadata


def _write(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list) and all(isinstance(item, str | int | float | date) for item in value):
        return ", ".join(_write(item) for item in value)
    return ""
