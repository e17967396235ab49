"""The parts of an Office Open XML file, and how they refer to one another (ECMA-376, part 2)."""

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, cast

from kbmesh_rpc.errors import DocumentUnreadable, UnsupportedMediaType
from lxml import etree

from kbmesh_chunker.documents.archive import Archive, open_archive
from kbmesh_chunker.documents.media_type import DOCX
from kbmesh_chunker.documents.reading import Reading


class Element(Protocol):
    """An element of lxml, as far as it is used here."""

    tag: object
    text: str | None

    @property
    def attrib(self) -> Mapping[str, str]: ...
    def get(self, name: str, default: str = "") -> str: ...
    def __iter__(self) -> Iterator["Element"]: ...
    def __reversed__(self) -> Iterator["Element"]: ...
    def iter(self) -> Iterator["Element"]: ...
    def itertext(self) -> Iterator[str]: ...
    def iterancestors(self) -> Iterator["Element"]: ...
    def getparent(self) -> "Element | None": ...


_MAIN = "officeDocument"


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What a part refers to."""

    kind: str
    """Last word of the relationship's type, such as `styles` or `hyperlink`."""
    target: str
    """Name of a part, or an address where it is external."""
    external: bool


@dataclass(kw_only=True)
class Package:
    """A file that is open."""

    archive: Archive
    main: str
    broken: list[str] = field(default_factory=list)
    """Parts that could not be read, though the text refers to them."""
    _names: Mapping[str, str]
    """Names of the archive by part names in lower case: a name has no case."""

    def has(self, name: str) -> bool:
        """Whether there is a part of the name."""
        return name.lower() in self._names

    def xml(self, name: str) -> Element:
        """The outermost element of a part. Raises DocumentUnreadable and what `Archive.read` raises."""
        if not self.has(name):
            raise DocumentUnreadable(DOCX, f"its part {name[:200]!r} is missing")
        return parse(self.archive.read(self._names[name.lower()]), name)

    def optional(self, name: str) -> Element | None:
        """The outermost element of a part that a reader can do without. None where it is missing or broken."""
        if not name:
            return None
        try:
            return self.xml(name)
        except DocumentUnreadable:
            self.broken.append(posixpath.basename(name))
            return None

    def references(self, name: str) -> dict[str, Reference]:
        """What a part refers to, by the id that it uses."""
        folder, base = posixpath.split(name)
        at = posixpath.join(folder, "_rels", f"{base}.rels")
        root = self.optional(at) if self.has(at) else None
        found: dict[str, Reference] = {}
        for element in root if root is not None else ():
            external = element.get("TargetMode") == "External"
            target = element.get("Target", "")
            if not external:
                target = posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")
            kind = element.get("Type", "").rpartition("/")[2]
            found[element.get("Id", "")] = Reference(kind=kind, target=target, external=external)
        return found


def open_package(data: bytes, reading: Reading) -> Package:
    """Opens a Word file.

    Raises DocumentUnreadable where it is damaged or misses its text, and UnsupportedMediaType where it is a
    spreadsheet or the like.
    """
    archive = open_archive(data, reading, media_type=DOCX)
    names = {name.replace("\\", "/").lstrip("/").lower(): name for name in archive.names()}
    package = Package(archive=archive, main="", _names=names)
    main = next((ref.target for ref in package.references("").values() if ref.kind == _MAIN), "")
    if not main or not package.has(main):
        main = "word/document.xml"
    for folder, other in (
        ("xl/", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
        ("ppt/", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ):
        if main.lower().startswith(folder):
            raise UnsupportedMediaType(other)
    package.main = main
    return package


def parse(data: bytes, name: str) -> Element:
    """XML without document types, so without entities that stand for more. Raises DocumentUnreadable."""
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, remove_comments=True, remove_pis=True
    )
    try:
        root = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise DocumentUnreadable(DOCX, f"its part {name[:200]!r} is no XML that can be read: {error}") from error
    if root is None:
        raise DocumentUnreadable(DOCX, f"its part {name[:200]!r} is empty")
    if root.getroottree().docinfo.internalDTD is not None:
        raise DocumentUnreadable(DOCX, f"its part {name[:200]!r} has a document type, which no Word file has")
    return cast(Element, root)


def local(element: Element) -> str:
    """The name of an element without its namespace: those of the strict and the transitional format differ."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def attribute(element: Element | None, name: str, default: str = "") -> str:
    """An attribute of any namespace."""
    if element is None:
        return default
    for key, value in element.attrib.items():
        if str(key).rpartition("}")[2] == name:
            return str(value)
    return default


def child(element: Element | None, *path: str) -> Element | None:
    """The first child of a name, and on down the path. None where one is missing."""
    for name in path:
        if element is None:
            return None
        element = next((inner for inner in element if local(inner) == name), None)
    return element


def switched_on(element: Element | None) -> bool:
    """Whether a property is there and not said to be off."""
    return element is not None and attribute(element, "val", "true").lower() not in {"0", "false", "off", "none"}
