"""Between the contract's messages and the domain."""

import time
from collections.abc import Mapping
from typing import TypeVar

import grpc
from kbmesh.reranker.v1 import reranker_pb2 as pb2
from kbmesh.reranker.v1 import reranker_pb2_grpc
from kbmesh_rpc.call import optional_call
from kbmesh_rpc.errors import InvalidField
from kbmesh_rpc.status import to_item_error

from kbmesh_reranker.backends.port import Method, Priority, Reading
from kbmesh_reranker.metrics import count_results
from kbmesh_reranker.models import ModelRegistry, ModelState
from kbmesh_reranker.relevance import CallLimits, Relevance, rerank

T = TypeVar("T")
WireT = TypeVar("WireT", bound=int)

PRIORITIES = {
    pb2.PRIORITY_UNSPECIFIED: Priority.INTERACTIVE,
    pb2.PRIORITY_INTERACTIVE: Priority.INTERACTIVE,
    pb2.PRIORITY_BULK: Priority.BULK,
}
MAY_CUT = {pb2.TRUNCATION_UNSPECIFIED: True, pb2.TRUNCATION_END: True, pb2.TRUNCATION_NONE: False}
METHODS = {
    Method.CROSS_ENCODER: pb2.METHOD_CROSS_ENCODER,
    Method.LATE_INTERACTION: pb2.METHOD_LATE_INTERACTION,
}


class RerankerServicer(reranker_pb2_grpc.RerankerServiceServicer):
    """Serves the models of a registry. What it raises, the server turns into a status."""

    def __init__(self, models: ModelRegistry, *, limits: CallLimits) -> None:
        self._models = models
        self._limits = limits

    async def Rerank(self, request: pb2.RerankRequest, context: grpc.ServicerContext) -> pb2.RerankResponse:
        """Scores the documents of one request."""
        backend = self._models.find(request.model)
        top_n = request.top_n if request.HasField("top_n") else None
        documents = list(request.documents)
        model = backend.description
        reranked = await rerank(
            backend,
            request.query,
            documents,
            top_n=top_n,
            limits=self._limits,
            deadline=_deadline(),
            reading=_reading(request),
        )
        count_results(model.name, reranked)
        timings = reranked.timings
        return pb2.RerankResponse(
            results=[_result(relevance) for relevance in reranked.results],
            method=METHODS[model.method],
            model=model.name,
            model_fingerprint=model.fingerprint,
            timings=pb2.Timings(
                queue_ms=timings.queue_seconds * 1000,
                tokenize_ms=timings.tokenize_seconds * 1000,
                infer_ms=timings.infer_seconds * 1000,
            ),
            query_tokens_cut=reranked.query_tokens_cut,
        )

    async def ListModels(self, request: pb2.ListModelsRequest, context: grpc.ServicerContext) -> pb2.ListModelsResponse:
        """Tells of every configured model, loaded or not."""
        return pb2.ListModelsResponse(models=[_model(state) for state in self._models.states()])


def _reading(request: pb2.RerankRequest) -> Reading:
    return Reading(
        priority=_choice(PRIORITIES, request.priority, "priority"),
        max_windows=request.max_windows if request.HasField("max_windows") else None,
        may_cut=_choice(MAY_CUT, request.truncation, "truncation"),
    )


def _choice(choices: Mapping[WireT, T], value: WireT, field: str) -> T:
    choice = choices.get(value)
    if choice is None:
        raise InvalidField(field, f"{value} is not one of its values")
    return choice


def _deadline() -> float | None:
    call = optional_call()
    if call is None or call.deadline is None:
        return None
    return time.monotonic() + call.deadline.remaining()


def _result(relevance: Relevance) -> pb2.Result:
    score = relevance.score
    return pb2.Result(
        index=relevance.index,
        logit=relevance.logit,
        probability=relevance.probability,
        max_sim=relevance.max_sim,
        receipt=pb2.Receipt(
            tokens=score.tokens,
            tokens_cut=score.tokens_cut,
            windows=score.windows,
            tokens_estimated=score.tokens_estimated,
        ),
        error=to_item_error(score.error) if score.error is not None else None,
    )


def _model(state: ModelState) -> pb2.Model:
    if state.backend is None:
        return pb2.Model(name=state.name, not_ready_reason=state.not_ready_reason, is_default=state.is_default)
    model = state.backend.description
    return pb2.Model(
        name=state.name,
        fingerprint=model.fingerprint,
        method=METHODS[model.method],
        max_tokens=model.max_tokens,
        device=model.device,
        precision=model.precision,
        backend=model.backend,
        ready=True,
        is_default=state.is_default,
    )
