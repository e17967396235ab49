"""The documents of a judged set in a knowledge base of their own."""

import contextlib
import hashlib
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kbmesh_client import (
    IngestDocument,
    IngestResult,
    KbmeshClient,
    KbmeshError,
    KnowledgeBase,
    KnowledgeBaseNotFound,
    RetrievalDefaults,
)

from kbmesh_cli.beir import RetrievalSet
from kbmesh_cli.errors import CliError
from kbmesh_cli.ingestion import tally_of, with_progress
from kbmesh_cli.output import messages
from kbmesh_cli.progress_lines import ProgressLines


@dataclass(frozen=True, kw_only=True)
class JudgedCorpus:
    """Where the documents lie."""

    knowledge_base: str
    documents: int
    chunks: int
    failed: int
    """Documents that could not be taken in, which nothing can find."""
    reused: bool
    """Whether all of it was there from an earlier call."""
    kept: bool
    """Whether it stays."""


@contextlib.contextmanager
def judged_corpus(
    client: KbmeshClient, judged: RetrievalSet, *, model: str, candidates: int, keep: bool
) -> Iterator[JudgedCorpus]:
    """Takes the documents in, where a knowledge base that was kept does not have them all. One that was made here goes
    afterwards unless it is to be kept; one that was kept before stays. Raises KbmeshError, and CliError where no
    document could be taken in."""
    defaults = RetrievalDefaults(vector_top_k=candidates)
    kept_name = _kept_name(judged, model)
    found = _find(client, kept_name)
    if found is not None or keep:
        if found is None:
            _create(client, kept_name, judged, model, defaults)
        elif found.retrieval.vector_top_k != candidates:
            client.update_knowledge_base(kept_name, retrieval=defaults)
        if found is not None and found.document_count >= judged.document_count:
            yield JudgedCorpus(
                knowledge_base=kept_name,
                documents=judged.document_count,
                chunks=found.chunk_count,
                failed=0,
                reused=True,
                kept=True,
            )
            return
        yield _fill(client, kept_name, judged, kept=True)
        return
    name = f"eval-{_readable(judged)}-{secrets.token_hex(4)}"
    _create(client, name, judged, model, defaults)
    try:
        yield _fill(client, name, judged, kept=False)
    finally:
        try:
            client.delete_knowledge_base(name, timeout_seconds=120)
        except KbmeshError as error:
            messages().print(f"the temporary knowledge base {name} could not be deleted: {error}", markup=False)


def _kept_name(judged: RetrievalSet, model: str) -> str:
    """Another one for other documents and another model."""
    digest = hashlib.sha256(f"{judged.corpus_sha256} {model}".encode()).hexdigest()
    return f"eval-{_readable(judged)}-{digest[:12]}"


def _readable(judged: RetrievalSet) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", judged.name)[:40].strip("-") or "set"


def _find(client: KbmeshClient, name: str) -> KnowledgeBase | None:
    try:
        return client.get_knowledge_base(name)
    except KnowledgeBaseNotFound:
        return None


def _create(client: KbmeshClient, name: str, judged: RetrievalSet, model: str, defaults: RetrievalDefaults) -> None:
    client.create_knowledge_base(
        name,
        description=f"Made by `kbmesh eval` for {judged.name}; can be deleted",
        embedding_model=model,
        retrieval=defaults,
    )


def _fill(client: KbmeshClient, name: str, judged: RetrievalSet, *, kept: bool) -> JudgedCorpus:
    documents = (
        IngestDocument(external_id=identifier, content=text, media_type="text/plain")
        for identifier, text in judged.documents()
    )
    taken_in = _with_lines(client.ingest(name, documents), total=judged.document_count)
    counts = tally_of(with_progress(taken_in, total=judged.document_count)).counts()
    if not counts["chunks"]:
        raise CliError("DATASET_UNREADABLE", f"no document of {judged.name} could be taken in")
    return JudgedCorpus(
        knowledge_base=name,
        documents=counts["total"],
        chunks=counts["chunks"],
        failed=counts["failed"],
        reused=False,
        kept=kept,
    )


def _with_lines(outcome: Iterable[IngestResult], *, total: int) -> Iterator[IngestResult]:
    lines = ProgressLines("took in {done} of {total} documents", total=total)
    for result in outcome:
        yield result
        lines.advance()
