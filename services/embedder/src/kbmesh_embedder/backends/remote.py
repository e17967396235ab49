"""A model at a vendor's, behind the port: queue, batches, patience, checks of what comes back, receipts.

Texts of different calls never share an HTTP call: what one caller sends can then neither fail nor hold up another, and
a call whose caller leaves is ended.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from kbmesh_onnx.batcher import BatchObserver, ItemExpiredError, QueueLimits
from kbmesh_onnx.slots import Slots, Turn
from kbmesh_onnx.token_counter import TokenCounter
from kbmesh_onnx.token_estimate import estimate_tokens
from kbmesh_rpc.errors import (
    DeadlineExceeded,
    DependencyInvalidResponse,
    DependencyUnavailable,
    InferenceFailed,
    KbmeshError,
    QueueFull,
)
from kbmesh_rpc.logs import get_logger
from kbmesh_rpc.provider.api_key import KeySource
from kbmesh_rpc.provider.caller import Caller, Further, all_at_once, isolate
from kbmesh_rpc.provider.failure import DEFINITE, Cause, ProviderFailure, to_error
from kbmesh_rpc.provider.patience import CallObserver, Patience, SilentCallObserver
from numpy.typing import NDArray

from kbmesh_embedder.backends.answers import check_count, spread
from kbmesh_embedder.backends.port import (
    Embeddings,
    InputType,
    ModelDescription,
    Priority,
    TextReceipt,
    Timings,
    TokenCount,
    Truncation,
)
from kbmesh_embedder.backends.provider_port import EmbeddingProvider, ProviderAnswer, Row
from kbmesh_embedder.backends.queued import LANES, queue_errors, tenant
from kbmesh_embedder.backends.remote_texts import RemoteText, TextPreparer, batches

T = TypeVar("T")

LONG_TEXTS = 20_000
"""Characters of texts that are made ready in a thread."""

log = get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class VectorShape:
    """What vectors are to be."""

    dimension: int
    cut: bool
    """Whether longer ones are made shorter."""
    normalize: bool


@dataclass(frozen=True, kw_only=True)
class _Order:
    """One call to the model."""

    input_type: InputType
    truncation: Truncation
    deadline: float | None


@dataclass(frozen=True, kw_only=True)
class _Vector:
    """What became of one text that was sent."""

    row: Row
    receipt: TextReceipt


class RemoteBackend:
    """One model at one vendor's."""

    def __init__(
        self,
        provider: EmbeddingProvider,
        description: ModelDescription,
        *,
        shape: VectorShape,
        counter: TokenCounter,
        key_source: KeySource,
        patience: Patience,
        concurrency: int,
        batch_items: int,
        batch_tokens: int,
        limits: QueueLimits,
        observer: BatchObserver | None = None,
        calls: CallObserver | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` is the one of deadlines."""
        self._provider = provider
        self._description = description
        self._shape = shape
        self._counter = counter
        self._preparer = TextPreparer(counter=counter, traits=provider.traits, max_tokens=description.max_tokens)
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
        self._slots = Slots(concurrency, limits=limits, observer=observer, clock=clock)
        self._clock = clock
        self._prefixes = {
            InputType.QUERY: description.query_prefix,
            InputType.DOCUMENT: description.document_prefix,
        }

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
        """Embeds one word. Raises where the vendor does not take the key, does not know the model, or gives something
        else than vectors of that size; not where it is overloaded or cannot be reached, which may be over the next
        moment."""
        suspected, self._caller.suspect = self._caller.suspect, False
        try:
            embeddings = await self.embed(
                ["warm"],
                input_type=InputType.DOCUMENT,
                truncation=Truncation.END,
                priority=Priority.INTERACTIVE,
                deadline=self._clock() + self._call_seconds,
            )
        except DependencyUnavailable as error:
            if error.metadata.get("cause") in DEFINITE:
                raise
            log.warning("model_not_tried", model=self._description.name, cause=error.metadata.get("cause"))
            return
        except (DeadlineExceeded, QueueFull):
            self._caller.suspect = suspected
            log.warning("model_not_tried", model=self._description.name, cause=Cause.TIMEOUT.value)
            return
        failed = embeddings.receipts[0].error
        if failed is not None:
            raise failed

    async def embed(
        self,
        texts: Sequence[str],
        *,
        input_type: InputType,
        truncation: Truncation,
        priority: Priority,
        deadline: float | None,
    ) -> Embeddings:
        """As the port has it. Raises DependencyUnavailable and DependencyInvalidResponse, too, where that is what
        became of every text."""
        model = self._description.name
        prefix = self._prefixes[input_type]
        estimate = estimate_tokens(texts, prefix=prefix, max_tokens=self._description.max_tokens)
        order = _Order(input_type=input_type, truncation=truncation, deadline=deadline)
        vectors = np.zeros((len(texts), self._shape.dimension), dtype=np.float32)
        receipts: list[TextReceipt] = [TextReceipt()] * len(texts)
        with (
            queue_errors(model),
            self._slots.reserve(estimate, lane=LANES[priority], tenant=tenant()) as reservation,
        ):
            began = self._clock()
            prepared = await self._blocking(
                partial(self._preparer.prepare, texts, prefix=prefix, truncation=truncation), texts
            )
            tokenized = self._clock()
            ready = [text for text in prepared if isinstance(text, RemoteText)]
            for index, text in enumerate(prepared):
                if isinstance(text, KbmeshError):
                    receipts[index] = TextReceipt(error=text)
            turns: list[Turn] = []

            async def run(batch: list[RemoteText]) -> list[_Vector | KbmeshError]:
                tokens = sum(text.tokens for text in batch)
                try:
                    async with self._slots.turn(reservation, tokens, items=len(batch), deadline=deadline) as turn:
                        turns.append(turn)
                        outcomes = await self._ask(batch, order)
                        turn.failed = sum(isinstance(outcome, KbmeshError) for outcome in outcomes)
                        return outcomes
                except ItemExpiredError as error:
                    raise DeadlineExceeded("queue") from error

            parts = list(batches(ready, items=self._batch_items, tokens=self._batch_tokens))
            outcomes = await all_at_once([partial(run, part) for part in parts])
        for batch, batch_outcomes in zip(parts, outcomes, strict=True):
            for text, outcome in zip(batch, batch_outcomes, strict=True):
                if isinstance(outcome, KbmeshError):
                    receipts[text.index] = TextReceipt(error=outcome)
                else:
                    vectors[text.index], receipts[text.index] = outcome.row, outcome.receipt
        _raise_what_all_have(receipts)
        done = self._clock()
        queued = max((turn.queue_seconds for turn in turns), default=0.0)
        return Embeddings(
            vectors=vectors,
            receipts=tuple(receipts),
            timings=Timings(
                queue_seconds=queued,
                tokenize_seconds=tokenized - began,
                infer_seconds=max(0.0, done - tokenized - queued),
            ),
        )

    async def count_tokens(
        self, texts: Sequence[str], *, input_type: InputType, with_offsets: bool
    ) -> tuple[TokenCount, ...]:
        """By the model's tokenizer, or an estimate that says so."""
        prefix = self._prefixes[input_type]

        def count() -> tuple[TokenCount, ...]:
            estimated = not self._counter.exact
            counts = self._counter.count([prefix + text for text in texts])
            if not with_offsets:
                return tuple(TokenCount(tokens=tokens, estimated=estimated) for tokens in counts)
            places = [self._counter.places(text) for text in texts]
            return tuple(
                TokenCount(tokens=tokens, starts=tuple(starts), ends=tuple(ends), estimated=estimated)
                for tokens, (starts, ends) in zip(counts, places, strict=True)
            )

        return await self._blocking(count, texts)

    async def close(self) -> None:
        """As the port has it. Calls in flight fail."""
        self._caller.close()
        self._slots.close()
        await self._provider.close()

    async def _ask(self, batch: Sequence[RemoteText], order: _Order) -> list[_Vector | KbmeshError]:
        """What became of each text of a batch. Raises DeadlineExceeded and ShuttingDown."""
        further = Further()
        asked = await isolate(batch, partial(self._call, order=order, further=further), further)
        noted: set[int] = set()
        outcomes: list[_Vector | KbmeshError] = []
        for text, outcome in zip(batch, asked, strict=True):
            if not isinstance(outcome, ProviderFailure):
                outcomes.append(outcome)
                continue
            if id(outcome) not in noted:
                noted.add(id(outcome))
                self._caller.note(outcome)
            outcomes.append(self._error(outcome, text))
        return outcomes

    async def _call(
        self, batch: Sequence[RemoteText], *, order: _Order, further: Further
    ) -> list[_Vector | KbmeshError] | ProviderFailure:
        """The vectors of one call, or why there are none. One text that is too long is made shorter until it fits."""
        while True:
            outcome = await self._caller.call(
                partial(self._attempt, texts=[text.text for text in batch], order=order), deadline=order.deadline
            )
            if not isinstance(outcome, ProviderFailure):
                return self._read(batch, outcome)
            text = batch[0]
            too_long = outcome.cause is Cause.TOO_LONG and len(batch) == 1
            if not (too_long and text.may_be_cut and further.take(1)):
                return outcome
            shorten = partial(
                self._preparer.shorten,
                text,
                outcome.told_tokens,
                prefix=self._prefixes[order.input_type],
                truncation=order.truncation,
            )
            batch = [await self._blocking(shorten, [text.text])]

    async def _attempt(self, seconds: float, *, texts: Sequence[str], order: _Order) -> ProviderAnswer:
        answer = await self._provider.embed(
            texts, input_type=order.input_type, truncation=order.truncation, timeout_seconds=seconds
        )
        check_count(len(answer.rows), len(texts))
        return answer

    def _error(self, failure: ProviderFailure, text: RemoteText) -> KbmeshError:
        limit = self._description.max_tokens
        return to_error(
            failure,
            provider=self._caller.provider,
            model=self._description.name,
            limit=limit,
            tokens=max(text.tokens + text.tokens_cut, limit + 1),
        )

    def _read(self, batch: Sequence[RemoteText], answer: ProviderAnswer) -> list[_Vector | KbmeshError]:
        """The vectors of an answer, each checked for itself."""
        alone = len(batch) == 1
        counts = spread(answer.tokens, [text.tokens for text in batch])
        read: list[_Vector | KbmeshError] = []
        for text, row, tokens in zip(batch, answer.rows, counts, strict=True):
            vector = self._shaped(row)
            if isinstance(vector, KbmeshError):
                read.append(vector)
                continue
            receipt = TextReceipt(tokens=text.tokens, tokens_cut=text.tokens_cut)
            if text.estimated:
                told = text.told_tokens
                cut = text.tokens_cut if told is None else max(1, told - tokens)
                known = alone and answer.tokens is not None and (told is not None or cut == 0)
                receipt = TextReceipt(tokens=tokens, tokens_cut=cut, tokens_estimated=not known)
            read.append(_Vector(row=vector, receipt=receipt))
        return read

    def _shaped(self, row: Row) -> NDArray[np.float32] | KbmeshError:
        wanted, name = self._shape.dimension, self._provider.traits.name
        if row.size != wanted and not (self._shape.cut and row.size > wanted):
            return DependencyInvalidResponse(
                name, f"{name} gave a vector of {row.size} numbers, expected were {wanted}"
            )
        row = row[:wanted]
        length = float(np.linalg.norm(row.astype(np.float64)))
        if not np.isfinite(length):
            return InferenceFailed(self._description.name, "the model gave numbers that are not finite")
        if length == 0:
            return InferenceFailed(self._description.name, "the model gave a vector of zeros")
        return (row / length).astype(np.float32) if self._shape.normalize else row

    async def _blocking(self, work: Callable[[], T], texts: Sequence[str]) -> T:
        if sum(map(len, texts)) < LONG_TEXTS:
            return work()
        return await asyncio.to_thread(work)


def _raise_what_all_have(receipts: Sequence[TextReceipt]) -> None:
    """Raises where no text has a vector, and it is nobody's fault but the vendor's: the caller is to know at once that
    it is of no use to go on."""
    errors = [receipt.error for receipt in receipts]
    if errors and all(isinstance(error, DependencyUnavailable | DependencyInvalidResponse) for error in errors):
        raise next(error for error in errors if error is not None)
