"""Labels: a Deployment's selector can never be changed, and everything that selects pods must find them."""

from helm.rendered import Helm, Rendered, selects, walk

SELECTOR_KEYS = {"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"}


def test_selectors_are_what_they_have_always_been(helm: Helm) -> None:
    """The API server refuses an upgrade that changes one. These three, with these values, are for ever."""
    for values in ({}, {"fullnameOverride": "other", "pods": {"labels": {"team": "search"}}}):
        rendered = helm.render(values)
        assert {
            manifest["metadata"]["name"].rpartition("-")[2]: manifest["spec"]["selector"]["matchLabels"]
            for manifest in rendered.of_kind("Deployment", "StatefulSet")
        } == {
            component: {
                "app.kubernetes.io/name": "kbmesh",
                "app.kubernetes.io/instance": "demo",
                "app.kubernetes.io/component": component,
            }
            for component in ("retriever", "chunker", "embedder", "reranker", "edge")
        }


def test_pods_carry_what_selects_them(rendered: Rendered) -> None:
    for manifest in rendered.of_kind("Deployment", "StatefulSet"):
        labels = manifest["spec"]["template"]["metadata"]["labels"]
        assert set(manifest["spec"]["selector"]["matchLabels"]) == SELECTOR_KEYS
        assert selects(manifest["spec"]["selector"]["matchLabels"], labels), manifest["metadata"]["name"]


def test_a_new_version_of_the_chart_restarts_nothing(rendered: Rendered) -> None:
    for pod in rendered.pods():
        if pod.owner["kind"] != "Pod":
            assert not {"helm.sh/chart", "app.kubernetes.io/version"} & set(pod.labels), pod


def test_services_find_one_component_each(rendered: Rendered) -> None:
    pods = rendered.pods()
    for service in rendered.of_kind("Service"):
        found = [pod for pod in pods if selects(service["spec"]["selector"], pod.labels)]
        assert len(found) == 1, service["metadata"]["name"]
        names = {port["name"] for port in found[0].main["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= names


def test_each_service_has_a_headless_twin(rendered: Rendered) -> None:
    services = {service["metadata"]["name"]: service["spec"] for service in rendered.of_kind("Service")}
    for pod in rendered.servers():
        name = pod.owner["metadata"]["name"]
        assert services[name].get("clusterIP") is None
        assert services[f"{name}-headless"]["clusterIP"] == "None"


def test_budgets_find_their_pods_and_never_hold_up_a_drain(rendered: Rendered) -> None:
    pods = rendered.pods()
    for budget in rendered.of_kind("PodDisruptionBudget"):
        found = [pod for pod in pods if selects(budget["spec"]["selector"]["matchLabels"], pod.labels)]
        assert len(found) == 1, budget["metadata"]["name"]
        assert budget["spec"]["maxUnavailable"] == 1
        assert "minAvailable" not in budget["spec"]


def test_prometheus_finds_each_replica_once(helm: Helm) -> None:
    rendered = helm.render({"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}})
    services = rendered.of_kind("Service")
    for monitor in rendered.of_kind("ServiceMonitor"):
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
        found = [s for s in services if selects(monitor["spec"]["selector"]["matchLabels"], s["metadata"]["labels"])]
        assert len(found) == 1, monitor["metadata"]["name"]
        ports = {port["name"] for port in found[0]["spec"]["ports"]}
        assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= ports
    assert len(rendered.of_kind("ServiceMonitor")) == len(rendered.servers())


def test_every_policy_finds_pods_and_every_pod_has_one(rendered: Rendered) -> None:
    policies = rendered.of_kind("NetworkPolicy")
    pods = rendered.pods()
    for policy in policies:
        selector = policy["spec"]["podSelector"]["matchLabels"]
        assert [pod for pod in pods if selects(selector, pod.labels)], policy["metadata"]["name"]
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    if policies:
        for pod in pods:
            selecting = [p for p in policies if selects(p["spec"]["podSelector"]["matchLabels"], pod.labels)]
            assert len(selecting) == 2, f"{pod}: its own policy and the one that denies everything"


def test_labels_are_strings(rendered: Rendered) -> None:
    for manifest in rendered.manifests:
        for key, value in walk(manifest):
            if key in {"labels", "matchLabels", "annotations"}:
                assert all(isinstance(each, str) for each in value.values()), manifest["metadata"]["name"]
