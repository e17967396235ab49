"""What `tei.v1` asks of a reranking model, and what differs there from kbmesh's own contract.

A text is cut to the model's limit or refused, never scored in windows; a blank text is scored; a text that fails fails
its call; of texts with the same score the later one goes first.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kbmesh_onnx.token_reader import Token, UnknownTokenError
from kbmesh_rpc.errors import EmptyText, FeatureUnsupported, InferenceFailed, InvalidField, KbmeshError, RequestTooLarge

from kbmesh_reranker.backends.one_window import OneWindowBackend, Truncation
from kbmesh_reranker.backends.port import DocumentScore, Method, ModelDescription, RerankBackend, Timings
from kbmesh_reranker.backends.queued import queue_errors
from kbmesh_reranker.models import ModelRegistry
from kbmesh_reranker.relevance import CallLimits, sigmoid


@dataclass(frozen=True, kw_only=True)
class RankOrder:
    """Texts to score against one query."""

    query: str
    texts: Sequence[str]
    truncation: Truncation
    raw_scores: bool
    """Logits in place of probabilities."""


@dataclass(frozen=True, kw_only=True)
class TextScores:
    """What became of some texts."""

    scores: tuple[float, ...]
    """In the texts' order."""
    documents: tuple[DocumentScore, ...]
    query_tokens_cut: int
    tokens_read: int
    timings: Timings


class TeiModel:
    """The default model of a registry, as `tei.v1` sees it."""

    def __init__(self, models: ModelRegistry, *, limits: CallLimits) -> None:
        self._models = models
        self._limits = limits

    @property
    def description(self) -> ModelDescription:
        """The model. Raises ModelNotReady."""
        return self._models.find("").description

    def check_count(self, texts: int) -> None:
        """Raises RequestTooLarge where there are too many texts."""
        if texts > self._limits.documents:
            raise RequestTooLarge(field="texts", limit=self._limits.documents, actual=texts)

    async def score(self, order: RankOrder, *, deadline: float | None) -> TextScores:
        """A score for each text. Equal texts are scored once.

        Raises InvalidField (no text), EmptyText (the query), RequestTooLarge, TextTooLong, FeatureUnsupported,
        ModelNotReady, InferenceFailed, and what the backend raises.
        """
        self._check(order)
        backend = self._models.find("")
        model = backend.description
        if model.method is not Method.CROSS_ENCODER and not order.raw_scores:
            raise FeatureUnsupported(f"probabilities of {model.name}, which is no cross-encoder; ask for raw_scores")
        places = {text: place for place, text in enumerate(dict.fromkeys(order.texts))}
        scored = await _capable(backend, "reranking in one window").score_one_window(
            order.query, list(places), truncation=order.truncation, deadline=deadline
        )
        distinct = [_number(document, model) for document in scored.scores.documents]
        numbers = distinct if order.raw_scores else [sigmoid(number) for number in distinct]
        return TextScores(
            scores=tuple(numbers[places[text]] for text in order.texts),
            documents=scored.scores.documents,
            query_tokens_cut=scored.scores.query_tokens_cut,
            tokens_read=scored.tokens_read,
            timings=scored.scores.timings,
        )

    async def tokens(self, text: str, *, prompt_name: str | None, special_tokens: bool) -> Sequence[Token]:
        """The tokens of a text, nothing cut."""
        if not text:
            raise EmptyText("inputs")
        if len(text) > self._limits.document_characters:
            raise RequestTooLarge(field="inputs", limit=self._limits.document_characters, actual=len(text))
        if prompt_name is not None:
            raise InvalidField("prompt_name", "a reranker has no prompts")
        with queue_errors():
            reader = _capable(self._models.find(""), "tokens").token_reader
            return await reader.tokens(text, special_tokens=special_tokens)

    async def text(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """The text of tokens. Raises EmptyText where there is none, and InvalidField for one that does not exist."""
        if not ids:
            raise EmptyText("ids")
        if len(ids) > self._limits.document_characters:
            raise RequestTooLarge(field="ids", limit=self._limits.document_characters, actual=len(ids))
        reader = _capable(self._models.find(""), "tokens").token_reader
        try:
            with queue_errors():
                return await reader.text(ids, skip_special_tokens=skip_special_tokens)
        except UnknownTokenError as error:
            raise InvalidField(
                f"ids[{error.position}]", f"the vocabulary has the tokens below {error.vocabulary}"
            ) from error

    def _check(self, order: RankOrder) -> None:
        if not order.texts:
            raise InvalidField("texts", "at least one text is needed")
        self.check_count(len(order.texts))
        if not order.query.strip():
            raise EmptyText("query")
        if len(order.query) > self._limits.query_characters:
            raise RequestTooLarge(field="query", limit=self._limits.query_characters, actual=len(order.query))
        limit = self._limits.document_characters
        for index, text in enumerate(order.texts):
            if len(text) > limit:
                raise RequestTooLarge(field=f"texts[{index}]", limit=limit, actual=len(text))


def rank(scores: Sequence[float]) -> list[int]:
    """Indices, best first. Of equal scores the later one goes first: that server sorts upwards and turns it round."""
    return sorted(range(len(scores)), key=lambda index: (-scores[index], -index))


def _number(document: DocumentScore, model: ModelDescription) -> float:
    if document.error is not None:
        raise _renamed(document.error)
    if document.score is None or not math.isfinite(document.score):
        raise InferenceFailed(model.name, "the model gave a number that is not finite")
    return document.score


def _renamed(error: KbmeshError) -> KbmeshError:
    """What kbmesh calls documents are texts here."""
    return EmptyText("texts") if isinstance(error, EmptyText) else error


def _capable(backend: RerankBackend, feature: str) -> OneWindowBackend:
    if not isinstance(backend, OneWindowBackend):
        raise FeatureUnsupported(f"{feature} with the backend {backend.description.backend}")
    return backend
