"""What is trained with, as a value and as a line of a file."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Group:
    """Passages for a question."""

    pool: str
    query: str
    passages: tuple[str, ...]
    fused: tuple[float, ...]
    """Of each passage, by the best of the whole order: 0 to 1."""
    labels: tuple[int, ...]
    """1 for the passage that answers, else 0."""


def write_groups(path: Path, groups: Sequence[Group]) -> None:
    """One object a line."""
    path.write_text("".join(json.dumps(asdict(group), ensure_ascii=False) + "\n" for group in groups), encoding="utf-8")


def read_groups(path: Path) -> Iterator[Group]:
    """What `write_groups` wrote."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            value: dict[str, Any] = json.loads(line)
            yield Group(
                pool=value["pool"],
                query=value["query"],
                passages=tuple(value["passages"]),
                fused=tuple(value["fused"]),
                labels=tuple(value["labels"]),
            )
