"""A model at a vendor's, behind the port: queue, windows, batches, patience, checks of what comes back, receipts.

A vendor gives a relevance from 0 to 1 and no logit. The port's number is the logit that a sigmoid makes that relevance
of, so that it is read like any other cross-encoder's.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from kbmesh_onnx.batcher import BatchObserver, Item, ItemExpiredError, QueueLimits
from kbmesh_onnx.slots import Slots, Turn
from kbmesh_onnx.token_counter import TokenCounter, windows
from kbmesh_rpc.call import DEFAULT_TENANT, optional_call
from kbmesh_rpc.errors import (
    DeadlineExceeded,
    DependencyInvalidResponse,
    DependencyUnavailable,
    EmptyText,
    InferenceFailed,
    KbmeshError,
    QueueFull,
)
from kbmesh_rpc.logs import get_logger
from kbmesh_rpc.provider.api_key import KeySource
from kbmesh_rpc.provider.caller import Caller, Further, all_at_once, isolate
from kbmesh_rpc.provider.failure import DEFINITE, Cause, ProviderFailure, to_error
from kbmesh_rpc.provider.patience import CallObserver, Patience, SilentCallObserver

from kbmesh_reranker.backends.port import DEFAULT_READING, DocumentScore, ModelDescription, Reading, Scores, Timings
from kbmesh_reranker.backends.provider_port import RerankProvider
from kbmesh_reranker.backends.queued import (
    LANES,
    WindowBudget,
    Windows,
    allowed,
    estimate_query_tokens,
    estimate_tokens,
    queue_errors,
    windows_of,
)

OVERLAP = 8
"""A window begins an eighth of its tokens before the one before it ends."""
ESTIMATE_SHARE = 2
"""By estimated tokens a window has a part of what the model reads, so that it is not cut in silence where the estimate
is too low."""
NEAREST = 1e-9
"""How near a relevance comes to 0 and to 1, where no logit is."""
LONG_TEXTS = 20_000
"""Characters of documents that are made ready in a thread."""

log = get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Window:
    """A part of one document."""

    document: int
    text: str
    tokens: int


class RemoteBackend:
    """One reranking model at one vendor's."""

    def __init__(
        self,
        provider: RerankProvider,
        description: ModelDescription,
        *,
        counter: TokenCounter,
        key_source: KeySource,
        patience: Patience,
        concurrency: int,
        batch_items: int,
        batch_tokens: int,
        max_windows: int,
        max_call_windows: int,
        limits: QueueLimits,
        observer: BatchObserver | None = None,
        calls: CallObserver | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` is the one of deadlines. Raises ApiKeyError; blocks for the key's file."""
        self._provider = provider
        self._description = description
        self._counter = counter
        self._caller = Caller(
            provider=provider.traits.name,
            model=description.name,
            key_source=key_source,
            use_key=provider.use_key,
            patience=patience,
            observer=calls or SilentCallObserver(),
            clock=clock,
        )
        self._call_seconds = patience.call_seconds
        self._batch_items = batch_items
        self._batch_tokens = batch_tokens
        self._max_windows = max_windows
        self._max_call_windows = max_call_windows
        self._slots = Slots(concurrency, limits=limits, observer=observer, clock=clock)
        self._clock = clock

    @property
    def description(self) -> ModelDescription:
        return self._description

    @property
    def fault(self) -> str:
        """Always empty: what a vendor refuses today it may take tomorrow. A key that is not taken makes it suspect."""
        return ""

    @property
    def suspect(self) -> bool:
        return self._caller.suspect

    async def warm_up(self) -> None:
        """Scores one word. Raises where the vendor does not take the key, does not know the model, or gives something
        else than a relevance; not where it is overloaded or cannot be reached, which may be over the next moment."""
        suspected, self._caller.suspect = self._caller.suspect, False
        try:
            scores = await self.score("warm", ["warm"], deadline=self._clock() + self._call_seconds)
        except DependencyUnavailable as error:
            if error.metadata.get("cause") in DEFINITE:
                raise
            log.warning("model_not_tried", model=self._description.name, cause=error.metadata.get("cause"))
            return
        except (DeadlineExceeded, QueueFull):
            self._caller.suspect = suspected
            log.warning("model_not_tried", model=self._description.name, cause=Cause.TIMEOUT.value)
            return
        failed = scores.documents[0].error
        if failed is not None:
            raise failed

    async def score(
        self, query: str, documents: Sequence[str], *, deadline: float | None, reading: Reading = DEFAULT_READING
    ) -> Scores:
        """As the port has it. Raises DependencyUnavailable and DependencyInvalidResponse, too, where that is what
        became of every document."""
        if not query.strip():
            raise EmptyText("query")
        model, call = self._description, optional_call()
        beside = estimate_query_tokens(query, max_tokens=model.max_tokens)
        max_windows = windows_of(reading, self._max_windows)
        estimate = estimate_tokens(
            documents,
            beside=beside,
            max_tokens=model.max_tokens,
            max_windows=max_windows,
            max_call_windows=self._max_call_windows,
        )
        tenant = call.tenant if call is not None else DEFAULT_TENANT
        turns: list[Turn] = []
        with (
            queue_errors(model.name),
            self._slots.reserve(estimate, lane=LANES[reading.priority], tenant=tenant) as reservation,
        ):
            began = self._clock()
            prepare = partial(self._prepare, documents, beside=beside, max_windows=max_windows, reading=reading)
            if sum(map(len, documents)) < LONG_TEXTS:
                prepared = prepare()
            else:
                prepared = await asyncio.to_thread(prepare)
            tokenized = self._clock()
            parts = list(self._batches(prepared))

            async def run(batch: list[_Window]) -> list[float | KbmeshError]:
                tokens = sum(window.tokens for window in batch)
                try:
                    async with self._slots.turn(reservation, tokens, items=len(batch), deadline=deadline) as turn:
                        turns.append(turn)
                        outcomes = await self._ask(query, batch, deadline)
                        turn.failed = sum(isinstance(outcome, KbmeshError) for outcome in outcomes)
                        return outcomes
                except ItemExpiredError as error:
                    raise DeadlineExceeded("queue") from error

            outcomes = await all_at_once([partial(run, part) for part in parts])
        scores = self._scores(prepared, parts, outcomes)
        _raise_what_all_have(scores)
        queued = max((turn.queue_seconds for turn in turns), default=0.0)
        return Scores(
            documents=tuple(scores),
            query_tokens_cut=0,
            timings=Timings(
                queue_seconds=queued,
                tokenize_seconds=tokenized - began,
                infer_seconds=max(0.0, self._clock() - tokenized - queued),
            ),
        )

    async def close(self) -> None:
        """As the port has it. Calls in flight fail."""
        self._caller.close()
        self._slots.close()
        await self._provider.close()

    def _prepare(
        self, documents: Sequence[str], *, beside: int, max_windows: int, reading: Reading
    ) -> list[Windows[str] | KbmeshError]:
        """The windows of each document; blocks."""
        # The query is read with each window, and has its part of what the model reads.
        room = max(self._description.max_tokens // 4, self._description.max_tokens - beside)
        room = max(1, (room if self._counter.exact else room // ESTIMATE_SHARE) - self._counter.special_tokens)
        budget = WindowBudget(self._max_call_windows)
        prepared: list[Windows[str] | KbmeshError] = []
        for index, document in enumerate(documents):
            if not document.strip():
                prepared.append(EmptyText(f"documents[{index}]"))
                continue
            texts, tokens, cut = windows(
                self._counter,
                document,
                window_tokens=room,
                overlap_tokens=room // OVERLAP,
                max_windows=max_windows,
            )
            each = -(-tokens // len(texts)) + beside
            found = Windows(
                items=tuple(Item(payload=text, tokens=each) for text in texts), tokens=tokens, tokens_cut=cut
            )
            prepared.append(allowed(index, found, reading=reading, budget=budget))
        return prepared

    def _batches(self, prepared: Sequence[Windows[str] | KbmeshError]) -> list[list[_Window]]:
        """Windows for one call each, in their order."""
        batches: list[list[_Window]] = []
        size = 0
        for index, found in enumerate(prepared):
            if isinstance(found, KbmeshError):
                continue
            for item in found.items:
                full = bool(batches) and (
                    len(batches[-1]) == self._batch_items or size + item.tokens > self._batch_tokens
                )
                if not batches or full:
                    batches.append([])
                    size = 0
                batches[-1].append(_Window(document=index, text=item.payload, tokens=item.tokens))
                size += item.tokens
        return batches

    async def _ask(self, query: str, batch: Sequence[_Window], deadline: float | None) -> list[float | KbmeshError]:
        """The logit of each window, or why there is none. Raises DeadlineExceeded and ShuttingDown."""

        async def call(part: Sequence[_Window]) -> Sequence[float] | ProviderFailure:
            texts = [window.text for window in part]

            async def attempt(seconds: float) -> Sequence[float]:
                return await self._provider.rerank(query, texts, timeout_seconds=seconds)

            return await self._caller.call(attempt, deadline=deadline)

        model, noted = self._description, set[int]()
        outcomes: list[float | KbmeshError] = []
        for window, asked in zip(batch, await isolate(batch, call, Further()), strict=True):
            if not isinstance(asked, ProviderFailure):
                failed = InferenceFailed(model.name, "the model gave no relevance from 0 to 1")
                outcomes.append(failed if math.isnan(asked) else logit_of(asked))
                continue
            if id(asked) not in noted:
                noted.add(id(asked))
                self._caller.note(asked)
            tokens = max(window.tokens, model.max_tokens + 1)
            outcomes.append(
                to_error(asked, provider=self._caller.provider, model=model.name, limit=model.max_tokens, tokens=tokens)
            )
        return outcomes

    def _scores(
        self,
        prepared: Sequence[Windows[str] | KbmeshError],
        parts: Sequence[Sequence[_Window]],
        outcomes: Sequence[Sequence[float | KbmeshError]],
    ) -> list[DocumentScore]:
        """The best window of each document. One of which a window fails, fails: its best passage may have stood
        there."""
        best: dict[int, float | KbmeshError] = {}
        for batch, batch_outcomes in zip(parts, outcomes, strict=True):
            for window, outcome in zip(batch, batch_outcomes, strict=True):
                known = best.get(window.document)
                if isinstance(known, KbmeshError):
                    continue
                if isinstance(outcome, KbmeshError) or known is None:
                    best[window.document] = outcome
                else:
                    best[window.document] = max(known, outcome)
        scores = []
        for index, found in enumerate(prepared):
            if isinstance(found, KbmeshError):
                scores.append(DocumentScore(error=found))
                continue
            outcome = best[index]
            if isinstance(outcome, KbmeshError):
                scores.append(DocumentScore(error=outcome))
                continue
            scores.append(
                DocumentScore(
                    score=outcome,
                    tokens=found.tokens,
                    tokens_cut=found.tokens_cut,
                    tokens_estimated=not self._counter.exact,
                    windows=len(found.items),
                )
            )
        return scores


def logit_of(relevance: float) -> float:
    """The number whose sigmoid is `relevance`, which is from 0 to 1; at its ends, of what is next to them."""
    inner = min(max(relevance, NEAREST), 1 - NEAREST)
    return math.log(inner / (1 - inner))


def _raise_what_all_have(scores: Sequence[DocumentScore]) -> None:
    """Raises where no document has a score, and it is nobody's fault but the vendor's."""
    errors = [score.error for score in scores]
    if errors and all(isinstance(error, DependencyUnavailable | DependencyInvalidResponse) for error in errors):
        raise next(error for error in errors if error is not None)
