"""What stands in an element of a Word file, whatever lies between."""

from collections.abc import Sequence

from kbmesh_chunker.documents.docx_package import Element, child, local


def inner_elements(element: Element, name: str) -> list[Element]:
    """The rows of a table or the cells of a row, also those in content controls."""
    found: list[Element] = []
    waiting: list[Element] = list(reversed(element))
    while waiting:
        inner = waiting.pop()
        if local(inner) == name:
            found.append(inner)
        elif local(inner) in {"sdt", "sdtContent", "customXml", "ins", "moveTo"}:
            waiting.extend(reversed(inner))
    return found


def chosen(alternate: Element) -> Element | None:
    """One of several ways to say the same."""
    choice = child(alternate, "Choice")
    return choice if choice is not None else child(alternate, "Fallback")


def has_choice(fallback: Element) -> bool:
    above = fallback.getparent()
    return above is not None and child(above, "Choice") is not None


def texts(element: Element, *, deleted: bool = False) -> Sequence[str]:
    """The plain text of an element, paragraph by paragraph."""
    found = []
    for inner in element.iter():
        name = local(inner)
        if name == "t" or (deleted and name == "delText"):
            found.append(inner.text or "")
        elif name in {"p", "tab", "br"}:
            found.append(" ")
    return found


def formula(element: Element) -> str:
    """A formula on one line (ECMA-376, part 1, 22.1)."""
    written: list[str] = []
    waiting: list[Element | str] = [element]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, str):
            written.append(inner)
            continue
        signs = {"num": ("(", ")/"), "den": ("(", ")"), "sup": ("^(", ")"), "sub": ("_(", ")"), "rad": ("√(", ")")}
        before, after = signs.get(local(inner), ("", ""))
        written.append(before)
        waiting.append(after)
        if local(inner) == "t":
            written.append(inner.text or "")
        waiting.extend(reversed(inner))
    return " ".join("".join(written).split())
