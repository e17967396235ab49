"""`tei.v1.Info`: what the server runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal

import grpc
from tei.v1 import tei_pb2 as pb2
from tei.v1 import tei_pb2_grpc

DTYPES: Mapping[str, str] = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""That server's names of precisions. Others keep kbmesh's."""
MODEL_TYPES = {"embedding": pb2.MODEL_TYPE_EMBEDDING, "reranker": pb2.MODEL_TYPE_RERANKER}


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """The model that answers `tei.v1`, and its limits."""

    name: str
    fingerprint: str
    precision: str
    kind: Literal["embedding", "reranker"]
    max_tokens: int
    """Tokens of one text, special ones included."""
    batch_tokens: int
    """Tokens of one run of the model."""
    queue_tokens: int
    """Tokens that may wait."""
    max_texts: int
    """Texts of one call."""
    tokenizing_threads: int


class InfoServicer(tei_pb2_grpc.InfoServicer):
    """Describes the model. Raises ModelNotReady while it is loading."""

    def __init__(self, model: Callable[[], ServedModel]) -> None:
        self._model = model
        self._version = version("kbmesh-rpc")

    async def Info(self, request: pb2.InfoRequest, context: grpc.ServicerContext) -> pb2.InfoResponse:
        """Model and limits."""
        model = self._model()
        return pb2.InfoResponse(
            version=self._version,
            model_id=model.name,
            model_sha=model.fingerprint,
            model_dtype=DTYPES.get(model.precision, model.precision),
            model_type=MODEL_TYPES[model.kind],
            # The queue is one of tokens: so many texts of full length it holds. Shorter ones are more.
            max_concurrent_requests=max(1, model.queue_tokens // model.max_tokens),
            max_input_length=model.max_tokens,
            max_batch_tokens=model.batch_tokens,
            max_client_batch_size=model.max_texts,
            tokenization_workers=model.tokenizing_threads,
        )
