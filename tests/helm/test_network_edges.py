"""Who may talk to whom: exactly the edges of the mesh, worked out from the NetworkPolicies as Kubernetes would."""

from itertools import product
from typing import Any

from helm.matrix import EVERYTHING_ON, EXAMPLES, POSTGRES_MULTI
from helm.rendered import Helm, Manifest, Pod, Rendered, selects

LOAD = {("embedder", "embedder", 7402), ("reranker", "reranker", 7403)}
"""Replicas that ask each other for their load, for KEDA's scaler."""
MESH = {
    ("retriever", "chunker", 7401),
    ("retriever", "embedder", 7402),
    ("retriever", "reranker", 7403),
    ("chunker", "embedder", 7402),
    ("test", "retriever", 7400),
    *LOAD,
}


def edges(rendered: Rendered) -> set[tuple[str, str, int]]:
    """(from, to, port) between pods of the release, where something listens and both sides allow it.

    They must agree: what one side alone allows is a door that waits for a mistake at the other."""
    policies = rendered.of_kind("NetworkPolicy")
    leaving, entering = set(), set()
    for source, target in product(rendered.pods(), repeat=2):
        for port in (port["containerPort"] for port in target.main.get("ports", [])):
            edge = (source.component, target.component, port)
            if any(_allows(rule, "to", target, port) for rule in _rules(policies, source, "egress")):
                leaving.add(edge)
            if any(_allows(rule, "from", source, port) for rule in _rules(policies, target, "ingress")):
                entering.add(edge)
    assert leaving == entering
    return leaving


def _rules(policies: list[Manifest], pod: Pod, direction: str) -> list[dict[str, Any]]:
    selecting = [p for p in policies if selects(p["spec"]["podSelector"].get("matchLabels", {}), pod.labels)]
    return [rule for policy in selecting for rule in policy["spec"].get(direction, [])]


def _allows(rule: dict[str, Any], side: str, peer: Pod, port: int) -> bool:
    if not any(each["port"] == port for each in rule["ports"]):
        return False
    return side not in rule or any(
        # A peer with a namespaceSelector or an ipBlock is somewhere else.
        set(each) == {"podSelector"} and selects(each["podSelector"].get("matchLabels", {}), peer.labels)
        for each in rule[side]
    )


def test_only_the_edges_of_the_mesh(helm: Helm) -> None:
    # The policy that lets callers in is tested below: here nobody but the chart's own pods calls.
    rendered = helm.render({"networkPolicy": {"callers": []}})
    assert edges(rendered) == MESH | {("retriever", "edge", 7404)}


def test_stores_for_trying_out_are_reached_by_the_retriever_alone(helm: Helm) -> None:
    rendered = helm.render({**EXAMPLES["trial-stores"], "networkPolicy": {"callers": []}})
    assert edges(rendered) == MESH | {("retriever", "qdrant", 6334), ("retriever", "postgres", 5432)}


def test_the_ingest_worker_reaches_the_retriever_alone(helm: Helm) -> None:
    rendered = helm.render({**EXAMPLES["nightly-ingest"], "networkPolicy": {"callers": []}})
    assert edges(rendered) == MESH | {("retriever", "edge", 7404), ("ingest", "retriever", 7400)}


def test_without_a_reranker_nothing_leads_to_it(helm: Helm) -> None:
    rendered = helm.render({"reranker": {"enabled": False}, "networkPolicy": {"callers": []}})
    assert not [edge for edge in edges(rendered) if "reranker" in edge]


def test_callers_reach_the_retriever_and_nothing_else(helm: Helm) -> None:
    callers = [{"namespaceSelector": {"matchLabels": {"team": "agents"}}}]
    rendered = helm.render({"networkPolicy": {"callers": callers}})
    letting_in = [
        (policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"], rule["ports"])
        for policy in rendered.of_kind("NetworkPolicy")
        for rule in policy["spec"].get("ingress", [])
        if rule["from"] == callers
    ]
    assert letting_in == [("retriever", [{"protocol": "TCP", "port": 7400}])]


def test_keda_and_prometheus_are_let_in_where_they_are_needed(helm: Helm) -> None:
    rendered = helm.render(EVERYTHING_ON)
    let_in: dict[str, set[tuple[str, int]]] = {"keda": set(), "monitoring": set()}
    for policy in rendered.of_kind("NetworkPolicy"):
        for rule in policy["spec"].get("ingress", []):
            for peer in rule["from"]:
                namespace = peer.get("namespaceSelector", {}).get("matchLabels", {}).get("kubernetes.io/metadata.name")
                if namespace in let_in:
                    component = policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
                    let_in[namespace] |= {(component, port["port"]) for port in rule["ports"]}
    # The retriever and the chunker scale on CPU, which KEDA asks the cluster for.
    assert let_in["keda"] == {("embedder", 7402), ("reranker", 7403)}
    assert let_in["monitoring"] == {("retriever", 7500), ("chunker", 7501), ("embedder", 7502), ("reranker", 7503)}
    defaults = [str(policy) for policy in helm.render().of_kind("NetworkPolicy")]
    assert not any("'keda'" in policy for policy in defaults), "nobody scales by KEDA here"


def test_every_pod_finds_names(rendered: Rendered) -> None:
    for policy in rendered.of_kind("NetworkPolicy"):
        if "app.kubernetes.io/component" in policy["spec"]["podSelector"]["matchLabels"]:
            ports = {
                (port["protocol"], port["port"])
                for rule in policy["spec"]["egress"]
                for port in rule["ports"]
                if any("kube-system" in str(peer) for peer in rule.get("to", []))
            }
            assert {("UDP", 53), ("TCP", 53)} <= ports, policy["metadata"]["name"]


def test_stores_and_collector_outside_are_reached_on_their_ports(helm: Helm) -> None:
    def outside(values: dict[str, Any], component: str) -> list[tuple[Any, int]]:
        policy = helm.render(values).one("NetworkPolicy", component)
        return [
            (rule.get("to", "anywhere"), rule["ports"][0]["port"])
            for rule in policy["spec"]["egress"]
            if "app.kubernetes.io/component" not in str(rule) and "kube-system" not in str(rule)
        ]

    assert outside(POSTGRES_MULTI, "retriever") == [
        ([{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "stores"}}}], 6334),
        ([{"ipBlock": {"cidr": "10.1.2.3/32"}}], 5432),
        ([{"ipBlock": {"cidr": "10.1.2.4/32"}}], 6380),
    ]
    # A URL without a port has that of its scheme.
    ports = [port for _, port in outside(EVERYTHING_ON, "retriever")]
    assert ports == [443, 5432, 6379, 4317, 443]
    assert outside(POSTGRES_MULTI, "embedder") == []
    assert outside({"settings": {"otlp_endpoint": "http://collector.tracing:4317"}}, "chunker") == [("anywhere", 4317)]


def test_what_is_not_allowed_is_denied(helm: Helm) -> None:
    policy = helm.render().one("NetworkPolicy", "default-deny")
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policy["spec"]
    assert "egress" not in policy["spec"]
    assert helm.render({"networkPolicy": {"enabled": False}}).of_kind("NetworkPolicy") == []
