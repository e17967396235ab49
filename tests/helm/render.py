"""Lints and renders a chart with the Helm library, and validates what comes out. Runs in a virtual environment of its
own (.venv-helm); tests call it as a process that answers one line of JSON on stdout for each one on stdin.

Linting and validation are left out where no version is named.

In:  {"chart": FOLDER, "values": {...}, "name": RELEASE, "namespace": NAMESPACE, "versions": [KUBERNETES VERSION, ...]}
Out: {"refused": MESSAGE}, or {"lint": [MESSAGE, ...], "manifests": [...], "notes": TEXT,
      "invalid": ["VERSION KIND NAME: MESSAGE", ...], "unknown": [KIND WITHOUT A SCHEMA, ...]}
"""

import json
import sys
from functools import cache
from typing import Any

import helm_python as helm
import yaml
from jsonschema import Draft202012Validator
from kubernetes_validate import utils
from referencing import Registry, Resource


def answer(question: dict[str, Any]) -> dict[str, Any]:
    values, name, namespace = question["values"], question["name"], question["namespace"]
    try:
        with helm.Chart.load(question["chart"]) as chart:
            files = chart.render(values, name=name, namespace=namespace)
        # Rendering alone would take text that is not YAML.
        lint = helm.lint(question["chart"], values, strict=True) if question["versions"] else {"messages": []}
    except helm.HelmError as error:
        return {"refused": str(error)}
    notes = "".join(text for path, text in files.items() if path.endswith("NOTES.txt"))
    manifests = [
        manifest
        for path, text in sorted(files.items())
        if path.endswith(".yaml")
        for manifest in yaml.load_all(text, yaml.CSafeLoader)
        if manifest
    ]
    # KEDA's job is a JobSpec, which can be looked at as one.
    jobs = [
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": each["metadata"], "spec": each["spec"]["jobTargetRef"]}
        for each in manifests
        if each["kind"] == "ScaledJob"
    ]
    invalid, unknown = validated([*manifests, *jobs], question["versions"])
    return {"lint": messages(lint), "manifests": manifests, "notes": notes, "invalid": invalid, "unknown": unknown}


def validated(manifests: list[dict[str, Any]], versions: list[str]) -> tuple[list[str], list[str]]:
    """What is not valid, and the kinds that Kubernetes itself does not have."""
    invalid, unknown = [], set()
    for version in versions:
        for manifest in manifests:
            strict = validator(manifest["kind"], manifest["apiVersion"], version)
            if strict is None:
                unknown.add(manifest["kind"])
                continue
            for error in strict.iter_errors(manifest):
                place = ".".join(map(str, error.absolute_path))
                invalid.append(f"{version} {manifest['kind']} {manifest['metadata']['name']}: {place}: {error.message}")
    return invalid, sorted(unknown)


@cache
def definitions(version: str) -> Registry[Any]:
    schema = utils.schema_contents(f"kubernetes-json-schema/v{version}.0-local-strict/_definitions.json", version)
    return Resource.from_contents(schema) @ Registry()


@cache
def validator(kind: str, api_version: str, version: str) -> Draft202012Validator | None:
    """What `kubernetes-validate --strict` makes for each manifest anew, which takes it most of a second."""
    group, _, rest = api_version.rpartition("/")
    name = f"{kind.lower()}-{group.partition('.')[0]}-{rest}" if group else f"{kind.lower()}-{rest}"
    try:
        schema = utils.schema_contents(f"kubernetes-json-schema/v{version}.0-local-strict/{name}.json", version)
    except FileNotFoundError:
        return None
    return Draft202012Validator(schema, registry=Resource.from_contents(schema) @ definitions(version))


def messages(lint: Any) -> list[str]:
    """The linter's complaints; its hints (severity 1) are not among them."""
    return [str(message) for message in lint["messages"] if message.get("severity", 3) > 1]


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()
