"""What the chart tells the services is what they can be told: each name, each value, each port."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helm.matrix import MATRIX
from helm.rendered import ROOT, SERVICES, Helm, Pod
from kbmesh_rpc.server import LIVENESS
from kbmesh_rpc.settings import ServerSettings, env_name, load_settings


@pytest.fixture(scope="session")
def tools() -> Iterator[None]:
    """The modules that write README and schema of the chart."""
    sys.path.insert(0, str(ROOT / "tools"))
    yield
    sys.path.remove(str(ROOT / "tools"))


@pytest.fixture(scope="session")
def settings_classes(tools: None) -> dict[str, type[ServerSettings]]:
    from chart_schema import settings_class

    return {service: settings_class(service) for service in SERVICES}


def kbmesh_environment(pod: Pod) -> dict[str, str]:
    """What a server gets, with something in place of each secret."""
    return {
        entry["name"]: entry.get("value", "from-a-secret")
        for entry in pod.main["env"]
        if entry["name"].startswith("KBMESH_")
    }


@pytest.mark.parametrize("name", MATRIX)
def test_every_variable_is_a_setting_of_its_service(
    helm: Helm, settings_classes: dict[str, type[ServerSettings]], name: str
) -> None:
    for pod in helm.render(MATRIX[name]).servers():
        known = {env_name(field) for field in settings_classes[pod.component].model_fields}
        assert set(kbmesh_environment(pod)) <= known, pod


@pytest.mark.parametrize("name", MATRIX)
def test_services_take_the_environment(
    helm: Helm,
    settings_classes: dict[str, type[ServerSettings]],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They read it as they do at their start, and mean the ports that the pod, its Services and probes name."""
    for pod in helm.render(MATRIX[name]).servers():
        with monkeypatch.context() as patch:
            for variable, value in kbmesh_environment(pod).items():
                patch.setenv(variable, value)
            settings = load_settings(settings_classes[pod.component], service=pod.component, argv=[])
        ports = {port["name"]: port["containerPort"] for port in pod.main["ports"]}
        health = {"health": settings.health_port} if settings.health_port else {}
        assert ports == {"grpc": settings.port, "metrics": settings.metrics_port, **health}, pod
        assert settings.allow_plaintext or not settings.plaintext_edges(), f"{pod} would not start"
        assert settings.host == "0.0.0.0", pod


@pytest.mark.parametrize("name", MATRIX)
def test_no_variable_comes_twice(helm: Helm, name: str) -> None:
    # Server-side apply, which Helm 4 uses, refuses a list with the same name twice.
    for pod in helm.render(MATRIX[name]).pods():
        for container in pod.containers:
            names = [entry["name"] for entry in container.get("env", [])]
            assert len(names) == len(set(names)), (pod, container["name"])


def test_secrets_come_from_secrets(helm: Helm, settings_classes: dict[str, type[ServerSettings]]) -> None:
    for values in MATRIX.values():
        for pod in helm.render(values).servers():
            fields = settings_classes[pod.component].model_fields
            secret = {env_name(name) for name, field in fields.items() if "Secret" in str(field.annotation)}
            for entry in pod.main["env"]:
                if entry["name"] in secret:
                    assert "valueFrom" in entry or entry["value"].startswith("sqlite:"), entry["name"]


def test_probes_ask_for_names_that_servers_answer(helm: Helm) -> None:
    from kbmesh.retriever.v1 import retriever_pb2
    from kbmesh_chunker.application import SERVICE as CHUNKER
    from kbmesh_embedder.application import SERVICE_NAME as EMBEDDER
    from kbmesh_reranker.application import SERVICE_NAME as RERANKER

    names = {
        "chunker": CHUNKER,
        "embedder": EMBEDDER,
        "reranker": RERANKER,
        "retriever": retriever_pb2.DESCRIPTOR.services_by_name["RetrieverService"].full_name,
        "edge": "qdrant.Qdrant",
    }
    for pod in helm.render().servers():
        assert pod.main["readinessProbe"]["grpc"]["service"] == names[pod.component]
        assert pod.main["livenessProbe"]["grpc"]["service"] == LIVENESS


def test_the_scaler_sums_over_the_headless_service(helm: Helm) -> None:
    """One pod sees only its own queue; a Service with an address of its own would lead to one pod."""
    rendered = helm.render()
    headless = {
        service["metadata"]["name"] for service in rendered.of_kind("Service") if service["spec"].get("clusterIP")
    }
    for component, port in (("embedder", 7402), ("reranker", 7403)):
        peers = kbmesh_environment(rendered.pod(component))["KBMESH_SCALER_PEERS"]
        assert peers == f"demo-kbmesh-{component}-headless:{port}"
        assert peers.partition(":")[0] in headless


def test_callers_reach_all_replicas(helm: Helm) -> None:
    environment = kbmesh_environment(helm.render().pod("retriever"))
    for component in ("chunker", "embedder", "reranker"):
        address = environment[f"KBMESH_{component.upper()}_ADDRESS"]
        assert re.fullmatch(rf"dns:///demo-kbmesh-{component}-headless:\d+", address)


def test_the_command_knows_what_it_is_called_with(helm: Helm) -> None:
    """Arguments and variables of the pods that run `kbmesh`: ingest, models and `helm test`."""
    from kbmesh_cli import app, invocation
    from kbmesh_cli.app import app as application
    from typer.main import get_command

    sources = "".join(Path(module.__file__ or "").read_text() for module in (app, invocation))
    variables = set(re.findall(r"KBMESH_[A-Z_]+", sources))
    root = get_command(application)
    called = set()
    for values in MATRIX.values():
        for pod in helm.render(values).pods():
            for container in pod.containers:
                if "kbmesh-cli" not in container["image"]:
                    continue
                named = {entry["name"] for entry in container["env"] if entry["name"].startswith("KBMESH_")}
                assert named <= variables, pod
                command, arguments = root, list(container["args"])
                while arguments and arguments[0] in getattr(command, "commands", {}):
                    command = command.commands[arguments.pop(0)]
                called.add(command.name)
                options = {option for parameter in command.params for option in parameter.opts}
                assert {argument for argument in arguments if argument.startswith("--")} <= options, pod
    assert called == {"ingest", "pull", "doctor"}


def test_each_worker_takes_its_shard(helm: Helm) -> None:
    job = helm.render(MATRIX["everything-on"]).one("Job", "ingest")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert job["spec"]["completionMode"] == "Indexed"
    assert job["spec"]["completions"] == 64
    assert job["spec"]["parallelism"] == 8
    # The number alone: which part is this pod's stands in JOB_COMPLETION_INDEX.
    assert container["args"] == [
        *("ingest", "handbook", "--manifest", "/ca/manifest.jsonl", "--shard", "64", "--create"),
    ]
