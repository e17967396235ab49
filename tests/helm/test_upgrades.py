"""What happens to calls and pods when a new version comes, or a node goes."""

import pytest
from helm.matrix import EVERYTHING_ON, EXAMPLES
from helm.rendered import Helm

POSTGRES = {"catalog": {"kind": "external", "existingSecret": "catalog"}}
SURGE = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
NO_SPARE = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}


@pytest.mark.parametrize("component", ["embedder", "reranker"])
def test_hlm_03_a_new_version_needs_no_spare_gpu(helm: Helm, component: str) -> None:
    """HLM-03: with every GPU in use, a pod that has to come before the old one goes would wait for ever."""
    rendered = helm.render({component: {"gpu": {"count": 1}, "replicas": 1}})
    assert rendered.one("Deployment", component)["spec"]["strategy"] == NO_SPARE


@pytest.mark.parametrize("strategy", [{"type": "Recreate"}, SURGE])
def test_hlm_03_the_strategy_can_be_chosen(helm: Helm, strategy: dict[str, object]) -> None:
    rendered = helm.render({"embedder": {"gpu": {"count": 1}, "strategy": strategy}})
    assert rendered.one("Deployment", "embedder")["spec"]["strategy"] == strategy


@pytest.mark.parametrize("component", ["retriever", "chunker", "embedder", "reranker"])
def test_hlm_06_one_replica_on_cpu_is_replaced_without_a_gap(helm: Helm, component: str) -> None:
    """HLM-06: the new one is ready before the old one goes, which drains; and a node can still be drained."""
    rendered = helm.render(POSTGRES)
    deployment = rendered.one("Deployment", component)
    pod = rendered.pod(component)
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == SURGE
    assert pod.main["readinessProbe"]["grpc"]["service"]
    assert pod.main["lifecycle"]["preStop"]["sleep"]["seconds"] == 5
    assert pod.spec["terminationGracePeriodSeconds"] > 30
    assert rendered.one("PodDisruptionBudget", component)["spec"]["maxUnavailable"] == 1


def test_hlm_06_the_drain_can_be_chosen(helm: Helm) -> None:
    pod = helm.render({"embedder": {"drain": {"preStopSeconds": 20, "graceSeconds": 300}}}).pod("embedder")
    assert pod.main["lifecycle"]["preStop"]["sleep"]["seconds"] == 20
    assert pod.spec["terminationGracePeriodSeconds"] == 330
    assert {"name": "KBMESH_GRACE_SECONDS", "value": "300"} in pod.main["env"]


def test_two_processes_never_share_a_sqlite_file(helm: Helm) -> None:
    deployment = helm.render().one("Deployment", "retriever")
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}


def test_the_store_for_trying_out_never_runs_twice(helm: Helm) -> None:
    for manifest in (
        helm.render().one("StatefulSet", "edge"),
        *helm.render(EXAMPLES["trial-stores"]).of_kind("StatefulSet"),
    ):
        assert manifest["spec"]["replicas"] == 1


def test_a_job_that_changes_is_another_job(helm: Helm) -> None:
    """Jobs cannot be changed: the name of one carries what it does, and stays where that stays."""

    def name(values: dict[str, object], component: str) -> str:
        found: str = helm.render(values).one("Job", component)["metadata"]["name"]
        return found

    ingest = {"enabled": True, "knowledgeBase": "a", "manifest": "/m"}
    assert name({"ingest": ingest}, "ingest") == name({"ingest": ingest, "chunker": {"replicas": 2}}, "ingest")
    assert name({"ingest": ingest}, "ingest") != name({"ingest": {**ingest, "shards": 2}}, "ingest")
    models = {"source": "claim"}
    assert name({"models": models}, "models") != name({"models": models, "embedder": {"model": "other"}}, "models")


@pytest.mark.parametrize(
    "change",
    [
        {"pods": {"labels": {"team": "search"}}},
        {"images": {"tag": "9", "pullSecrets": ["registry"]}},
        {"serviceAccount": {"name": "other"}},
        {"priorityClasses": {"create": True}},
    ],
)
def test_a_job_of_the_same_name_is_the_same_job(helm: Helm, change: dict[str, object]) -> None:
    """The API server refuses an upgrade that changes a Job's template, so that any change must show in the name."""
    values = {
        "models": {"source": "claim"},
        "ingest": {"enabled": True, "knowledgeBase": "a", "manifest": "/m"},
    }
    for component in ("models", "ingest"):
        before = helm.render(values).one("Job", component)
        after = helm.render({**values, **change}).one("Job", component)
        same_name = before["metadata"]["name"] == after["metadata"]["name"]
        assert same_name == (before["spec"] == after["spec"])
        assert not same_name


def test_rendering_twice_gives_the_same(helm: Helm) -> None:
    # A password or a date made while rendering would restart pods at each upgrade.
    other = {**EVERYTHING_ON, "tests": {"enabled": True}}
    assert helm.render(EVERYTHING_ON).manifests == helm.render(other).manifests


def test_helm_test_asks_the_retriever(helm: Helm) -> None:
    pod = helm.render().one("Pod", "test")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    (container,) = pod["spec"]["containers"]
    assert container["args"] == ["doctor"]
    assert {"name": "KBMESH_ENDPOINT", "value": "demo-kbmesh-retriever:7400"} in container["env"]
