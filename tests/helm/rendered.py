"""What a chart renders to, and questions that tests ask of it."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/kbmesh"
HELM_PYTHON = ROOT / ".venv-helm/bin/python"
VERSIONS = ("1.30", "1.37")
"""The oldest Kubernetes that Chart.yaml admits, and the newest that kubernetes-validate knows."""
SERVICES = ("retriever", "chunker", "embedder", "reranker", "edge")
WORKLOADS = ("Deployment", "StatefulSet", "Job", "CronJob", "ScaledJob", "Pod")

Manifest = dict[str, Any]
Values = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod, or the template of one."""

    owner: Manifest
    metadata: Manifest
    spec: Manifest

    @property
    def labels(self) -> dict[str, str]:
        found: dict[str, str] = self.metadata["labels"]
        return found

    @property
    def component(self) -> str:
        return self.labels["app.kubernetes.io/component"]

    @property
    def containers(self) -> list[Manifest]:
        """All containers, those of the start included."""
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    @property
    def main(self) -> Manifest:
        """The container that the pod is there for."""
        found: Manifest = self.spec["containers"][0]
        return found

    def __str__(self) -> str:
        return f"{self.owner['kind']} {self.owner['metadata']['name']}"


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """A chart with values."""

    manifests: list[Manifest]
    notes: str
    lint: list[str]
    invalid: list[str]
    unknown: list[str]

    def of_kind(self, *kinds: str) -> list[Manifest]:
        return [manifest for manifest in self.manifests if manifest["kind"] in kinds]

    def one(self, kind: str, component: str) -> Manifest:
        """The only object of this kind and component."""
        (found,) = [
            manifest
            for manifest in self.of_kind(kind)
            if manifest["metadata"]["labels"]["app.kubernetes.io/component"] == component
        ]
        return found

    def has(self, kind: str, component: str) -> bool:
        return any(
            manifest["metadata"]["labels"]["app.kubernetes.io/component"] == component
            for manifest in self.of_kind(kind)
        )

    def pods(self) -> list[Pod]:
        """The pods of all workloads."""
        return [_pod_of(manifest) for manifest in self.of_kind(*WORKLOADS)]

    def pod(self, component: str) -> Pod:
        (found,) = [pod for pod in self.pods() if pod.component == component]
        return found

    def servers(self) -> list[Pod]:
        """The pods of kbmesh's own servers."""
        return [pod for pod in self.pods() if pod.component in SERVICES]


def _pod_of(manifest: Manifest) -> Pod:
    spec = manifest["spec"]
    match manifest["kind"]:
        case "Pod":
            return Pod(owner=manifest, metadata=manifest["metadata"], spec=spec)
        case "CronJob":
            template = spec["jobTemplate"]["spec"]["template"]
        case "ScaledJob":
            template = spec["jobTargetRef"]["template"]
        case _:
            template = spec["template"]
    return Pod(owner=manifest, metadata=template["metadata"], spec=template["spec"])


class RefusedError(Exception):
    """Helm did not take the values."""


class Helm:
    """Helm's library, in a process of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [HELM_PYTHON, Path(__file__).with_name("render.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._known: dict[str, dict[str, Any]] = {}

    def render(
        self,
        values: Values | None = None,
        *,
        name: str = "demo",
        namespace: str = "search",
        versions: tuple[str, ...] = (),
        chart: Path = CHART,
    ) -> Rendered:
        """Raises RefusedError."""
        question = json.dumps(
            {
                "chart": str(chart),
                "values": values or {},
                "name": name,
                "namespace": namespace,
                "versions": versions,
            }
        )
        if question not in self._known:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(question + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
            assert line, f"the Helm process ended with {self._process.wait()}"
            self._known[question] = json.loads(line)
        answer = self._known[question]
        if "refused" in answer:
            raise RefusedError(answer["refused"])
        return Rendered(**answer)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()


def environment(container: Manifest) -> dict[str, str]:
    """The plain values of a container's environment."""
    return {entry["name"]: entry["value"] for entry in container.get("env", []) if "value" in entry}


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether matchLabels fit."""
    return all(labels.get(name) == value for name, value in selector.items())


def walk(node: Any) -> Iterator[tuple[str, Any]]:
    """Every key of a manifest with its value, at any depth."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield key, value
            yield from walk(value)
    elif isinstance(node, list):
        for part in node:
            yield from walk(part)


def example(name: str) -> dict[str, Any]:
    """The values of a file in the chart's examples/."""
    found: dict[str, Any] = yaml.safe_load((CHART / f"examples/{name}.yaml").read_text())
    return found
