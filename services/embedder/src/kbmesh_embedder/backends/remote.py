"""A model at a vendor's, behind the port: queue, batches, patience, checks of what comes back, receipts.

Texts of different calls never share an HTTP call: what one caller sends can then neither fail nor hold up another, and
a call whose caller leaves is ended.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
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
    ShuttingDown,
)
from kbmesh_rpc.logs import get_logger
from kbmesh_rpc.provider.api_key import ApiKeyError, KeySource
from kbmesh_rpc.provider.failure import DEFINITE, OF_TEXTS, Cause, ProviderFailure, to_error
from kbmesh_rpc.provider.patience import CallObserver, Patience, SilentCallObserver, persist
from numpy.typing import NDArray

from kbmesh_embedder.backends.answers import bad_answer, spread
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

FURTHER_CALLS = 64
"""Calls beyond the first that may be spent on finding the texts of a batch that a vendor refuses: enough for three of
2,048. What is not found by then fails together."""
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


class _Further:
    """Calls that may still be made for one batch."""

    def __init__(self) -> None:
        self._left = FURTHER_CALLS

    def take(self, calls: int) -> bool:
        if self._left < calls:
            return False
        self._left -= calls
        return True


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
        self._key_source = key_source
        self._key = key_source.read(os.environ)
        provider.use_key(self._key)
        self._patience = patience
        self._batch_items = batch_items
        self._batch_tokens = batch_tokens
        self._slots = Slots(concurrency, limits=limits, observer=observer, clock=clock)
        self._calls = calls or SilentCallObserver()
        self._clock = clock
        self._prefixes = {
            InputType.QUERY: description.query_prefix,
            InputType.DOCUMENT: description.document_prefix,
        }
        self._suspect = False
        self._closed = False

    @property
    def description(self) -> ModelDescription:
        return self._description

    @property
    def fault(self) -> str:
        """Always empty: what a vendor refuses today it may take tomorrow. A key that is not taken makes it suspect."""
        return ""

    @property
    def suspect(self) -> bool:
        return self._suspect

    async def warm_up(self) -> None:
        """Embeds one word. Raises where the vendor does not take the key, does not know the model, or gives something
        else than vectors of that size; not where it is overloaded or cannot be reached, which may be over the next
        moment."""
        suspected, self._suspect = self._suspect, False
        try:
            embeddings = await self.embed(
                ["warm"],
                input_type=InputType.DOCUMENT,
                truncation=Truncation.END,
                priority=Priority.INTERACTIVE,
                deadline=self._clock() + self._patience.call_seconds,
            )
        except DependencyUnavailable as error:
            if error.metadata.get("cause") in DEFINITE:
                raise
            log.warning("model_not_tried", model=self._description.name, cause=error.metadata.get("cause"))
            return
        except (DeadlineExceeded, QueueFull):
            self._suspect = suspected
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
                        outcomes = await self._ask(batch, order, _Further())
                        turn.failed = sum(isinstance(outcome, KbmeshError) for outcome in outcomes)
                        return outcomes
                except ItemExpiredError as error:
                    raise DeadlineExceeded("queue") from error

            parts = list(batches(ready, items=self._batch_items, tokens=self._batch_tokens))
            outcomes = await _all([partial(run, part) for part in parts])
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
        self._closed = True
        self._slots.close()
        await self._provider.close()

    async def _ask(self, batch: list[RemoteText], order: _Order, further: _Further) -> list[_Vector | KbmeshError]:
        """What became of each text of a batch. Where the vendor refuses it, it is halved until the text that it refuses
        is alone. Raises DeadlineExceeded and ShuttingDown."""
        failure = await self._call(batch, order)
        if not isinstance(failure, ProviderFailure):
            return failure
        if self._closed:
            raise ShuttingDown
        if failure.cause in OF_TEXTS and len(batch) > 1 and further.take(2):
            middle = len(batch) // 2
            return [
                *await self._ask(batch[:middle], order, further),
                *await self._ask(batch[middle:], order, further),
            ]
        first = batch[0]
        if failure.cause is Cause.TOO_LONG and len(batch) == 1 and first.may_be_cut and further.take(1):
            shorter = await self._blocking(
                partial(
                    self._preparer.shorten,
                    first,
                    failure.told_tokens,
                    prefix=self._prefixes[order.input_type],
                    truncation=order.truncation,
                ),
                [first.text],
            )
            return await self._ask([shorter], order, further)
        self._note(failure)
        limit, told = self._description.max_tokens, self._provider.traits.name
        return [
            to_error(
                failure,
                provider=told,
                model=self._description.name,
                limit=limit,
                tokens=max(text.tokens + text.tokens_cut, limit + 1),
            )
            for text in batch
        ]

    async def _call(self, batch: list[RemoteText], order: _Order) -> list[_Vector | KbmeshError] | ProviderFailure:
        """The vectors of one HTTP call that succeeds, or why none did. Raises DeadlineExceeded and ShuttingDown."""

        async def attempt(seconds: float) -> ProviderAnswer:
            if self._closed:
                raise ShuttingDown
            answer = await self._provider.embed(
                [text.text for text in batch],
                input_type=order.input_type,
                truncation=order.truncation,
                timeout_seconds=seconds,
            )
            if len(answer.rows) != len(batch):
                raise bad_answer(f"{len(answer.rows)} vectors for {len(batch)} texts")
            return answer

        for renewed in (False, True):
            try:
                answer = await persist(
                    attempt,
                    provider=self._provider.traits.name,
                    patience=self._patience,
                    deadline=order.deadline,
                    observer=self._calls,
                    clock=self._clock,
                )
            except ProviderFailure as failed:
                failure = failed
            else:
                return self._read(batch, answer)
            if failure.cause is not Cause.CREDENTIALS or renewed or not await self._renew_key():
                break
        return failure

    def _read(self, batch: list[RemoteText], answer: ProviderAnswer) -> list[_Vector | KbmeshError]:
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

    def _note(self, failure: ProviderFailure) -> None:
        """Tells an operator, and has the model tried where it seems to be gone for good."""
        if failure.cause in DEFINITE:
            self._suspect = True
        log.warning(
            "provider_failed",
            model=self._description.name,
            provider=self._provider.traits.name,
            cause=failure.cause.value,
            status=failure.status,
            detail=failure.detail,
        )

    async def _renew_key(self) -> bool:
        """Whether there is another key by now."""
        try:
            key = await asyncio.to_thread(self._key_source.read, os.environ)
        except ApiKeyError:
            return False
        if key.get_secret_value() == self._key.get_secret_value():
            return False
        self._key = key
        self._provider.use_key(key)
        log.info("key_renewed", model=self._description.name)
        return True

    async def _blocking(self, work: Callable[[], T], texts: Sequence[str]) -> T:
        if sum(map(len, texts)) < LONG_TEXTS:
            return work()
        return await asyncio.to_thread(work)


async def _all(work: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Does all of it at once. The first that raises ends the rest."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_started(each)) for each in work]
    except BaseExceptionGroup as errors:
        first = errors.exceptions[0]
    else:
        return [task.result() for task in tasks]
    raise first


async def _started(work: Callable[[], Awaitable[T]]) -> T:
    return await work()


def _raise_what_all_have(receipts: Sequence[TextReceipt]) -> None:
    """Raises where no text has a vector, and it is nobody's fault but the vendor's: the caller is to know at once that
    it is of no use to go on."""
    errors = [receipt.error for receipt in receipts]
    if errors and all(isinstance(error, DependencyUnavailable | DependencyInvalidResponse) for error in errors):
        raise next(error for error in errors if error is not None)
