"""A stretch of source code that becomes a piece."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kbmesh_chunker.code.definition import Definition


@dataclass(kw_only=True, slots=True, eq=False)
class Stretch:
    """A stretch of code that becomes a piece. Nobody changes one; a frozen class would take thrice as long to fill."""

    start: int
    end: int
    around: tuple[Definition, ...] = ()
    """What it is in, outermost first."""
    about: Definition | None = None
    """The one definition that it is, or is a part of."""
    whole: bool = False
    """Whether all of `about`, or of several definitions, is in it."""
    owner: str = ""
    """The type that it is of, where it holds several of what stands beside that type."""
    part: int = 0
    """Which part of a definition it is, from 1; 0 where it is not one of several."""
    parts: int = 0

    @property
    def path(self) -> tuple[Definition, ...]:
        """What it is in, and what it is about."""
        return self.around if self.about is None else (*self.around, self.about)


def joined(first: Stretch, second: Stretch) -> Stretch:
    """Two neighbours in one."""
    if first.about is second.about and first.about is not None:
        return replace(first, end=second.end, whole=False)
    around = first.around if first.around == second.around else shared(first.path, second.path)
    return Stretch(start=first.start, end=second.end, around=around, whole=first.whole or second.whole)


def shared(first: Sequence[Definition], second: Sequence[Definition]) -> tuple[Definition, ...]:
    shared = []
    for one, other in zip(first, second, strict=False):
        if one is not other:
            break
        shared.append(one)
    return tuple(shared)
