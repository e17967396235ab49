"""What a chunk of a mail says about its quotes and signatures."""

from bisect import bisect_right
from collections.abc import Mapping

from kbmesh_chunker.documents.source import MailLayout, MailSection, MailSectionKind


def sections_within(layout: MailLayout, start: int, end: int) -> list[MailSection]:
    """The stretches of text[start:end] that are of one kind, in order, as positions of the text."""
    sections = layout.sections
    index = max(0, bisect_right(sections, start, key=lambda section: section.start) - 1)
    found = []
    while index < len(sections) and sections[index].start < end:
        section = sections[index]
        if section.end > start:
            found.append(MailSection(kind=section.kind, start=max(start, section.start), end=min(end, section.end)))
        index += 1
    return found


def mail_labels(layout: MailLayout, start: int, end: int) -> Mapping[str, str]:
    """Metadata of the chunk text[start:end].

    `section` is `body`, `quote`, `signature` or `mixed`. `quotes` and `signature` are where these stand in the chunk's
    own text, as code points `start-end`, with commas between them.
    """
    found = sections_within(layout, start, end)
    kinds = {section.kind for section in found}
    labels = {"section": kinds.pop().value if len(kinds) == 1 else "mixed"} if found else {}
    for name, kind in (("quotes", MailSectionKind.QUOTE), ("signature", MailSectionKind.SIGNATURE)):
        places = [f"{section.start - start}-{section.end - start}" for section in found if section.kind is kind]
        if places:
            labels[name] = ",".join(places)
    return labels
