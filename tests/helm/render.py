"""Lints and renders a chart with the Helm library, and validates what comes out. Runs in a virtual environment of its
own (.venv-helm); tests call it as a process that answers one line of JSON on stdout for each one on stdin.

In:  {"chart": FOLDER, "values": {...}, "name": RELEASE, "namespace": NAMESPACE, "versions": [KUBERNETES VERSION, ...]}
Out: {"refused": MESSAGE}, or {"lint": [MESSAGE, ...], "manifests": [...], "notes": TEXT,
      "invalid": ["VERSION KIND NAME: MESSAGE", ...], "unknown": [KIND WITHOUT A SCHEMA, ...]}
"""

import json
import sys
from typing import Any

import helm_python as helm
import kubernetes_validate
import yaml


def answer(question: dict[str, Any]) -> dict[str, Any]:
    values, name, namespace = question["values"], question["name"], question["namespace"]
    try:
        with helm.Chart.load(question["chart"]) as chart:
            chart.validate_schema(values)
            files = chart.render(values, name=name, namespace=namespace)
        lint = helm.lint(question["chart"], values, strict=True)
    except helm.HelmError as error:
        return {"refused": str(error)}
    notes = "".join(text for path, text in files.items() if path.endswith("NOTES.txt"))
    manifests = [
        manifest
        for path, text in sorted(files.items())
        if path.endswith(".yaml")
        for manifest in yaml.safe_load_all(text)
        if manifest
    ]
    invalid, unknown = validated(manifests, question["versions"])
    return {"lint": messages(lint), "manifests": manifests, "notes": notes, "invalid": invalid, "unknown": unknown}


def validated(manifests: list[dict[str, Any]], versions: list[str]) -> tuple[list[str], list[str]]:
    """What is not valid, and the kinds that Kubernetes itself does not have."""
    invalid, unknown = [], set()
    for version in versions:
        for manifest in manifests:
            try:
                kubernetes_validate.validate(manifest, version, strict=True)
            except kubernetes_validate.SchemaNotFoundError:
                unknown.add(manifest["kind"])
            except kubernetes_validate.ValidationError as error:
                place = ".".join(map(str, error.absolute_path))
                invalid.append(
                    f"{version} {manifest['kind']} {manifest['metadata']['name']}: {place}: {error.message[:300]}"
                )
    return invalid, sorted(unknown)


def messages(lint: Any) -> list[str]:
    """The linter's complaints; its hints (severity 1) are not among them."""
    return [str(message) for message in lint["messages"] if message.get("severity", 3) > 1]


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()
