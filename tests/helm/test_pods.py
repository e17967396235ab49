"""What holds for every pod of the chart, whatever the values: what it may do and use, and how it is looked after."""

import pytest
from helm.matrix import EVERYTHING_OFF, EVERYTHING_ON, EXAMPLES
from helm.rendered import Helm, Pod, Rendered, walk

JOBS = {"ingest", "models", "test"}
"""Components whose pods end by themselves."""


def test_pods_run_as_somebody_who_may_do_nothing(rendered: Rendered) -> None:
    for pod in rendered.pods():
        security = pod.spec["securityContext"]
        assert security["runAsNonRoot"] is True, pod
        assert security["runAsUser"] > 0, pod
        assert security["runAsGroup"] > 0, pod
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, pod
        for container in pod.containers:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "runAsNonRoot": True,
                "capabilities": {"drop": ["ALL"]},
            }, (pod, container["name"])


def test_pods_have_no_way_into_the_cluster(rendered: Rendered) -> None:
    for pod in rendered.pods():
        assert pod.spec["automountServiceAccountToken"] is False, pod
        for forbidden in ("hostNetwork", "hostPID", "hostIPC"):
            assert forbidden not in pod.spec, pod
        assert not any("hostPath" in volume for volume in pod.spec["volumes"]), pod
    assert not rendered.of_kind("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    for account in rendered.of_kind("ServiceAccount"):
        assert account["automountServiceAccountToken"] is False


def test_service_links_do_not_become_settings(rendered: Rendered) -> None:
    # A release that is called kbmesh would otherwise set KBMESH_PORT=tcp://… in every pod.
    assert all(pod.spec["enableServiceLinks"] is False for pod in rendered.pods())


def test_memory_is_limited(rendered: Rendered) -> None:
    for pod in rendered.pods():
        for container in pod.containers:
            assert container["resources"]["limits"]["memory"], (pod, container["name"])


def test_servers_have_three_probes_by_grpc(rendered: Rendered) -> None:
    assert rendered.servers()
    for pod in rendered.servers():
        ports = {port["name"]: port["containerPort"] for port in pod.main["ports"]}
        asked = ports.get("health", ports["grpc"])
        startup, readiness, liveness = (pod.main[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness"))
        assert {probe["grpc"]["port"] for probe in (startup, readiness, liveness)} == {asked}, pod
        # GRP-10: a model that is not there yet must not end the process: only `liveness` may.
        assert startup["grpc"]["service"] == liveness["grpc"]["service"] == "liveness", pod
        assert readiness["grpc"]["service"] not in {"", "liveness"}, pod


def test_grp_10_a_long_load_restarts_no_pod(helm: Helm) -> None:
    """GRP-10: a model that loads for three minutes keeps a pod unready; neither startup nor liveness wait for it."""
    for component in ("embedder", "reranker"):
        pod = helm.render().pod(component)
        for probe in ("startupProbe", "livenessProbe"):
            assert pod.main[probe]["grpc"]["service"] == "liveness"
        assert pod.main["readinessProbe"]["grpc"]["service"] not in {"", "liveness"}
        startup = pod.main["startupProbe"]
        assert startup["failureThreshold"] * startup["periodSeconds"] == 60, "for the process alone"


def test_stores_have_three_probes(helm: Helm) -> None:
    rendered = helm.render(EXAMPLES["trial-stores"])
    for component in ("qdrant", "postgres"):
        assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(rendered.pod(component).main)


def test_what_is_written_goes_to_a_volume(rendered: Rendered) -> None:
    for pod in rendered.pods():
        volumes = {volume["name"] for volume in pod.spec["volumes"]}
        for container in pod.containers:
            mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
            assert mounts["/tmp"] == "tmp", (pod, container["name"])
            assert set(mounts.values()) <= volumes, (pod, container["name"])


def test_the_kill_comes_after_the_drain(rendered: Rendered) -> None:
    for pod in rendered.servers():
        (grace,) = [e["value"] for e in pod.main["env"] if e["name"] == "KBMESH_GRACE_SECONDS"]
        sleep = pod.main.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        assert pod.spec["terminationGracePeriodSeconds"] == sleep + float(grace) + 10, pod


def test_fractions_of_seconds_are_not_lost(helm: Helm) -> None:
    pod = helm.render({"chunker": {"drain": {"preStopSeconds": 3, "graceSeconds": 2.5}}}).pod("chunker")
    assert pod.spec["terminationGracePeriodSeconds"] == 16


@pytest.mark.parametrize("component", ["embedder", "reranker"])
def test_only_who_asks_has_a_device(helm: Helm, component: str) -> None:
    rendered = helm.render({component: {"gpu": {"count": 1}}})
    with_device = [pod for pod in rendered.pods() if _devices(pod)]
    assert [pod.component for pod in with_device] == [component]
    assert _devices(with_device[0]) == {"nvidia.com/gpu": "1"}
    environment = {entry["name"]: entry.get("value") for entry in with_device[0].main["env"]}
    assert environment["KBMESH_REQUIRE_DEVICE"] == environment["KBMESH_DEVICE"] == "cuda"
    assert f"kbmesh-{component}-cuda" in with_device[0].main["image"]


def test_without_devices_nothing_speaks_of_them(helm: Helm) -> None:
    for values in ({}, EVERYTHING_OFF, EXAMPLES["cpu-hpa"], EXAMPLES["trial-stores"]):
        rendered = helm.render(values)
        assert not [pod for pod in rendered.pods() if _devices(pod)]
        names = {entry["name"] for pod in rendered.pods() for entry in pod.main.get("env", [])}
        assert "KBMESH_REQUIRE_DEVICE" not in names


def test_a_slice_of_a_gpu_is_asked_for_by_name(helm: Helm) -> None:
    rendered = helm.render(EXAMPLES["mig"])
    assert _devices(rendered.pod("embedder")) == {"nvidia.com/mig-3g.40gb": "1"}
    assert _devices(rendered.pod("reranker")) == {"nvidia.com/mig-1g.10gb": "1"}


def test_hlm_04_devices_stand_in_the_limits_alone(rendered: Rendered) -> None:
    """HLM-04: a device under requests alone, or in another number than under limits, is refused by the API server."""
    for pod in rendered.pods():
        for container in pod.containers:
            assert not [name for name in container["resources"].get("requests", {}) if "/" in name], pod


def _devices(pod: Pod) -> dict[str, str]:
    limits = [container["resources"]["limits"] for container in pod.containers]
    return {name: count for each in limits for name, count in each.items() if "/" in name}


def test_pods_go_where_they_are_told(helm: Helm) -> None:
    rendered = helm.render(EVERYTHING_ON)
    for pod in rendered.pods():
        if pod.component in {"models", "test"}:
            continue
        assert pod.spec["nodeSelector"] == {"pool": "kbmesh"}, pod
        assert pod.spec["tolerations"][0]["key"] == "pool", pod
        assert "nodeAffinity" in pod.spec["affinity"], pod
        assert pod.spec["runtimeClassName"] == "gvisor", pod
        assert pod.spec["priorityClassName"] == "important", pod
        assert pod.spec["imagePullSecrets"] == [{"name": "registry"}], pod
        assert pod.labels["team"] == "search", pod
        assert pod.labels["cost-center"] == "42", pod
        assert pod.metadata["annotations"] == {"note": "all", "sidecar.istio.io/inject": "false"}, pod
        names = [entry["name"] for entry in pod.main["env"]]
        assert {"TZ", "SSL_CERT_FILE"} <= set(names), pod


def test_replicas_are_kept_apart(helm: Helm) -> None:
    for when, spread in (("ScheduleAnyway", "soft"), ("DoNotSchedule", "hard")):
        pod = helm.render({"pods": {"topologySpread": spread}}).pod("embedder")
        constraints = pod.spec["topologySpreadConstraints"]
        assert {each["topologyKey"] for each in constraints} == {
            "topology.kubernetes.io/zone",
            "kubernetes.io/hostname",
        }
        assert {each["whenUnsatisfiable"] for each in constraints} == {when}
        assert all(each["labelSelector"]["matchLabels"].items() <= pod.labels.items() for each in constraints)


def test_bulk_work_never_pushes_queries_out(helm: Helm) -> None:
    values = {
        "priorityClasses": {"create": True},
        "ingest": {"enabled": True, "knowledgeBase": "a", "manifest": "/m"},
    }
    rendered = helm.render(values)
    classes = {each["metadata"]["name"]: each for each in rendered.of_kind("PriorityClass")}
    bulk = classes[rendered.pod("ingest").spec["priorityClassName"]]
    serving = classes[rendered.pod("retriever").spec["priorityClassName"]]
    assert bulk["value"] < serving["value"]
    assert bulk["preemptionPolicy"] == "Never"


def test_shared_memory_and_caches(helm: Helm) -> None:
    rendered = helm.render(EVERYTHING_ON)
    pod = rendered.pod("embedder")
    volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in pod.main["volumeMounts"]}
    assert volumes["shared-memory"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "2Gi"}
    assert mounts["shared-memory"] == "/dev/shm"
    assert volumes["cache"]["persistentVolumeClaim"]["claimName"] == "engines"
    environment = {entry["name"]: entry.get("value") for entry in pod.main["env"]}
    for name in ("HF_HOME", "CUDA_CACHE_PATH"):
        assert str(environment[name]).startswith(mounts["cache"])


def test_images_by_digest_registry_and_tag(helm: Helm) -> None:
    rendered = helm.render(EVERYTHING_ON)
    digest = "sha256:" + "0" * 64
    assert rendered.pod("chunker").main["image"] == f"registry.internal/kbmesh/kbmesh-chunker@{digest}"
    assert rendered.pod("embedder").main["image"] == "registry.internal/kbmesh/kbmesh-embedder-cuda:1.2.3"
    assert rendered.pod("ingest").main["image"] == f"registry.internal/kbmesh/kbmesh-cli@{digest}"
    assert helm.render().pod("reranker").main["image"] == "kbmesh-reranker-cpu:0.1.0"
    values = {**EXAMPLES["trial-stores"], "vectorStore": {"kind": "trial", "trial": {"image": {"digest": digest}}}}
    assert helm.render(values).pod("qdrant").main["image"] == f"docker.io/qdrant/qdrant@{digest}"


@pytest.mark.parametrize("source", ["pull", "claim", "image", "none"])
def test_models_come_from_where_they_are_said_to(helm: Helm, source: str) -> None:
    values = {"models": {"source": source, "image": {"reference": "models:1"}, "folder": "v2"}}
    pod = helm.render(values).pod("embedder")
    volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
    assert ("models" in volumes) == (source != "none")
    if source == "none":
        return
    (mount,) = [mount for mount in pod.main["volumeMounts"] if mount["name"] == "models"]
    assert mount == {"name": "models", "mountPath": "/models", "readOnly": True}
    assert {"name": "KBMESH_MODELS", "value": "/models/v2"} in pod.main["env"]
    kinds = {"pull": "emptyDir", "claim": "persistentVolumeClaim", "image": "image"}
    assert kinds[source] in volumes["models"]
    assert [each["args"] for each in pod.spec.get("initContainers", [])] == (
        [["models", "pull", "all-MiniLM-L6-v2"]] if source == "pull" else []
    )


def test_several_models_are_pulled_one_after_the_other(helm: Helm) -> None:
    pod = helm.render({"embedder": {"model": "a,b"}}).pod("embedder")
    assert [each["args"][-1] for each in pod.spec["initContainers"]] == ["a", "b"]
    job = helm.render({"embedder": {"model": "a,b"}, "models": {"source": "claim"}}).pod("models")
    assert [each["args"][-1] for each in job.containers] == ["a", "b", "all-MiniLM-L6-v2"]
    assert len({each["name"] for each in job.containers}) == 3


def test_numbers_are_written_out(helm: Helm) -> None:
    # Go would print 1048576 as 1.048576e+06, which is no integer to the embedder.
    pod = helm.render(EVERYTHING_ON).pod("embedder")
    environment = {entry["name"]: entry.get("value") for entry in pod.main["env"]}
    assert environment["KBMESH_BATCH_TOKENS"] == "1048576"
    assert environment["KBMESH_BULK_SHARE"] == "0.5"
    assert environment["KBMESH_LOG_LEVEL"] == "debug"


def test_nothing_is_empty(rendered: Rendered) -> None:
    """A key without a value is a template that went wrong, and is dropped or refused by the API server."""
    allowed = {"emptyDir", "podSelector", "value", "clusterIP"}
    for manifest in rendered.manifests:
        empty = [key for key, value in walk(manifest) if value is None or (value == {} and key not in allowed)]
        assert empty == [], manifest["metadata"]["name"]
