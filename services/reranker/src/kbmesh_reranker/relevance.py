"""What every model owes its callers: limits, blank and equal documents, unusable scores, one order."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kbmesh_rpc.errors import EmptyText, InferenceFailed, InvalidField, KbmeshError, RequestTooLarge

from kbmesh_reranker.backends.port import DEFAULT_READING, DocumentScore, Method, Reading, RerankBackend, Timings


@dataclass(frozen=True, kw_only=True)
class CallLimits:
    """What one call may bring."""

    query_characters: int
    documents: int
    document_characters: int


@dataclass(frozen=True, kw_only=True)
class Relevance:
    """What became of one document."""

    index: int
    """Its place in the request."""
    logit: float | None
    """Only of a cross-encoder."""
    probability: float | None
    """Sigmoid of the logit, applied once. Only of a cross-encoder."""
    max_sim: float | None
    """Only of late interaction."""
    score: DocumentScore


@dataclass(frozen=True, kw_only=True)
class Reranked:
    """Documents, best first; ties by index, failed documents last."""

    results: tuple[Relevance, ...]
    query_tokens_cut: int
    timings: Timings


def check_request(
    query: str, documents: Sequence[str], top_n: int | None, limits: CallLimits, reading: Reading = DEFAULT_READING
) -> None:
    """Raises InvalidField, EmptyText (the query) or RequestTooLarge (the query, or too many documents)."""
    if not documents:
        raise InvalidField("documents", "at least one document is needed")
    if reading.max_windows == 0:
        raise InvalidField("max_windows", "must be at least 1; leave it out for the server's limit")
    if top_n == 0:
        raise InvalidField("top_n", "must be at least 1; leave it out for all")
    if not query.strip():
        raise EmptyText("query")
    if len(query) > limits.query_characters:
        raise RequestTooLarge(field="query", limit=limits.query_characters, actual=len(query))
    if len(documents) > limits.documents:
        raise RequestTooLarge(field="documents", limit=limits.documents, actual=len(documents))


async def rerank(
    backend: RerankBackend,
    query: str,
    documents: Sequence[str],
    *,
    top_n: int | None,
    limits: CallLimits,
    deadline: float | None,
    reading: Reading = DEFAULT_READING,
) -> Reranked:
    """The documents in order of relevance, or the best `top_n` of them.

    A blank document, one that is too long, and one for which the model gave no number, fails alone. Equal documents are
    scored once, and so have the very same score. Raises what `check_request` and the backend raise.
    """
    check_request(query, documents, top_n, limits, reading)
    model = backend.description
    fitting = (text for text in documents if text.strip() and len(text) <= limits.document_characters)
    places = {text: place for place, text in enumerate(dict.fromkeys(fitting))}
    scores = await backend.score(query, list(places), deadline=deadline, reading=reading)
    results = []
    for index, document in enumerate(documents):
        place = places.get(document)
        score = DocumentScore(error=_unread(index, document, limits)) if place is None else scores.documents[place]
        if score.score is not None and not math.isfinite(score.score):
            score = DocumentScore(error=InferenceFailed(model.name, "the model gave a number that is not finite"))
        results.append(_relevance(index, replace(score, error=_at(index, score.error)), model.method))
    results.sort(key=_rank)
    return Reranked(results=tuple(results[:top_n]), query_tokens_cut=scores.query_tokens_cut, timings=scores.timings)


def sigmoid(logit: float) -> float:
    """1 / (1 + exp(-logit)), without overflow."""
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    grown = math.exp(logit)
    return grown / (1 + grown)


def _relevance(index: int, score: DocumentScore, method: Method) -> Relevance:
    number = score.score
    cross_encoder = method is Method.CROSS_ENCODER
    return Relevance(
        index=index,
        logit=number if cross_encoder else None,
        probability=sigmoid(number) if cross_encoder and number is not None else None,
        max_sim=None if cross_encoder else number,
        score=score,
    )


def _at(index: int, error: KbmeshError | None) -> KbmeshError | None:
    """The error with the document's place in the request, which the backend does not know."""
    if isinstance(error, EmptyText):
        return EmptyText(f"documents[{index}]")
    if isinstance(error, RequestTooLarge):
        limit, actual = int(error.metadata["limit"]), int(error.metadata["actual"])
        return RequestTooLarge(field=f"documents[{index}]", limit=limit, actual=actual)
    return error


def _unread(index: int, document: str, limits: CallLimits) -> KbmeshError:
    """Why the model is not shown a document."""
    field = f"documents[{index}]"
    if len(document) > limits.document_characters:
        return RequestTooLarge(field=field, limit=limits.document_characters, actual=len(document))
    return EmptyText(field)


def _rank(result: Relevance) -> tuple[bool, float, int]:
    number = result.score.score
    return number is None, 0.0 if number is None else -number, result.index
