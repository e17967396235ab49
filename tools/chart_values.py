"""The Helm chart's values.yaml, read with the comment of each key."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml


@dataclass(frozen=True, kw_only=True)
class ChartValue:
    """A key of values.yaml."""

    path: tuple[str, ...]
    comment: str
    """Its comment, in one line; empty where it has none."""
    default: Any
    leaf: bool
    """Whether an operator sets it as a whole: a scalar, a list or an empty map."""

    @property
    def dotted(self) -> str:
        """The path as it is written for --set."""
        return ".".join(self.path)


def read_values(text: str) -> list[ChartValue]:
    """All keys, in their order, parents before children."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise ValueError("values.yaml holds no mapping")
    return list(_walk(root, yaml.safe_load(text), (), text.splitlines()))


def _walk(node: yaml.MappingNode, value: Any, path: tuple[str, ...], lines: list[str]) -> Iterator[ChartValue]:
    for key_node, value_node in node.value:
        key = key_node.value
        below = isinstance(value_node, yaml.MappingNode) and bool(value_node.value)
        comment = _comment(lines, key_node.start_mark.line, key_node.start_mark.column)
        yield ChartValue(path=(*path, key), comment=comment, default=value[key], leaf=not below)
        if below:
            yield from _walk(value_node, value[key], (*path, key), lines)


def _comment(lines: list[str], line: int, indent: int) -> str:
    """The comment lines directly above, of the same indentation."""
    found: list[str] = []
    for above in reversed(lines[:line]):
        if not above.startswith(" " * indent + "#"):
            break
        found.append(above.strip().removeprefix("#").strip())
    return " ".join(reversed(found))
