"""Where a fragment comes from, in a line."""

from collections.abc import Mapping, Sequence

import regex

from kbmesh_retriever.attribution.display import DisplayKind, kind_of, page_range
from kbmesh_retriever.catalog.port import Document

PREVIEW_CHARACTERS = 160

_LAST_WORD = regex.compile(r"\s\S*\Z")
_OWN_TITLES = ("subject", "mail_subject")


def label_of(
    document: Document,
    knowledge_base: str,
    metadata: Mapping[str, str],
    *,
    heading_path: Sequence[str],
    pages: Sequence[int],
) -> str:
    """Title, place and link of a fragment in one line. The link is the document's own, never a presigned one: what is
    in a prompt goes to whoever runs the model."""
    below_title = heading_path[1:] if heading_path and heading_path[0] == document.title else heading_path
    place = [metadata["attachment"]] if metadata.get("attachment") else []
    place += [" › ".join(filter(None, below_title))] if any(below_title) else []
    if pages:
        place.append(f"{'pages' if len(pages) > 1 else 'page'} {page_range(pages)}")
    label = ", ".join([title_of(document, metadata), *place]) + f" ({knowledge_base})"
    return _on_one_line(f"{label} {document.uri}")


def title_of(document: Document, metadata: Mapping[str, str]) -> str:
    """How a fragment's document is called: by its title, or as the part of it that the fragment is from."""
    if document.title:
        return document.title
    own = next((metadata[name] for name in _OWN_TITLES if metadata.get(name)), "")
    if not own and metadata.get("channel") and kind_of(document, metadata) is DisplayKind.SLACK:
        own = f"#{metadata['channel'].removeprefix('#')}"
    return own or document.external_id


def preview_of(text: str) -> str:
    """The first words of a text on one line, with an ellipsis where there are more."""
    line = _on_one_line(text)
    if len(line) <= PREVIEW_CHARACTERS:
        return line
    cut = line[:PREVIEW_CHARACTERS]
    # A cut inside a word goes back to its start, a cut inside a word as long as the line stays.
    shorter = _LAST_WORD.sub("", cut) if line[PREVIEW_CHARACTERS] != " " else cut
    return shorter.rstrip() + "…"


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
