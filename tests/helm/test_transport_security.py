"""Mutual TLS by values: who has which certificate, who may call whom, and what stays plain."""

from typing import Any

import pytest
from helm.matrix import EXAMPLES, MATRIX
from helm.rendered import Helm, Pod, Rendered, environment, selects

TLS_SETS = ("mutual-tls", "gpu-keda-tls")


@pytest.fixture(params=TLS_SETS)
def secure(request: pytest.FixtureRequest, helm: Helm) -> Rendered:
    return helm.render(MATRIX[request.param])


def secret_of(pod: Pod) -> str:
    (volume,) = [volume for volume in pod.spec["volumes"] if volume["name"] == "tls"]
    assert volume["secret"]["defaultMode"] == 0o440, "its group alone reads it"
    name: str = volume["secret"]["secretName"]
    return name


def test_every_part_that_talks_has_a_certificate_of_its_own(secure: Rendered) -> None:
    talking = [pod for pod in secure.pods() if pod.component != "models"]
    secrets = {pod.component: secret_of(pod) for pod in talking}
    assert secrets.pop("test") == secrets.pop("ingest", secret_of(secure.pod("test"))), "both run the kbmesh command"
    assert len({*secrets.values()}) == len(secrets)
    for pod in talking:
        assert {"name": "tls", "mountPath": "/tls", "readOnly": True} in pod.main["volumeMounts"]
        told = environment(pod.main)
        assert [told[f"KBMESH_TLS_{name}"] for name in ("CERT", "KEY", "CA")] == [
            *("/tls/tls.crt", "/tls/tls.key", "/tls/ca.crt"),
        ]


def names_in(certificate: dict[str, Any]) -> set[str]:
    return set(certificate["spec"]["dnsNames"])


def test_certificates_carry_the_names_by_which_servers_are_called(helm: Helm) -> None:
    rendered = helm.render(EXAMPLES["mutual-tls"])
    certificates = {
        each["metadata"]["labels"]["app.kubernetes.io/component"]: each for each in rendered.of_kind("Certificate")
    }
    assert set(certificates) == {"retriever", "chunker", "embedder", "reranker", "edge", "command", "keda"}
    called = {
        value.partition("///")[2].rpartition(":")[0] or value.rpartition("//")[2].rpartition(":")[0]
        for pod in rendered.pods()
        for name, value in environment(pod.main).items()
        if name.endswith(("_ADDRESS", "_ENDPOINT", "_URL", "_PEERS")) and "demo-kbmesh" in value
    }
    known = {name for certificate in certificates.values() for name in names_in(certificate)}
    assert {"demo-kbmesh-embedder-headless", "demo-kbmesh-edge"} <= called
    assert called <= known
    (trigger,) = rendered.one("ScaledObject", "embedder")["spec"]["triggers"]
    assert trigger["metadata"]["scalerAddress"].rpartition(":")[0] in names_in(certificates["embedder"])
    assert "retriever.internal" in names_in(certificates["retriever"])
    for certificate in certificates.values():
        assert certificate["spec"]["usages"] == ["digital signature", "server auth", "client auth"]
        assert certificate["spec"]["issuerRef"]["kind"] == "ClusterIssuer"


def test_each_server_lets_in_who_has_to_call_it(helm: Helm) -> None:
    rendered = helm.render(EXAMPLES["mutual-tls"])
    told = {pod.component: environment(pod.main) for pod in rendered.servers()}

    def named(component: str, setting: str) -> list[str]:
        names = told[component].get(f"KBMESH_TLS_{setting}_CALLERS", "")
        return [name.removeprefix("demo-kbmesh-") for name in names.split(",") if name]

    assert named("chunker", "ALLOWED") == ["retriever"]
    assert named("embedder", "ALLOWED") == ["retriever", "chunker", "embedder", "keda"]
    assert named("reranker", "ALLOWED") == ["retriever", "reranker"], "nobody scales it by KEDA here"
    assert named("edge", "ALLOWED") == ["retriever"]
    assert named("retriever", "ALLOWED") == ["spiffe://cluster.local/ns/agents/*", "gateway.agents.svc", "command"]
    assert named("retriever", "TRUSTED") == ["gateway.agents.svc", "command"]
    # KEDA and other replicas ask for the load, for no tenant.
    assert named("embedder", "TRUSTED") == ["retriever", "chunker"]
    assert {component: each["KBMESH_TRUST_TENANT_METADATA"] for component, each in told.items()} == dict.fromkeys(
        told, "false"
    )
    assert {each["KBMESH_ALLOW_PLAINTEXT"] for each in told.values()} == {"false"}


def test_without_names_every_certificate_may_call_the_retriever_and_nobody_else(helm: Helm) -> None:
    tls = {**EXAMPLES["mutual-tls"]["tls"], "callers": [], "trustedCallers": []}
    rendered = helm.render({**EXAMPLES["mutual-tls"], "tls": tls})
    told = environment(rendered.pod("retriever").main)
    assert "KBMESH_TLS_ALLOWED_CALLERS" not in told
    assert told["KBMESH_TRUST_TENANT_METADATA"] == "true"
    assert "may name any tenant: tls.trustedCallers is empty" in rendered.notes
    assert environment(rendered.pod("chunker").main)["KBMESH_TLS_ALLOWED_CALLERS"] == "demo-kbmesh-retriever"


def test_the_kubelet_asks_a_port_that_no_pod_may_reach(secure: Rendered) -> None:
    for pod in secure.servers():
        (health,) = [port["containerPort"] for port in pod.main["ports"] if port["name"] == "health"]
        assert environment(pod.main)["KBMESH_HEALTH_PORT"] == str(health)
        for policy in secure.of_kind("NetworkPolicy"):
            if selects(policy["spec"]["podSelector"]["matchLabels"], pod.labels):
                open_ports = {port["port"] for rule in policy["spec"].get("ingress", []) for port in rule["ports"]}
                assert health not in open_ports, policy["metadata"]["name"]
    for service in secure.of_kind("Service"):
        assert {port["name"] for port in service["spec"]["ports"]} <= {"grpc", "metrics"}
        assert {port.get("appProtocol") for port in service["spec"]["ports"] if port["name"] == "grpc"} == {"https"}


def test_keda_shows_a_certificate_too(secure: Rendered) -> None:
    scaled = [each for each in secure.of_kind("ScaledObject") if each["spec"]["triggers"][0]["type"] == "external"]
    assert scaled
    authentications = {each["metadata"]["name"]: each["spec"] for each in secure.of_kind("TriggerAuthentication")}
    for each in scaled:
        (trigger,) = each["spec"]["triggers"]
        assert trigger["metadata"]["enableTLS"] == "true"
        given = authentications[trigger["authenticationRef"]["name"]]["secretTargetRef"]
        assert {(one["parameter"], one["key"]) for one in given} == {
            *(("caCert", "ca.crt"), ("tlsClientCert", "tls.crt"), ("tlsClientKey", "tls.key")),
        }


def test_an_external_qdrant_is_trusted_by_its_own_authority(helm: Helm) -> None:
    pod = helm.render(MATRIX["gpu-keda-tls"]).pod("retriever")
    told = environment(pod.main)
    assert told["KBMESH_QDRANT_CA"] == "/qdrant-tls/ca.crt"
    assert told["KBMESH_QDRANT_CERT"] == "/qdrant-tls/tls.crt"
    (volume,) = [volume for volume in pod.spec["volumes"] if volume["name"] == "qdrant-tls"]
    assert volume["secret"]["secretName"] == "qdrant-tls"
    edge = environment(helm.render(EXAMPLES["mutual-tls"]).pod("retriever").main)
    assert edge["KBMESH_QDRANT_URL"] == "https://demo-kbmesh-edge:7404"
    assert edge["KBMESH_QDRANT_CERT"] == "/tls/tls.crt"


def test_stores_in_plain_text_beside_tls_are_said_aloud(helm: Helm) -> None:
    values = {
        **EXAMPLES["trial-stores"],
        "tls": {**EXAMPLES["mutual-tls"]["tls"], "allowPlaintext": True},
    }
    rendered = helm.render(values)
    allowed = {pod.component: environment(pod.main)["KBMESH_ALLOW_PLAINTEXT"] for pod in rendered.servers()}
    assert allowed == {"retriever": "true", "chunker": "false", "embedder": "false", "reranker": "false"}


def test_without_tls_plain_text_is_said_aloud_everywhere(helm: Helm) -> None:
    rendered = helm.render(MATRIX["cron-ingest"])
    for pod in rendered.pods():
        if pod.component != "models":
            assert environment(pod.main)["KBMESH_ALLOW_PLAINTEXT"] == "true", pod
    assert not any(volume["name"] == "tls" for pod in rendered.pods() for volume in pod.spec["volumes"])


def test_the_notes_tell_how_to_call(helm: Helm) -> None:
    notes = helm.render(EXAMPLES["mutual-tls"]).notes
    assert "get secret demo-kbmesh-command-tls" in notes
    assert "KBMESH_TLS_SERVER_NAME=demo-kbmesh-retriever" in notes
    assert "{.data.ca\\.crt}" in notes or "${file/./\\\\.}" in notes
    assert "Nothing is authenticated" not in notes
