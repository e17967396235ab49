"""Who decides on the number of replicas: the values, an HPA or KEDA, and never two of them."""

from typing import Any

import pytest
from helm.matrix import EVERYTHING_ON, EXAMPLES
from helm.rendered import Helm, Rendered

POSTGRES = {"catalog": {"kind": "external", "existingSecret": "catalog"}}
COMPONENTS = ("retriever", "chunker", "embedder", "reranker")
SCALERS = {"hpa": "HorizontalPodAutoscaler", "keda": "ScaledObject"}


@pytest.mark.parametrize("by", SCALERS)
@pytest.mark.parametrize("component", COMPONENTS)
def test_hlm_02_replicas_are_not_rendered_beside_a_scaler(helm: Helm, component: str, by: str) -> None:
    """HLM-02: replicas beside a scaler would scale back at each upgrade."""
    rendered = helm.render({**POSTGRES, component: {"autoscaling": {"by": by}, "replicas": 3}})
    deployment = rendered.one("Deployment", component)
    assert "replicas" not in deployment["spec"]
    scaler = rendered.one(SCALERS[by], component)
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    others = [kind for name, kind in SCALERS.items() if name != by]
    assert rendered.of_kind(*others) == []


@pytest.mark.parametrize("component", COMPONENTS)
def test_hlm_02_replicas_are_rendered_without_one(helm: Helm, component: str) -> None:
    rendered = helm.render({**POSTGRES, component: {"replicas": 3}})
    assert rendered.one("Deployment", component)["spec"]["replicas"] == 3
    assert rendered.of_kind(*SCALERS.values()) == []


@pytest.mark.parametrize("component", ["embedder", "reranker"])
def test_keda_asks_the_service_and_never_scales_to_zero(helm: Helm, component: str) -> None:
    rendered = helm.render(EXAMPLES["gpu-keda"])
    spec = rendered.one("ScaledObject", component)["spec"]
    (trigger,) = spec["triggers"]
    host, _, port = trigger["metadata"]["scalerAddress"].partition(":")
    service = rendered.one("Deployment", component)["metadata"]["name"]
    assert trigger["type"] == "external"
    assert host == f"{service}.search.svc"
    assert port == {"embedder": "7402", "reranker": "7403"}[component]
    assert spec["minReplicaCount"] >= 1


@pytest.mark.parametrize("component", ["embedder", "reranker"])
def test_the_service_understands_the_trigger(helm: Helm, component: str) -> None:
    """The scaler refuses keys that it does not know: the chart's are given to the code that reads them."""
    from kbmesh_rpc.scaler.trigger import KEDA_KEYS, OWN_KEYS, TARGET_KEY

    (trigger,) = helm.render(EXAMPLES["gpu-keda"]).one("ScaledObject", component)["spec"]["triggers"]
    assert set(trigger["metadata"]) <= KEDA_KEYS | set(OWN_KEYS)
    assert float(trigger["metadata"][TARGET_KEY]) == 100000
    assert all(isinstance(value, str) for value in trigger["metadata"].values())


def test_hpas_of_models_follow_tokens_and_others_cpu(helm: Helm) -> None:
    rendered = helm.render(EXAMPLES["cpu-hpa"])
    metrics = {component: _metric(rendered, component) for component in COMPONENTS}
    assert metrics["embedder"]["pods"]["metric"]["name"] == "kbmesh_embedder_load_tokens"
    assert metrics["embedder"]["pods"]["target"] == {"type": "AverageValue", "averageValue": "20000"}
    assert metrics["reranker"]["pods"]["metric"]["name"] == "kbmesh_reranker_load_tokens"
    for component in ("retriever", "chunker"):
        assert metrics[component]["resource"]["name"] == "cpu"
        # A share of the request: without one there would be nothing to compute it from.
        assert rendered.pod(component).main["resources"]["requests"]["cpu"]


def _metric(rendered: Rendered, component: str) -> dict[str, Any]:
    (metric,) = rendered.one("HorizontalPodAutoscaler", component)["spec"]["metrics"]
    found: dict[str, Any] = metric
    return found


def test_replicas_go_slowly(helm: Helm) -> None:
    behavior = helm.render(EXAMPLES["cpu-hpa"]).one("HorizontalPodAutoscaler", "embedder")["spec"]["behavior"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] == 300
    assert behavior["scaleUp"]["stabilizationWindowSeconds"] == 0


def test_the_ingest_worker_scales_to_zero(helm: Helm) -> None:
    job = helm.render(EXAMPLES["nightly-ingest"]).one("ScaledJob", "ingest")
    assert job["spec"]["minReplicaCount"] == 0
    assert job["spec"]["triggers"][0]["type"] == "cron"
    assert job["spec"]["jobTargetRef"]["completionMode"] == "Indexed"


def test_connections_age_where_calls_are_short(helm: Helm) -> None:
    """New replicas get their share only once old connections close. An Ingest stream would be cut by it."""
    ages = {
        pod.component: int(entry["value"])
        for pod in helm.render(EVERYTHING_ON).servers()
        for entry in pod.main["env"]
        if entry["name"] == "KBMESH_MAX_CONNECTION_AGE_SECONDS"
    }
    assert ages == {"retriever": 0, "chunker": 60, "embedder": 60, "reranker": 60}


def test_a_connection_that_ages_cuts_no_call_short(helm: Helm) -> None:
    """Calls in flight have the grace, which must hold the longest call that the retriever makes."""
    from kbmesh_retriever.settings import RetrieverSettings

    rendered = helm.render()
    for component, field in (("chunker", "chunk"), ("embedder", "embed"), ("reranker", "rerank")):
        (grace,) = [e["value"] for e in rendered.pod(component).main["env"] if e["name"] == "KBMESH_GRACE_SECONDS"]
        assert float(grace) >= RetrieverSettings.model_fields[f"{field}_timeout_seconds"].default
