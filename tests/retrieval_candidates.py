"""Candidates for tests of single stages."""

from uuid import UUID, uuid5

from kbmesh_retriever.retrieve.fragment import Candidate, Fragment, Ranks, Scores, Span

_NAMES = UUID(int=0)


def candidate(
    text: str,
    *,
    fused: float | None = None,
    target: int = 0,
    document: str = "",
    start: int = 0,
    key: str = "",
    index: int = 0,
) -> Candidate:
    """One whose ids come from what it says and where."""
    return Candidate(
        fragment=Fragment(
            chunk_id=uuid5(_NAMES, f"{key}|{target}|{document}|{start}|{text}"),
            knowledge_base_id=uuid5(_NAMES, str(target)),
            document_id=uuid5(_NAMES, f"{target}|{document or text}"),
            generation=1,
            index=index,
            text=text,
            context="",
            span=Span(start=start, end=start + len(text), start_byte=start, end_byte=start + len(text.encode())),
            chunk_type="fixed",
            heading_path=(),
            pages=(),
            metadata={},
        ),
        target=target,
        scores=Scores(fused=fused),
        ranks=Ranks(),
    )
