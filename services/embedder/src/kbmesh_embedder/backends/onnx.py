"""An exported encoder, run by ONNX Runtime in this process."""

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from kbmesh_onnx.batcher import Batcher, BatchObserver, QueueLimits
from kbmesh_onnx.device_loss import telling_device_loss
from kbmesh_onnx.device_settings import DEFAULT_SETTINGS, DeviceSettings
from kbmesh_onnx.errors import DeviceUnavailable, ModelFolderError, TextError
from kbmesh_onnx.errors import TextTooLong as TextTooLongForModel
from kbmesh_onnx.folder import ModelCard, load_card
from kbmesh_onnx.golden import check_golden
from kbmesh_onnx.padding import pad
from kbmesh_onnx.session import ModelSession
from kbmesh_onnx.token_estimate import estimate_tokens
from kbmesh_onnx.token_reader import TokenReader
from kbmesh_onnx.tokenizer import ModelTokenizer, TokenizedText
from kbmesh_onnx.tokenizing import TokenizingLane
from kbmesh_onnx.warm_up import warm_up_shapes
from kbmesh_rpc.errors import EmptyText, InvalidField, KbmeshError, TextTooLong
from numpy.typing import NDArray

from kbmesh_embedder.backends.port import (
    Embeddings,
    InputType,
    ModelDescription,
    Priority,
    TokenCount,
    Truncation,
)
from kbmesh_embedder.backends.queued import ReadyText, embed_ready, queue_errors, reserved, tenant
from kbmesh_embedder.backends.raw import ModelInput, RawEmbedding, TokenVectors


class OnnxBackend:
    """One model folder, loaded. Tokenises in threads of its own and infers in the batcher's.

    Interactive calls, bulk calls and counting have a tokenising thread each, so that none waits for another's texts.
    """

    def __init__(
        self,
        name: str,
        card: ModelCard,
        tokenizer: ModelTokenizer,
        session: ModelSession,
        *,
        limits: QueueLimits,
        observer: BatchObserver | None = None,
    ) -> None:
        self._card = card
        self._tokenizer = tokenizer
        self._session = session
        self._batch_tokens = limits.batch_tokens
        self._prefixes = {InputType.QUERY: card.query_prefix, InputType.DOCUMENT: card.document_prefix}
        self._tokens_of_nothing = {
            input_type: tokenizer.count([""], prefix)[0] for input_type, prefix in self._prefixes.items()
        }
        self._embed_lanes = {
            Priority.INTERACTIVE: TokenizingLane("interactive"),
            Priority.BULK: TokenizingLane("bulk", in_order=True),
        }
        self._count_lane = TokenizingLane("count")
        self._token_reader = TokenReader(tokenizer)
        self._batcher: Batcher[ModelInput, NDArray[np.float32]] = Batcher(
            self._run,
            limits=limits,
            observer=observer,
        )
        self._description = ModelDescription(
            name=name,
            fingerprint=card.fingerprint_in(session.precision),
            dimension=card.dimension,
            max_tokens=card.max_tokens,
            pooling=card.pooling,
            normalized=card.normalized,
            matryoshka_dimensions=card.matryoshka_dimensions,
            query_prefix=card.query_prefix,
            document_prefix=card.document_prefix,
            device=session.device_text,
            precision=session.precision,
            backend="onnx",
        )

    @classmethod
    def open(
        cls,
        name: str,
        folder: Path,
        *,
        device: Literal["cpu", "cuda", "auto"],
        require_device: Literal["", "cpu", "cuda"],
        threads: int,
        limits: QueueLimits,
        observer: BatchObserver | None = None,
        device_settings: DeviceSettings = DEFAULT_SETTINGS,
    ) -> "OnnxBackend":
        """Loads a model folder; blocks. Raises ModelFolderError and DeviceUnavailable, which say what is wrong."""
        card = load_card(folder)
        if card.kind != "encoder":
            raise ModelFolderError(f"{folder} holds a {card.kind}; the embedder needs an encoder")
        tokenizer = ModelTokenizer.load(folder, card)
        wanted = require_device if device == "auto" and require_device else device
        session = ModelSession.open(folder, card, device=wanted, intra_op_threads=threads, settings=device_settings)
        if require_device and session.device.partition(":")[0] != require_device:
            raise DeviceUnavailable(
                require_device, available=(session.device,), message=f"{name} is on {session.device}"
            )
        return cls(name, card, tokenizer, session, limits=limits, observer=observer)

    @property
    def description(self) -> ModelDescription:
        return self._description

    @property
    def fault(self) -> str:
        return self._batcher.fault

    @property
    def suspect(self) -> bool:
        return self._batcher.suspect

    @property
    def token_reader(self) -> TokenReader:
        return self._token_reader

    async def warm_up(self) -> None:
        """Runs texts of all lengths, alone and in full batches, so that the first caller meets a model that is ready.

        Raises ModelFolderError where the vectors are not what the card says, those of the golden texts first.
        """
        card, special = self._card, self._tokenizer.special_tokens
        await asyncio.to_thread(check_golden, self._session, self._tokenizer, card)
        for texts, tokens in warm_up_shapes(max_tokens=card.max_tokens, batch_tokens=self._batch_tokens):
            embeddings = await self.embed(
                [" ".join(["warm"] * (tokens - special))] * texts,
                input_type=InputType.DOCUMENT,
                truncation=Truncation.END,
                priority=Priority.INTERACTIVE,
                deadline=None,
            )
            lengths = np.linalg.norm(embeddings.vectors, axis=1)
            if not np.all(lengths > 0) or (card.normalized and not np.allclose(lengths, 1, atol=1e-3)):
                raise ModelFolderError(f"{self._description.name} gives vectors of length {lengths.tolist()}")

    async def embed(
        self,
        texts: Sequence[str],
        *,
        input_type: InputType,
        truncation: Truncation,
        priority: Priority,
        deadline: float | None,
    ) -> Embeddings:
        estimate = estimate_tokens(texts, prefix=self._prefixes[input_type], max_tokens=self._card.max_tokens)
        model = self._description.name
        with reserved(self._batcher, estimate, priority=priority, deadline=deadline, model=model) as reservation:
            started = time.monotonic()
            tokenize = partial(self._tokenize, input_type=input_type, truncation=truncation)
            ready = await self._embed_lanes[priority].run(tokenize, texts, deadline=deadline, tenant=reservation.tenant)
            return await embed_ready(
                self._batcher,
                ready,
                self._description,
                reservation=reservation,
                deadline=deadline,
                tokenize_seconds=time.monotonic() - started,
            )

    async def embed_raw(
        self, text: str, *, prompt: str, truncation: Truncation, token_vectors: bool, deadline: float | None
    ) -> RawEmbedding:
        wanted = TokenVectors() if token_vectors else None
        estimate = estimate_tokens([text], prefix=prompt, max_tokens=self._card.max_tokens)
        lane, model = Priority.INTERACTIVE, self._description.name
        with reserved(self._batcher, estimate, priority=lane, deadline=deadline, model=model) as reservation:
            started = time.monotonic()
            tokenize = partial(self._tokenize_raw, prompt=prompt, truncation=truncation, wanted=wanted)
            embeddings = await embed_ready(
                self._batcher,
                await self._embed_lanes[Priority.INTERACTIVE].run(
                    tokenize, [text], deadline=deadline, tenant=reservation.tenant
                ),
                self._description,
                reservation=reservation,
                deadline=deadline,
                tokenize_seconds=time.monotonic() - started,
            )
        receipt = embeddings.receipts[0]
        if receipt.error is not None:
            raise receipt.error
        return RawEmbedding(
            vector=embeddings.vectors[0],
            token_vectors=(wanted or TokenVectors()).rows,
            receipt=receipt,
            timings=embeddings.timings,
        )

    async def count_tokens(
        self, texts: Sequence[str], *, input_type: InputType, with_offsets: bool
    ) -> tuple[TokenCount, ...]:
        count = partial(self._count, input_type=input_type, with_offsets=with_offsets)
        with queue_errors():
            return tuple(await self._count_lane.run(count, texts, tenant=tenant()))

    async def close(self) -> None:
        await self._batcher.close()
        for lane in (*self._embed_lanes.values(), self._count_lane):
            lane.close()
        self._token_reader.close()
        self._session.close()

    def _tokenize(
        self, texts: Sequence[str], start: int, *, input_type: InputType, truncation: Truncation
    ) -> list[ReadyText[ModelInput] | KbmeshError]:
        tokenized = self._tokenizer.try_encode(
            texts,
            prefix=self._prefixes[input_type],
            max_tokens=self._card.max_tokens,
            truncation=truncation.value,
        )
        return [self._ready(index, text, input_type) for index, text in enumerate(tokenized, start)]

    def _tokenize_raw(
        self, texts: Sequence[str], start: int, *, prompt: str, truncation: Truncation, wanted: TokenVectors | None
    ) -> list[ReadyText[ModelInput] | KbmeshError]:
        tokenized = self._tokenizer.try_encode(
            texts, prefix=prompt, max_tokens=self._card.max_tokens, truncation=truncation.value
        )
        return [
            _text_error(index, text)
            if isinstance(text, TextError)
            else ReadyText(
                payload=ModelInput(text=text, token_vectors=wanted), tokens=text.tokens, tokens_cut=text.tokens_cut
            )
            for index, text in enumerate(tokenized, start)
        ]

    def _ready(
        self, index: int, text: TokenizedText | TextError, input_type: InputType
    ) -> ReadyText[ModelInput] | KbmeshError:
        if isinstance(text, TextError):
            return _text_error(index, text)
        # Nothing but control characters, say: the model would give the vector of no text at all.
        if text.tokens + text.tokens_cut <= self._tokens_of_nothing[input_type]:
            return EmptyText(f"texts[{index}]")
        return ReadyText(payload=ModelInput(text=text), tokens=text.tokens, tokens_cut=text.tokens_cut)

    def _count(
        self, texts: Sequence[str], start: int, *, input_type: InputType, with_offsets: bool
    ) -> tuple[TokenCount, ...]:
        counts = self._tokenizer.count(texts, self._prefixes[input_type])
        if not with_offsets:
            return tuple(TokenCount(tokens=count) for count in counts)
        offsets = [self._tokenizer.offsets(text) for text in texts]
        return tuple(
            TokenCount(tokens=count, starts=tuple(starts.tolist()), ends=tuple(ends.tolist()))
            for count, (starts, ends) in zip(counts, offsets, strict=True)
        )

    @telling_device_loss()
    def _run(self, inputs: list[ModelInput]) -> list[NDArray[np.float32]]:
        ids, mask, type_ids = pad([each.text for each in inputs])
        if all(each.token_vectors is None for each in inputs):
            (vectors,) = self._session.run(ids, mask, type_ids, outputs=("embeddings",))
            return list(vectors)
        vectors, hidden = self._session.run(ids, mask, type_ids, outputs=("embeddings", "token_embeddings"))
        for row, each in enumerate(inputs):
            if each.token_vectors is not None:
                # A copy, so that it does not keep the whole batch in memory.
                each.token_vectors.rows = hidden[row, : each.text.tokens].copy()
        return list(vectors)


def _text_error(index: int, error: TextError) -> KbmeshError:
    if isinstance(error, TextTooLongForModel):
        return TextTooLong(tokens=error.tokens, limit=error.limit)
    return InvalidField(f"texts[{index}]", error.message)
