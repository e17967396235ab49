"""Values that cannot work are refused before anything is installed, by a message that names the key."""

from typing import Any

import pytest
from helm.rendered import Helm, RefusedError

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("an unknown key", {"embeder": {}}, "'embeder' not allowed"),
    ("an unknown key of a component", {"embedder": {"replica": 2}}, "'/embedder': additional properties 'replica'"),
    ("a wrong type", {"chunker": {"replicas": "two"}}, "'/chunker/replicas': got string, want integer"),
    ("a word that is none", {"models": {"source": "hub"}}, "'/models/source': value must be one of"),
    ("SQLite with two replicas", {"retriever": {"replicas": 2}}, "'/retriever/replicas': maximum: got 2, want 1"),
    ("SQLite with an HPA", {"retriever": {"autoscaling": {"by": "hpa"}}}, "'/retriever/autoscaling/by'"),
    ("SQLite with KEDA", {"retriever": {"autoscaling": {"by": "keda"}}}, "'/retriever/autoscaling/by'"),
    ("HPA and KEDA", {"embedder": {"autoscaling": {"by": ["hpa", "keda"]}}}, "must be one of 'none', 'hpa', 'keda'"),
    (
        "HPA and KEDA, as other charts have them",
        {"embedder": {"autoscaling": {"hpa": {"enabled": True}, "keda": {"enabled": True}}}},
        "'/embedder/autoscaling': additional properties",
    ),
    ("an embedder that scales to zero", {"embedder": {"autoscaling": {"minReplicas": 0}}}, "minReplicas': minimum"),
    (
        "fewer at most than at least",
        {"embedder": {"autoscaling": {"by": "keda", "minReplicas": 5}}},
        "embedder.autoscaling: minReplicas 5 is above maxReplicas 4",
    ),
    ("a misspelt setting", {"embedder": {"settings": {"batch_token": 1}}}, "'batch_token' not allowed"),
    ("a setting of another service", {"chunker": {"settings": {"batch_tokens": 1}}}, "'batch_tokens' not allowed"),
    ("a setting out of bounds", {"embedder": {"settings": {"batch_tokens": 0}}}, "batch_tokens': minimum"),
    ("a secret in plain text", {"retriever": {"settings": {"llm_api_key": "s"}}}, "'llm_api_key' not allowed"),
    (
        "a setting that the chart sets, as environment",
        {"embedder": {"extraEnv": [{"name": "KBMESH_MODEL", "value": "x"}]}},
        "'/embedder/extraEnv/0/name'",
    ),
    ("a pod without a memory limit", {"chunker": {"resources": {"limits": {"memory": None}}}}, "property 'memory'"),
    ("a device that is none", {"embedder": {"gpu": {"count": 1, "resourceName": "gpu"}}}, "resourceName'"),
    ("an external Qdrant without a URL", {"vectorStore": {"kind": "external"}}, "'/vectorStore/url'"),
    ("an external PostgreSQL without a Secret", {"catalog": {"kind": "external"}}, "'/catalog/existingSecret'"),
    ("a Redis without a Secret", {"cache": {"kind": "redis"}}, "'/cache/existingSecret'"),
    ("a cache of another kind", {"cache": {"kind": "memcached"}}, "'/cache/kind'"),
    ("a trial PostgreSQL without a password", {"catalog": {"kind": "trial"}}, "'/catalog/trial/password'"),
    ("an image of models without a name", {"models": {"source": "image"}}, "'/models/image/reference'"),
    ("an ingest of nothing", {"ingest": {"enabled": True}}, "'/ingest/manifest'"),
    (
        "a scaled ingest without a trigger",
        {"ingest": {"enabled": True, "mode": "scaledJob", "knowledgeBase": "a", "manifest": "b"}},
        "'/ingest/scaledJob/triggers'",
    ),
    ("cert-manager without an issuer", {"tls": {"certManager": {"enabled": True}}}, "'/tls/certManager/issuer/name'"),
    ("TLS without certificates", {"tls": {"enabled": True}}, "tls.secrets."),
    (
        "TLS with a Qdrant in plain text",
        {"tls": {"enabled": True}, "vectorStore": {"kind": "external", "url": "http://qdrant.stores:6334"}},
        "'/vectorStore/url'",
    ),
    (
        "TLS with stores for trying out, which speak plain text",
        {"tls": {"enabled": True}, "catalog": {"kind": "trial", "trial": {"password": "long-enough"}}},
        "'/catalog/kind'",
    ),
    ("a caller with a comma", {"tls": {"callers": ["a,b"]}}, "'/tls/callers/0'"),
    (
        "files of TLS as settings",
        {"chunker": {"settings": {"tls_cert": "/other/tls.crt"}}},
        "'tls_cert' not allowed",
    ),
    ("labels that select", {"pods": {"labels": {"app.kubernetes.io/name": "x"}}}, "'app.kubernetes.io/name'"),
    ("a tag in place of a digest", {"images": {"tools": {"digest": "v1"}}}, "'/images/tools/digest'"),
]


@pytest.mark.parametrize(("values", "named"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_values_are_refused_by_name(helm: Helm, values: dict[str, Any], named: str) -> None:
    with pytest.raises(RefusedError) as refusal:
        helm.render(values)
    assert named in str(refusal.value)


@pytest.mark.parametrize("where", ["requests", "limits"])
@pytest.mark.parametrize("component", ["embedder", "reranker", "chunker", "retriever"])
def test_hlm_04_devices_are_not_given_as_requests(helm: Helm, component: str, where: str) -> None:
    """HLM-04: the API server refuses pods whose request of a device is not their limit."""
    with pytest.raises(RefusedError, match=r"nvidia\.com/gpu"):
        helm.render({component: {"resources": {where: {"nvidia.com/gpu": 1}}}})
