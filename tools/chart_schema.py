"""values.schema.json of the Helm chart: made of values.yaml, its comments, and the settings of the services.

Every map is closed: a key that values.yaml does not have is refused. What a service can be told is read from its
Settings class, so that the chart knows each setting, its type and its bounds. JSON Schema draft 7, which Helm 3 and 4
read.
"""

import importlib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from chart_values import ChartValue
from kbmesh_rpc.settings import ServerSettings

Schema = dict[str, Any]

SERVICES = ("retriever", "chunker", "embedder", "reranker", "edge")

SET_BY_CHART = {
    "": {
        *("host", "port", "metrics_port", "grace_seconds", "max_connection_age_seconds", "trust_tenant_metadata"),
        *("tls_cert", "tls_key", "tls_ca", "tls_allowed_callers", "tls_trusted_callers", "tls_require_client_cert"),
        *("health_port", "allow_plaintext"),
    },
    "retriever": {
        *("home", "catalog_url", "qdrant_url", "qdrant_api_key", "qdrant_ca", "qdrant_cert", "qdrant_key"),
        *("chunker_address", "embedder_address", "reranker_address", "cache", "redis_url"),
    },
    "chunker": {"embedder_address"},
    "embedder": {"home", "models", "model", "device", "require_device", "scaler_peers"},
    "reranker": {"home", "models", "model", "device", "require_device", "scaler_peers"},
    "edge": {"home", "data_folder"},
}
"""Settings that have values of their own in the chart, and so are not in its `settings`. "" is every service."""

QUANTITY: Schema = {"type": ["string", "number"], "pattern": r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"}
TEXT_MAP: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
OBJECTS: Schema = {"type": "array", "items": {"type": "object"}}
LABELS: Schema = {
    **TEXT_MAP,
    # A pod that lost one of these would leave its Deployment.
    "propertyNames": {"not": {"enum": [f"app.kubernetes.io/{name}" for name in ("name", "instance", "component")]}},
}
ENVIRONMENT: Schema = {
    "type": "array",
    "items": {
        "type": "object",
        "additionalProperties": False,
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "minLength": 1, "not": {"pattern": "^KBMESH_"}},
            "value": {"type": "string"},
            "valueFrom": {"type": "object"},
        },
    },
}
STRATEGY: Schema = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "type": {"enum": ["RollingUpdate", "Recreate"]},
        "rollingUpdate": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "maxSurge": {"type": ["integer", "string"]},
                "maxUnavailable": {"type": ["integer", "string"]},
            },
        },
    },
}
DIGEST: Schema = {"type": "string", "pattern": "^(sha256:[a-f0-9]{64})?$"}
NAME: Schema = {"type": "string", "pattern": r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$"}
DURATION: Schema = {"type": "string", "pattern": "^([0-9]+(h|m|s))+$"}
PULL_POLICY: Schema = {"enum": ["Always", "IfNotPresent", "Never"]}


def at_least(least: int, kind: str = "integer") -> Schema:
    return {"type": kind, "minimum": least}


def one_of(*names: str) -> Schema:
    return {"enum": list(names)}


def list_of(item: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": item, **more}


RULES: Sequence[tuple[str, Schema]] = (
    ("fullnameOverride", {"type": "string", "maxLength": 40, "pattern": "^([a-z]([-a-z0-9]*[a-z0-9])?)?$"}),
    ("images.pullSecrets", list_of({"type": "string", "minLength": 1})),
    ("*pullPolicy", PULL_POLICY),
    ("*.digest", DIGEST),
    ("*.tag", {"type": "string", "pattern": "^([A-Za-z0-9_][A-Za-z0-9_.-]*)?$"}),
    ("serviceAccount.name", NAME),
    ("*existingSecret", NAME),
    ("tls.secrets.*", NAME),
    ("tls.certManager.issuer.kind", one_of("Issuer", "ClusterIssuer")),
    ("tls.certManager.issuer.name", NAME),
    ("tls.certManager.*uration", DURATION),
    ("tls.certManager.renewBefore", DURATION),
    ("tls.certManager.retrieverNames", list_of({"type": "string", "minLength": 1})),
    ("tls.*allers", list_of({"type": "string", "pattern": "^[!-+\\-.-~]+$"})),
    ("*existingClaim", NAME),
    ("*storageClassName", NAME),
    ("*priorityClassName", NAME),
    ("*runtimeClassName", NAME),
    ("*abels", LABELS),
    ("*nnotations", TEXT_MAP),
    ("*.nodeSelector", TEXT_MAP),
    ("*.affinity", {"type": "object"}),
    ("*.strategy", STRATEGY),
    ("*.extraEnv", ENVIRONMENT),
    ("*.tolerations", OBJECTS),
    ("*.extraVolumes", OBJECTS),
    ("*.extraVolumeMounts", OBJECTS),
    ("*.extraEgress", OBJECTS),
    ("networkPolicy.dns.ports", list_of({"type": "integer", "minimum": 1, "maximum": 65535}, minItems=1)),
    ("networkPolicy.dns.to", OBJECTS),
    *((f"networkPolicy.{name}", OBJECTS) for name in ("callers", "prometheus", "keda")),
    *((f"networkPolicy.{name}", OBJECTS) for name in ("qdrant", "postgres", "redis", "otlp")),
    ("pods.runAs*", at_least(1)),
    ("pods.fsGroup", at_least(1)),
    ("*.runAsUser", at_least(1)),
    ("pods.topologySpread", one_of("soft", "hard", "none")),
    ("listenAddress", {"type": "string", "pattern": r"^(0\.0\.0\.0|::)$"}),
    ("vectorStore.kind", one_of("edge", "trial", "external")),
    ("vectorStore.url", {"type": "string", "pattern": "^(https?://[^/]+)?$"}),
    ("cache.kind", {"enum": ["memory", "redis", "off", False]}),
    ("cache.port", {"type": "integer", "minimum": 1, "maximum": 65535}),
    ("catalog.kind", one_of("sqlite", "trial", "external")),
    ("catalog.port", {"type": "integer", "minimum": 1, "maximum": 65535}),
    ("catalog.trial.password", {"type": "string", "pattern": "^[A-Za-z0-9_-]*$"}),
    ("models.source", one_of("pull", "claim", "image", "none")),
    ("models.folder", {"type": "string", "pattern": "^([^/].*[^/])?$"}),
    ("models.claim.accessModes", list_of(one_of("ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany"), minItems=1)),
    ("models.pull.names", list_of({"type": "string", "minLength": 1})),
    ("*.model", {"type": "string", "minLength": 1, "pattern": "^[^ ]+$"}),
    ("*.replicas", at_least(0)),
    ("*.autoscaling.by", one_of("none", "hpa", "keda")),
    ("*.minReplicas", at_least(1)),
    ("*.maxReplicas", at_least(1)),
    ("*.targetTokens", at_least(1)),
    ("*.targetCpuPercent", at_least(1)),
    ("*.hpaMetric", {"type": "string", "minLength": 1}),
    ("*.gpu.count", {"type": "integer", "minimum": 0, "maximum": 16}),
    ("*.gpu.resourceName", {"type": "string", "pattern": "^[a-z0-9.-]+/[A-Za-z0-9._-]+$"}),
    ("*.sharedMemorySize", {"type": "string", "pattern": "^([0-9]+(M|G|Mi|Gi))?$"}),
    ("*.maxUnavailable", {"type": ["integer", "string"], "minimum": 1, "pattern": "^[1-9][0-9]?%$|^100%$"}),
    ("*.service.type", one_of("ClusterIP", "NodePort", "LoadBalancer")),
    ("*.startupSeconds", at_least(2)),
    ("*.*PeriodSeconds", at_least(1)),
    ("*.livenessFailures", at_least(1)),
    ("*.maxConnectionAgeSeconds", at_least(0)),
    ("*.preStopSeconds", at_least(0)),
    ("*.drain.graceSeconds", at_least(0, "number")),
    ("*.tmpSize", QUANTITY),
    ("*.size", QUANTITY),
    ("ingest.mode", one_of("job", "cronJob", "scaledJob")),
    ("ingest.shards", {"type": "integer", "minimum": 1, "maximum": 100000}),
    ("ingest.parallelism", at_least(1)),
    ("ingest.args", list_of({"type": "string"})),
    ("ingest.scaledJob.triggers", OBJECTS),
    ("ingest.scaledJob.maxJobs", at_least(1)),
    ("prometheusRule.slo.fastSeconds", one_of("0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0")),
    ("*Seconds", at_least(0)),
    ("priorityClasses.serving", {"type": "integer", "maximum": 1000000000}),
    ("priorityClasses.bulk", {"type": "integer", "maximum": 1000000000}),
    ("prometheusRule.slo.minimumCalls", at_least(0)),
    ("prometheusRule.slo.*", {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
    ("*.retriesPerShard", at_least(0)),
    ("*.interval", {"type": "string", "pattern": "^[0-9]+(ms|s|m)$"}),
)
"""What a value may be, by its path; the first that fits counts. A value without a rule has its default's type."""


def chart_schema(values: Sequence[ChartValue]) -> Schema:
    """The schema as JSON."""
    root = _closed({})
    for value in values:
        parent = root
        for name in value.path[:-1]:
            parent = parent["properties"][name]
        parent["properties"][value.path[-1]] = _of(value)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$comment": "Written by tools/write_chart_docs.py.",
        "title": "Values of the kbmesh chart",
        **root,
        "allOf": CONDITIONS,
    }


def _of(value: ChartValue) -> Schema:
    described = {"description": value.comment} if value.comment else {}
    if value.path[-1] in {"limits", "requests"}:
        return {**described, **_quantities(needs_memory=value.path[-1] == "limits")}
    if value.dotted == "settings":
        return {**described, **_closed(settings_of(""))}
    if value.path[-1] == "settings":
        return {**described, **_closed(settings_of(value.path[0]))}
    if value.path[-1] == "secretSettings":
        return {**described, **_closed(secrets_of(value.path[0]))}
    if value.path[-2:-1] in {("limits",), ("requests",)}:
        return {**described, **QUANTITY}
    if not value.leaf:
        return {**described, **_closed({})}
    for pattern, schema in RULES:
        if fnmatchcase(value.dotted, pattern):
            return {**described, **schema}
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string"}
    if type(value.default) not in kinds:
        raise ValueError(f"{value.dotted}: a map or list needs a rule in tools/chart_schema.py")
    return {**described, "type": kinds[type(value.default)]}


def _closed(properties: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": dict(properties)}


def _quantities(*, needs_memory: bool) -> Schema:
    # Devices are not among them: they belong to `gpu`, which puts them where Kubernetes accepts them.
    names = ("cpu", "memory", "ephemeral-storage")
    return {**_closed(dict.fromkeys(names, QUANTITY)), **({"required": ["memory"]} if needs_memory else {})}


def settings_class(service: str) -> type[ServerSettings]:
    """The Settings class of a service; of "", what all have in common."""
    if not service:
        return ServerSettings
    module = importlib.import_module(f"kbmesh_{service}.settings")
    found: type[ServerSettings] = getattr(module, f"{service.capitalize()}Settings")
    return found


def _fields(service: str) -> dict[str, Schema]:
    """Its settings that the chart does not set itself, as JSON Schema."""
    whole = settings_class(service).model_json_schema()
    definitions = whole.get("$defs", {})
    owned = SET_BY_CHART[""] | SET_BY_CHART.get(service, set())
    return {
        name: _inlined(schema, definitions) for name, schema in sorted(whole["properties"].items()) if name not in owned
    }


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inlined(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    # A path is a string to Helm, and the default is the service's business.
    return {
        key: _inlined(part, definitions)
        for key, part in schema.items()
        if key not in {"title", "default"} and not (key == "format" and part == "path")
    }


def _is_secret(schema: Schema) -> bool:
    return "writeOnly" in str(schema)


def settings_of(service: str) -> dict[str, Schema]:
    """Settings for plain values."""
    return {name: schema for name, schema in _fields(service).items() if not _is_secret(schema)}


def secrets_of(service: str) -> dict[str, Schema]:
    """Settings that come from Secrets."""
    reference = {
        **_closed({"secret": {"type": "string", "minLength": 1}, "key": {"type": "string", "minLength": 1}}),
        "required": ["secret", "key"],
    }
    return {name: reference for name, schema in _fields(service).items() if _is_secret(schema)}


def _nest(path: str, schema: Schema, *, required: bool = False) -> Schema:
    for name in reversed(path.split(".")):
        schema = {"properties": {name: schema}, **({"required": [name]} if required else {})}
    return schema


def _when(path: str, is_: Any, *, then: Sequence[tuple[str, Schema]], why: str) -> Schema:
    return {
        "$comment": why,
        "if": _nest(path, {"const": is_}, required=True),
        "then": {"allOf": [_nest(other, schema) for other, schema in then]},
    }


FILLED: Schema = {"minLength": 1}

CONDITIONS: list[Schema] = [
    _when(
        "catalog.kind",
        "sqlite",
        then=[("retriever.replicas", {"maximum": 1}), ("retriever.autoscaling.by", {"const": "none"})],
        why="A SQLite file belongs to one process: more replicas need PostgreSQL.",
    ),
    _when("catalog.kind", "external", then=[("catalog.existingSecret", FILLED)], why="The URL holds a password."),
    _when("catalog.kind", "trial", then=[("catalog.trial.password", {"minLength": 8})], why="It has no default."),
    _when("vectorStore.kind", "external", then=[("vectorStore.url", FILLED)], why="Nobody knows where it is."),
    _when(
        "tls.certManager.enabled",
        True,
        then=[("tls.certManager.issuer.name", FILLED)],
        why="Nobody else knows who signs.",
    ),
    {
        "$comment": "The retriever would not start: these stores speak plain text.",
        "if": _nest(
            "tls", {"properties": {"enabled": {"const": True}, "allowPlaintext": {"const": False}}}, required=True
        ),
        "then": {
            "allOf": [
                _nest("vectorStore.kind", {"enum": ["edge", "external"]}),
                _nest("vectorStore.url", {"pattern": "^(https://.*)?$"}),
                _nest("catalog.kind", {"enum": ["sqlite", "external"]}),
            ]
        },
    },
    _when("cache.kind", "redis", then=[("cache.existingSecret", FILLED)], why="The URL holds a password."),
    _when("models.source", "image", then=[("models.image.reference", FILLED)], why="Nobody knows which."),
    _when(
        "ingest.enabled",
        True,
        then=[("ingest.knowledgeBase", FILLED), ("ingest.manifest", FILLED)],
        why="There is no default for what to take in.",
    ),
    {
        "$comment": "Without a trigger nothing would ever run.",
        "if": _nest(
            "ingest", {"properties": {"enabled": {"const": True}, "mode": {"const": "scaledJob"}}}, required=True
        ),
        "then": _nest("ingest.scaledJob.triggers", {"minItems": 1}),
    },
]
