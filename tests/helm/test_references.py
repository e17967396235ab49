"""What a manifest names is there: in the release, or among what the values say that the operator has."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from helm.matrix import MATRIX, TLS_SECRETS
from helm.rendered import Helm, Pod, walk

GIVEN = {
    "sqlite-single": {("PersistentVolumeClaim", "old-catalog")},
    "postgres-multi": {("Secret", "catalog"), ("Secret", "redis")},
    "cron-ingest": set(),
    "everything-on": {
        *(("Secret", name) for name in ("registry", "qdrant", "catalog", "llm", "redis")),
        ("ConfigMap", "company-ca"),
        ("PersistentVolumeClaim", "engines"),
    },
    "gpu-keda": {("Secret", "kbmesh-postgres"), ("Secret", "kbmesh-qdrant"), ("Secret", "kbmesh-redis")},
    "gpu-keda-tls": {
        *(("Secret", f"kbmesh-{name}") for name in ("postgres", "qdrant", "redis")),
        ("Secret", "qdrant-tls"),
        # KEDA reads its own by its TriggerAuthentication.
        *(("Secret", name) for part, name in TLS_SECRETS.items() if part != "keda"),
    },
    "cpu-hpa": {("Secret", "kbmesh-postgres")},
    "nightly-ingest": {("PersistentVolumeClaim", "documents")},
}
"""What each set of values names as the operator's own."""


def named_by(pod: Pod) -> Iterator[tuple[str, str]]:
    for volume in pod.spec["volumes"]:
        if "persistentVolumeClaim" in volume:
            yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]
        if "secret" in volume:
            yield "Secret", volume["secret"]["secretName"]
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"]
    for pull_secret in pod.spec.get("imagePullSecrets", []):
        yield "Secret", pull_secret["name"]
    for key, value in walk(pod.spec["containers"]):
        if key == "secretKeyRef":
            yield "Secret", value["name"]
        if key == "configMapKeyRef":
            yield "ConfigMap", value["name"]
    if pod.spec["serviceAccountName"] != "default":
        yield "ServiceAccount", pod.spec["serviceAccountName"]


@pytest.mark.parametrize("name", MATRIX)
def test_what_pods_name_is_there(helm: Helm, name: str) -> None:
    rendered = helm.render(MATRIX[name])
    made = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in rendered.manifests}
    made |= {("Secret", certificate["spec"]["secretName"]) for certificate in rendered.of_kind("Certificate")}
    named = {reference for pod in rendered.pods() for reference in named_by(pod)}
    assert named - made == GIVEN.get(name, set())


@pytest.mark.parametrize("name", MATRIX)
def test_addresses_lead_to_services(helm: Helm, name: str) -> None:
    """Every host name in the environment that is not the operator's own is a Service with that port."""
    rendered = helm.render(MATRIX[name])
    ports = {
        service["metadata"]["name"]: {port["port"] for port in service["spec"]["ports"]}
        for service in rendered.of_kind("Service")
    }
    found = 0
    for pod in rendered.pods():
        for entry in pod.main.get("env", []):
            if not entry["name"].endswith(("_ADDRESS", "_PEERS", "_ENDPOINT", "_URL")) or not entry.get("value"):
                continue
            address = re.fullmatch(r"(?:[a-z]+:///?)?([a-z0-9.-]+)(?::(\d+))?(?:/.*)?", entry["value"])
            if address is None:
                assert entry["value"].startswith("sqlite:"), entry
                continue
            host, port = address.groups()
            if host in ports:
                assert int(port) in ports[host], entry
                found += 1
            else:
                assert "." in host, f"{entry} leads nowhere"
    assert found


@pytest.mark.parametrize("name", MATRIX)
def test_claims_outlive_the_release(helm: Helm, name: str) -> None:
    for claim in helm.render(MATRIX[name]).of_kind("PersistentVolumeClaim"):
        assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_the_trial_secret_has_what_is_read_from_it(helm: Helm) -> None:
    rendered = helm.render(MATRIX["trial-stores"])
    (secret,) = rendered.of_kind("Secret")
    keys: set[Any] = {
        value["key"]
        for pod in rendered.pods()
        for key, value in walk(pod.main)
        if key == "secretKeyRef" and value["name"] == secret["metadata"]["name"]
    }
    assert keys == set(secret["stringData"]) == {"password", "url"}
    assert secret["stringData"]["url"] == "postgresql://kbmesh:change-me-please@demo-kbmesh-postgres:5432/kbmesh"
