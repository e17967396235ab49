"""Kinds of KEDA and the Prometheus operator, for which Kubernetes has no schema: only fields that their docs know."""

from helm.matrix import MATRIX
from helm.rendered import Helm

FIELDS = {
    "ScaledObject": {
        *("scaleTargetRef", "pollingInterval", "cooldownPeriod", "minReplicaCount", "maxReplicaCount"),
        *("advanced", "triggers", "fallback"),
    },
    "ScaledJob": {"jobTargetRef", "pollingInterval", "minReplicaCount", "maxReplicaCount", "triggers"},
    "ServiceMonitor": {"jobLabel", "selector", "endpoints", "namespaceSelector"},
    "PrometheusRule": {"groups"},
    "TriggerAuthentication": {"secretTargetRef"},
    "Certificate": {
        *("secretName", "duration", "renewBefore", "privateKey", "usages", "dnsNames", "issuerRef"),
    },
}
VERSIONS = {
    "ScaledObject": "keda.sh/v1alpha1",
    "ScaledJob": "keda.sh/v1alpha1",
    "ServiceMonitor": "monitoring.coreos.com/v1",
    "PrometheusRule": "monitoring.coreos.com/v1",
    "TriggerAuthentication": "keda.sh/v1alpha1",
    "Certificate": "cert-manager.io/v1",
}


def test_custom_resources_have_known_fields(helm: Helm) -> None:
    seen = set()
    for values in MATRIX.values():
        for manifest in helm.render(values).of_kind(*FIELDS):
            kind = manifest["kind"]
            seen.add(kind)
            assert manifest["apiVersion"] == VERSIONS[kind]
            assert set(manifest["spec"]) <= FIELDS[kind]
            for trigger in manifest["spec"].get("triggers", []):
                assert set(trigger) <= {"type", "metadata", "metricType", "name", "authenticationRef"}
                assert all(isinstance(value, str) for value in trigger["metadata"].values())
            for group in manifest["spec"].get("groups", []):
                for rule in group["rules"]:
                    assert set(rule) <= {"alert", "record", "expr", "for", "labels", "annotations"}
    assert seen == set(FIELDS)
