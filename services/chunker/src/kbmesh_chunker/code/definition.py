"""What source code defines."""

from dataclasses import dataclass, field

import tree_sitter

from kbmesh_chunker.code.syntax import Role


@dataclass(kw_only=True, slots=True, eq=False)
class Definition:
    """A function, class or other named thing in source code, or a group of these without a name. Positions are code
    points of the text."""

    role: Role
    """FUNCTION, CLASS, SPACE, GROUP or ALIAS."""
    kind: str
    """For people: "function", "class". Empty where it has no name."""
    name: str
    """Its own name; empty where it has none, as a condition around functions."""
    symbol: str
    """Its name below those of what it is in, outermost first. Empty where it has no name."""
    start: int
    """Where it begins, with the comments, attributes and decorators that belong to it."""
    end: int
    head: int
    """Where its signature begins."""
    node: tree_sitter.Node
    """All of it but leading comments and attributes."""
    holder: tree_sitter.Node
    """What has its body."""
    inner: "list[Definition]" = field(default_factory=list)
    """What is defined in it; of a function, only once it was asked for."""
    opened: bool = False
    """Whether `inner` is known."""

    @property
    def apart(self) -> bool:
        """Whether what is in it always stands for itself."""
        return self.role is Role.SPACE
