"""Alerts speak of series that services have, and lead to a page that says what to do."""

import importlib
import json
import pkgutil
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from helm.matrix import EXAMPLES
from helm.rendered import CHART, ROOT, Helm
from kbmesh_rpc.metrics import HANDLING_SECONDS
from prometheus_client import REGISTRY

METRIC = re.compile(r"\b((?:kbmesh|grpc)_[a-z_]+)\b(?=\{)")
PACKAGES = ("kbmesh_rpc", "kbmesh_retriever", "kbmesh_chunker", "kbmesh_embedder", "kbmesh_reranker")


def rules(helm: Helm) -> list[dict[str, object]]:
    rendered = helm.render(EXAMPLES["gpu-keda"])
    groups = [group for one in ("alerts", "slo") for group in rendered.one("PrometheusRule", one)["spec"]["groups"]]
    return [rule for group in groups for rule in group["rules"]]


def alerts(helm: Helm) -> list[dict[str, object]]:
    return [rule for rule in rules(helm) if "alert" in rule]


def test_alerts_speak_of_series_that_there_are(helm: Helm) -> None:
    for package in PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not module.name.endswith("__main__") and "migrations" not in module.name:
                importlib.import_module(module.name)
    families = {family.name: family for family in REGISTRY.collect()}
    suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"], "gauge": [""]}
    series = {name + suffix for name, family in families.items() for suffix in suffixes.get(family.type, [])}
    named = {metric for rule in rules(helm) for metric in METRIC.findall(str(rule["expr"]))}
    assert named
    assert named <= series


def test_an_objective_of_latency_is_a_bound_of_the_histogram(helm: Helm) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    slo = schema["properties"]["prometheusRule"]["properties"]["slo"]["properties"]
    bounds = {str(float(bound)) for bound in HANDLING_SECONDS._upper_bounds}
    assert set(slo["fastSeconds"]["enum"]) <= bounds


def test_every_alert_has_a_runbook(helm: Helm) -> None:
    page = (ROOT / "docs/runbooks.md").read_text()
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^#|\Z)", page, flags=re.MULTILINE | re.DOTALL))
    named = {str(rule["alert"]) for rule in alerts(helm)}
    assert named == sections.keys()
    for alert in named:
        assert all(f"**{part}**" in sections[alert] for part in ("Means", "Look", "Do")), alert
    for rule in alerts(helm):
        annotations = rule["annotations"]
        assert isinstance(annotations, dict)
        assert annotations["runbook_url"] == f"docs/runbooks.md#{str(rule['alert']).lower()}"
        assert annotations["summary"]


def test_alerts_are_about_this_release_alone(helm: Helm) -> None:
    for rule in rules(helm):
        selectors = re.findall(r"\{([^}]*)\}", str(rule["expr"]))
        assert selectors
        for selector in selectors:
            assert 'namespace="search"' in selector, rule
            assert 'service=~"demo-kbmesh-' in selector or 'release="demo-kbmesh"' in selector, rule


def test_the_alert_of_the_scaler_comes_with_the_scaler(helm: Helm) -> None:
    assert "KbmeshScalerBlind" in [rule["alert"] for rule in alerts(helm)]
    manifest = helm.render({"prometheusRule": {"enabled": True}}).one("PrometheusRule", "alerts")
    without = [rule["alert"] for group in manifest["spec"]["groups"] for rule in group["rules"]]
    assert "KbmeshScalerBlind" not in without


def test_dashboards_come_as_config_maps_that_grafana_finds(helm: Helm) -> None:
    values = {"dashboards": {"enabled": True, "annotations": {"grafana_folder": "kbmesh"}}}
    found = [
        each
        for each in helm.render(values).manifests
        if each["kind"] == "ConfigMap" and each["metadata"]["labels"]["app.kubernetes.io/component"] == "dashboard"
    ]
    files = {path.name: path.read_text() for path in (ROOT / "deploy/dashboards").glob("*.json")}
    assert {name: json.loads(text) for one in found for name, text in one["data"].items()} == {
        name: json.loads(text) for name, text in files.items()
    }
    assert len(found) == len(files) == 5
    for each in found:
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each["metadata"]["annotations"] == {"grafana_folder": "kbmesh"}


@pytest.mark.needs("promtool")
def test_prometheus_takes_the_rules(helm: Helm, tmp_path: Path) -> None:
    rendered = helm.render(EXAMPLES["gpu-keda"])
    for one in ("alerts", "slo"):
        file = tmp_path / f"{one}.yaml"
        file.write_text(yaml.safe_dump({"groups": rendered.one("PrometheusRule", one)["spec"]["groups"]}))
        checked = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr
