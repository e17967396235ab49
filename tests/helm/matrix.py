"""The sets of values that the chart is tested with."""

from typing import Any

from helm.rendered import CHART, example

DIGEST = "sha256:" + "0" * 64

SQLITE_SINGLE: dict[str, Any] = {"catalog": {"kind": "sqlite", "sqlite": {"existingClaim": "old-catalog"}}}

POSTGRES_MULTI: dict[str, Any] = {
    "catalog": {"kind": "external", "existingSecret": "catalog", "secretKey": "dsn"},
    "vectorStore": {"kind": "external", "url": "http://qdrant.stores:6334"},
    "cache": {"kind": "redis", "existingSecret": "redis", "secretKey": "dsn", "port": 6380},
    "retriever": {"replicas": 3},
    "networkPolicy": {
        "qdrant": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "stores"}}}],
        "postgres": [{"ipBlock": {"cidr": "10.1.2.3/32"}}],
        "redis": [{"ipBlock": {"cidr": "10.1.2.4/32"}}],
    },
}

_PLACED: dict[str, Any] = {
    "nodeSelector": {"pool": "kbmesh"},
    "tolerations": [{"key": "pool", "operator": "Equal", "value": "kbmesh", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "arch", "operator": "In", "values": ["amd64"]}]}]
            }
        }
    },
    "priorityClassName": "important",
    "runtimeClassName": "gvisor",
    "podLabels": {"team": "search"},
    "podAnnotations": {"sidecar.istio.io/inject": "false"},
}
_MOUNTED: dict[str, Any] = {
    "extraEnv": [{"name": "SSL_CERT_FILE", "value": "/ca/ca.crt"}],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "company-ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca", "readOnly": True}],
    "extraEgress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"protocol": "TCP", "port": 443}]}],
}
_SCALED: dict[str, Any] = {"by": "keda", "minReplicas": 2, "maxReplicas": 9}
_GPU: dict[str, Any] = {"gpu": {"count": 2}, "sharedMemorySize": "2Gi", "cache": {"existingClaim": "engines"}}

EVERYTHING_ON: dict[str, Any] = {
    "fullnameOverride": "mesh",
    "images": {
        "registry": "registry.internal/kbmesh/",
        "tag": "1.2.3",
        "pullPolicy": "Always",
        "pullSecrets": ["registry"],
        "tools": {"digest": DIGEST},
    },
    "serviceAccount": {"annotations": {"iam": "role"}},
    "pods": {
        "labels": {"cost-center": "42"},
        "annotations": {"note": "all"},
        "extraEnv": [{"name": "TZ", "value": "Etc/UTC"}],
        "topologySpread": "hard",
    },
    "settings": {"log_level": "warning", "otlp_endpoint": "http://collector.tracing:4317"},
    "vectorStore": {"kind": "external", "url": "https://qdrant.internal", "existingSecret": "qdrant"},
    "cache": {"kind": "redis", "existingSecret": "redis"},
    "catalog": {"kind": "external", "existingSecret": "catalog"},
    "models": {"source": "claim", "folder": "v1", "pull": {"names": ["all-MiniLM-L6-v2", "BAAI/bge-small-en-v1.5"]}},
    "retriever": {
        "autoscaling": _SCALED,
        "service": {"type": "LoadBalancer", "annotations": {"internal": "true"}},
        "settings": {"llm_url": "https://llm.internal/v1", "llm_model": "small"},
        "secretSettings": {"llm_api_key": {"secret": "llm", "key": "token"}},
        **_PLACED,
        **_MOUNTED,
    },
    "chunker": {"autoscaling": _SCALED, "image": {"digest": DIGEST}, **_PLACED, **_MOUNTED},
    "embedder": {
        "autoscaling": _SCALED,
        "settings": {"batch_tokens": 1048576, "bulk_share": 0.5, "log_level": "debug"},
        **_GPU,
        **_PLACED,
        **_MOUNTED,
    },
    "reranker": {"autoscaling": _SCALED, **_GPU, **_PLACED, **_MOUNTED},
    "ingest": {
        "enabled": True,
        "knowledgeBase": "handbook",
        "manifest": "/ca/manifest.jsonl",
        "shards": 64,
        "parallelism": 8,
        "args": ["--create"],
        **_PLACED,
        **_MOUNTED,
    },
    "networkPolicy": {"callers": [{"namespaceSelector": {"matchLabels": {"team": "agents"}}}]},
    "priorityClasses": {"create": True},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
}

_BARE: dict[str, Any] = {"podDisruptionBudget": {"enabled": False}, "drain": {"preStopSeconds": 0, "graceSeconds": 0}}
EVERYTHING_OFF: dict[str, Any] = {
    "cache": {"kind": False},
    "serviceAccount": {"create": False},
    "pods": {"topologySpread": "none"},
    "models": {"source": "none"},
    "retriever": _BARE,
    "chunker": _BARE,
    "embedder": {**_BARE, "settings": {"backend": "fake"}},
    "reranker": {"enabled": False},
    "networkPolicy": {"enabled": False},
    "tests": {"enabled": False},
}

CRON_INGEST: dict[str, Any] = {
    "ingest": {"enabled": True, "mode": "cronJob", "knowledgeBase": "wiki", "manifest": "/documents/manifest.jsonl"}
}

EXAMPLES = {path.stem: example(path.stem) for path in sorted((CHART / "examples").glob("*.yaml"))}

MATRIX: dict[str, dict[str, Any]] = {
    "defaults": {},
    "sqlite-single": SQLITE_SINGLE,
    "postgres-multi": POSTGRES_MULTI,
    "cron-ingest": CRON_INGEST,
    "everything-on": EVERYTHING_ON,
    "everything-off": EVERYTHING_OFF,
    **EXAMPLES,
}

TLS_SECRETS = {
    part: f"certificate-{part}" for part in ("retriever", "chunker", "embedder", "reranker", "command", "keda")
}
MATRIX["gpu-keda-tls"] = {
    **EXAMPLES["gpu-keda"],
    "vectorStore": {
        **EXAMPLES["gpu-keda"]["vectorStore"],
        "tls": {"existingSecret": "qdrant-tls", "showCertificate": True},
    },
    "tls": {"enabled": True, "secrets": TLS_SECRETS},
    "ingest": {"enabled": True, "knowledgeBase": "wiki", "manifest": "/documents/manifest.jsonl"},
}

IMAGE_VOLUMES = {"mig"}
"""Sets that need Kubernetes 1.33."""
