"""KEDA asks the reranker, a process, how much work there is."""

from pathlib import Path

import grpc
from externalscaler import externalscaler_pb2 as pb2
from externalscaler.externalscaler_pb2_grpc import ExternalScalerStub
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from kbmesh.load.v1 import load_pb2
from kbmesh.load.v1.load_pb2_grpc import LoadServiceStub
from kbmesh_rpc.errors import Reason
from kbmesh_rpc.status import from_rpc_error
from tei_process import service_process

METRIC = "kbmesh_tokens"


def scaled_object(**metadata: str) -> pb2.ScaledObjectRef:
    return pb2.ScaledObjectRef(name="reranker", namespace="kbmesh", scalerMetadata=metadata)


def test_a_process_answers_keda(tmp_path: Path) -> None:
    log = tmp_path / "reranker.log"
    with (
        service_process("kbmesh_reranker", log=log, backend="fake", model="first") as target,
        grpc.insecure_channel(target) as channel,
    ):
        keda = ExternalScalerStub(channel)
        trigger = scaled_object(targetTokens="500", peers=target, scalerAddress=target)
        (spec,) = keda.GetMetricSpec(trigger).metricSpecs
        assert (spec.metricName, spec.targetSizeFloat) == (METRIC, 500)
        (value,) = keda.GetMetrics(pb2.GetMetricsRequest(scaledObjectRef=trigger, metricName=METRIC)).metricValues
        assert (value.metricName, value.metricValue, value.metricValueFloat) == (METRIC, 0, 0)
        assert not keda.IsActive(trigger).result
        (model,) = LoadServiceStub(channel).GetLoad(load_pb2.GetLoadRequest()).models
        assert model.model == "first"
        # A name without a replica behind it is an error, not an idle service.
        try:
            keda.IsActive(scaled_object(targetTokens="500", peers="127.0.0.1:1"))
        except grpc.RpcError as error:
            refusal = from_rpc_error(error, dependency="reranker")
        assert refusal.reason is Reason.DEPENDENCY_UNAVAILABLE


def test_health_and_reflection_know_what_is_served(tmp_path: Path) -> None:
    log = tmp_path / "reranker.log"
    with (
        service_process("kbmesh_reranker", log=log, backend="fake") as target,
        grpc.insecure_channel(target) as channel,
    ):
        names = set(ProtoReflectionDescriptorDatabase(channel).get_services())
        assert {
            "externalscaler.ExternalScaler",
            "kbmesh.load.v1.LoadService",
            "kbmesh.reranker.v1.RerankerService",
            "tei.v1.Info",
            "tei.v1.Rerank",
            "tei.v1.Tokenize",
        } <= names
        assert not names & {"tei.v1.Embed", "tei.v1.Predict"}
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("tei.v1.Rerank", "externalscaler.ExternalScaler"):
            answer = health.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
