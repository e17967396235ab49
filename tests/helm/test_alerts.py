"""Alerts speak of series that services have, and lead to a page that says what to do."""

import importlib
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from helm.matrix import EXAMPLES
from helm.rendered import ROOT, Helm
from prometheus_client import REGISTRY

METRIC = re.compile(r"\b((?:kbmesh|grpc)_[a-z_]+)\b(?=\{)")


def rules(helm: Helm) -> list[dict[str, object]]:
    manifest = helm.render(EXAMPLES["gpu-keda"]).one("PrometheusRule", "alerts")
    found: list[dict[str, object]] = manifest["spec"]["groups"][0]["rules"]
    return found


def test_alerts_speak_of_series_that_there_are(helm: Helm) -> None:
    for module in ("kbmesh_embedder.metrics", "kbmesh_reranker.metrics", "kbmesh_rpc.metrics"):
        importlib.import_module(module)
    importlib.import_module("kbmesh_rpc.scaler.scaler_servicer")
    families = {family.name: family for family in REGISTRY.collect()}
    suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"], "gauge": [""]}
    series = {name + suffix for name, family in families.items() for suffix in suffixes.get(family.type, [])}
    named = {metric for rule in rules(helm) for metric in METRIC.findall(str(rule["expr"]))}
    assert named
    assert named <= series


def test_every_alert_has_a_runbook(helm: Helm) -> None:
    page = (ROOT / "docs/kubernetes.md").read_text()
    anchors = {heading.lower() for heading in re.findall(r"^#+ (\w+)$", page, flags=re.MULTILINE)}
    for rule in rules(helm):
        annotations = rule["annotations"]
        assert isinstance(annotations, dict)
        assert str(annotations["runbook_url"]).removeprefix("docs/kubernetes.md#") == str(rule["alert"]).lower()
        assert str(rule["alert"]).lower() in anchors
        assert annotations["summary"]


def test_alerts_are_about_this_release_alone(helm: Helm) -> None:
    for rule in rules(helm):
        selectors = re.findall(r"\{([^}]*)\}", str(rule["expr"]))
        assert selectors
        for selector in selectors:
            assert 'namespace="search"' in selector, rule["alert"]
            assert 'service=~"demo-kbmesh-' in selector, rule["alert"]


def test_the_alert_of_the_scaler_comes_with_the_scaler(helm: Helm) -> None:
    assert "KbmeshScalerBlind" in [rule["alert"] for rule in rules(helm)]
    manifest = helm.render({"prometheusRule": {"enabled": True}}).one("PrometheusRule", "alerts")
    assert "KbmeshScalerBlind" not in [rule["alert"] for rule in manifest["spec"]["groups"][0]["rules"]]


@pytest.mark.needs("promtool")
def test_prometheus_takes_the_alerts(helm: Helm, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "kbmesh", "rules": rules(helm)}]}))
    checked = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
