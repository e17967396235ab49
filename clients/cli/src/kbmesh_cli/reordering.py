"""What reranking changed."""

from collections.abc import Sequence
from dataclasses import dataclass

from kbmesh_client import RetrieveResult

from kbmesh_cli.rendering import title_of


@dataclass(frozen=True, kw_only=True)
class Move:
    """A fragment that has another place than before."""

    title: str
    before: int | None
    """Its place in the fused order. None where it was not among the results."""
    after: int | None
    """Its place in the answer. None where it is not among the results any more."""

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.title}: new at {self.after}"
        if self.after is None:
            return f"{self.title}: {self.before}, now left out"
        return f"{self.title}: {self.before} → {self.after}"


def moves_between(fused: Sequence[RetrieveResult], final: Sequence[RetrieveResult]) -> list[Move]:
    """In the order of the answer, then those that left it. Empty where the order is the same."""
    before = {result.chunk_id: result.rank for result in fused}
    after = {result.chunk_id: result.rank for result in final}
    moved = [
        Move(title=_name(result), before=before.get(result.chunk_id), after=result.rank)
        for result in final
        if before.get(result.chunk_id) != result.rank
    ]
    left = [
        Move(title=_name(result), before=result.rank, after=None) for result in fused if result.chunk_id not in after
    ]
    return moved + left


def _name(result: RetrieveResult) -> str:
    """With the heading it stands under: an answer may have several fragments of one document."""
    title = title_of(result)
    headings = [heading for heading in result.heading_path if heading and heading != title]
    return f"{title} › {headings[-1]}" if headings else title
