"""`externalscaler.ExternalScaler`, as KEDA calls it."""

import asyncio
import math
from collections.abc import AsyncIterator

import grpc
from externalscaler import externalscaler_pb2 as pb2
from externalscaler import externalscaler_pb2_grpc
from prometheus_client import Counter, Gauge

from kbmesh_rpc.call import optional_call
from kbmesh_rpc.errors import InvalidField, KbmeshError
from kbmesh_rpc.logs import get_logger
from kbmesh_rpc.scaler.sweep import Sweep
from kbmesh_rpc.scaler.trigger import AllowedPeers, Trigger, parse_trigger

METRIC = "kbmesh_tokens"
"""Name of the one metric there is. KEDA puts the trigger's number before it, and takes it off again when it asks."""
RESERVE_SECONDS = 0.1

TOKENS = Gauge("kbmesh_scaler_tokens", "Tokens of all replicas, waiting and running, as the scaler last summed them.")
UNANSWERED = Counter(
    "kbmesh_scaler_unanswered_total",
    "Addresses that did not answer the scaler, by what was counted for them: their last answer or the others' mean.",
    ["counted_as"],
)
for _counted_as in ("last_answer", "mean"):
    UNANSWERED.labels(_counted_as)

log = get_logger(__name__)


class ScalerServicer(externalscaler_pb2_grpc.ExternalScalerServicer):
    """Gives KEDA the tokens of all replicas. What it raises, the server turns into a status."""

    def __init__(self, sweep: Sweep, allowed: AllowedPeers, *, stream_seconds: float) -> None:
        """`stream_seconds` is how often a stream looks."""
        self._sweep = sweep
        self._allowed = allowed
        self._stream_seconds = stream_seconds

    async def IsActive(self, request: pb2.ScaledObjectRef, context: grpc.ServicerContext) -> pb2.IsActiveResponse:
        """Whether there are more tokens than the trigger's activationTokens."""
        return pb2.IsActiveResponse(result=await self._is_active(self._trigger(request)))

    async def StreamIsActive(
        self, request: pb2.ScaledObjectRef, context: grpc.ServicerContext
    ) -> AsyncIterator[pb2.IsActiveResponse]:
        """The same at once, and then whenever it changes. Where no replica answers, what was last said stays."""
        trigger = self._trigger(request)
        last: bool | None = None
        while True:
            try:
                active = await self._is_active(trigger)
            except KbmeshError as error:
                if last is None:
                    raise
                log.warning("scaler_stream_keeps_its_state", active=last, reason=error.reason, error=error.message)
                active = last
            if active != last:
                yield pb2.IsActiveResponse(result=active)
                last = active
            await asyncio.sleep(self._stream_seconds)

    async def GetMetricSpec(
        self, request: pb2.ScaledObjectRef, context: grpc.ServicerContext
    ) -> pb2.GetMetricSpecResponse:
        """The metric, and the tokens that one replica should have."""
        target = self._trigger(request).target_tokens
        spec = pb2.MetricSpec(metricName=METRIC, targetSize=math.ceil(target), targetSizeFloat=target)
        return pb2.GetMetricSpecResponse(metricSpecs=[spec])

    async def GetMetrics(self, request: pb2.GetMetricsRequest, context: grpc.ServicerContext) -> pb2.GetMetricsResponse:
        """The tokens of all replicas now."""
        trigger = self._trigger(request.scaledObjectRef)
        if request.metricName != METRIC:
            raise InvalidField("metricName", f"there is only {METRIC}")
        tokens = await self._tokens(trigger)
        value = pb2.MetricValue(metricName=METRIC, metricValue=math.ceil(tokens), metricValueFloat=tokens)
        return pb2.GetMetricsResponse(metricValues=[value])

    def _trigger(self, request: pb2.ScaledObjectRef) -> Trigger:
        return parse_trigger(dict(request.scalerMetadata), self._allowed)

    async def _is_active(self, trigger: Trigger) -> bool:
        return await self._tokens(trigger) > trigger.activation_tokens

    async def _tokens(self, trigger: Trigger) -> float:
        call = optional_call()
        left = None if call is None or call.deadline is None else call.deadline.less(RESERVE_SECONDS).remaining()
        total = await self._sweep.total(trigger.peers, timeout_seconds=left)
        TOKENS.set(total.tokens)
        UNANSWERED.labels("last_answer").inc(total.remembered)
        UNANSWERED.labels("mean").inc(total.averaged)
        return total.tokens
