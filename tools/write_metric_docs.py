"""Writes docs/metrics.md from the metrics that each service makes when it is imported. `make metrics-docs` calls it."""

import importlib
import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SERVICES = ("retriever", "chunker", "embedder", "reranker", "edge")
LIBRARIES = ("kbmesh_rpc", "kbmesh_onnx")

LABELS: Mapping[str, str] = {
    "backend": "which implementation runs a model: onnx, fake, late_interaction, or the name of a provider",
    "cache": "answers or query_vectors",
    "cause": "why a call to a model's provider failed; [providers.md](providers.md#errors) has them",
    "counted_as": "what the scaler counted for a replica that did not answer: last_answer or mean",
    "dependency": "who is asked: embedder, reranker, catalog, language model, or the kind of vector store",
    "device": "the device in use, from the live session: cpu, cuda:0 and its name",
    "event": "started, finished or cancelled",
    "fault": "of a cache: unavailable, timeout, refused or broken",
    "file": "the path of a certificate, from the settings: that of the mesh, and one for Qdrant where it is another",
    "fingerprint": "of a model: vectors of two fingerprints are never mixed",
    "grpc_code": "the code of a call's end, such as OK",
    "grpc_method": "a method of the contract; `other` for all that is not",
    "grpc_service": "a service of the contract, with its package; `other` for all that is not",
    "grpc_type": "unary, client_stream, server_stream or bidi_stream",
    "http_status": "2xx, 3xx, 4xx, 5xx, or none where there was no answer",
    "kind": "generation or knowledge_base",
    "lane": "interactive or bulk",
    "max_tokens": "what a model reads at most",
    "model": "a configured model's name",
    "outcome": "what became of it; the metric's own words say which there are",
    "precision": "fp32, fp16 or int8",
    "python": "the version of Python",
    "reads_as": "pooling of an encoder, method of a reranker",
    "reason": "a reason of [errors.md](errors.md) without its prefix; of what left a queue: cancelled, expired, closed "
    "or lost",
    "service": "the short name of a service",
    "stage": "a stage of retrieval, as in an answer's `timings`",
    "status": "what a knowledge base gave, as in an answer's reports",
    "strategy": "of retrieval or of chunking",
    "version": "of kbmesh",
    "wanted_device": "the device that the settings ask for: auto, cpu or cuda",
}
"""Every label, and what its values may be. All of them are closed sets."""

HEAD = """# Metrics
Every server gives them to Prometheus at `http://HOST:METRICS_PORT/metrics` (`KBMESH_METRICS_PORT`; in the chart by
`serviceMonitor.enabled`). This page is generated from the code by `make metrics-docs`. The dashboards that are made of
them are in [dashboards.md](dashboards.md), the alerts in [runbooks.md](runbooks.md).

- Names of gRPC series are those of the gRPC ecosystem's Prometheus interceptors, so that common dashboards work. Units
  are in names; counters end in `_total`.
- All series are there from the start, at zero: a rate is right from the first event on. Exceptions are a model's info,
  which is there while the model is, and series of calls by methods that a server does not have, which are counted as
  `other` once one comes.
- **No label grows with tenants, knowledge bases, documents or queries**: each is one of a closed set. Who calls most is
  in the logs ([dashboards.md](dashboards.md#top-talkers)). A mesh at work had 330 series at the chunker, 830 at the
  reranker, 1,120 at the embedder, 1,730 at the retriever and 2,550 at the edge, whose contract has the most methods: 42
  to 321 kB a scrape. A test holds that they stay as many, whatever callers do.
- Each process counts for itself, and there is one serving process for each server: nothing has to be added up within a
  pod. `process_*` and `python_*` are those of the Prometheus client library.

"""

_RETRIEVE = 'grpc_server_handled_total{grpc_method=~"Retrieve|RetrieveStream"'
_FAULTS = 'grpc_code=~"INTERNAL|UNKNOWN|DATA_LOSS|UNAVAILABLE"'
_ANSWERS = "kbmesh_retriever_answers_total"
_PADDING = "sum(rate(kbmesh_embedder_padding_tokens_total[5m]))"
QUESTIONS = {
    "What share of Retrieve fails by the mesh's own fault?": (
        f"sum(rate({_RETRIEVE},{_FAULTS}}}[5m])) / sum(rate({_RETRIEVE}}}[5m]))"
    ),
    "What share of answers misses something by a fault?": (
        f'sum(rate({_ANSWERS}{{outcome=~"degraded|partial"}}[5m])) / sum(rate({_ANSWERS}[5m]))'
    ),
    "What does the embedder scale by?": (
        "sum by (pod) (kbmesh_embedder_queue_tokens) + sum by (pod) (kbmesh_embedder_running_tokens)"
    ),
    "How much of the model's work is padding?": (
        f"{_PADDING} / ({_PADDING} + sum(rate(kbmesh_embedder_tokens_total[5m])))"
    ),
    "Which model is not where it should be?": ('kbmesh_embedder_model_info{wanted_device="cuda",device!~"cuda.*"}'),
}


def families(service: str) -> list[dict[str, Any]]:
    """What a service makes when all of its modules are imported."""
    done = subprocess.run(  # noqa: S603 - this very file
        [sys.executable, __file__, "--families", service], capture_output=True, text=True, check=True, cwd=ROOT
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def print_families(service: str) -> None:
    """In a process of its own: a registry is one for each."""
    from prometheus_client import REGISTRY
    from prometheus_client.metrics import MetricWrapperBase

    package = importlib.import_module(f"kbmesh_{service}")
    for module in pkgutil.walk_packages(package.__path__, f"kbmesh_{service}."):
        if not module.name.endswith("__main__") and "migrations" not in module.name:
            importlib.import_module(module.name)
    # The registry tells of samples only, and a metric with labels has none yet: what it is made of, it does not tell.
    made = {id(one): one for one in REGISTRY._collector_to_names if isinstance(one, MetricWrapperBase)}
    found = [
        {
            "name": f"{one._name}_total" if one._type == "counter" else one._name,
            "type": one._type,
            "help": one._documentation,
            "labels": list(one._labelnames),
            "buckets": [bound for bound in one._kwargs.get("buckets", ()) if bound != float("inf")],
        }
        for one in made.values()
    ]
    sys.stdout.write(json.dumps(sorted(found, key=lambda each: each["name"])))


def rows(found: Iterable[Mapping[str, Any]]) -> list[str]:
    lines = ["| series | type | labels | what it says |", "|---|---|---|---|"]
    for each in found:
        labels = ", ".join(f"`{label}`" for label in each["labels"]) or "-"
        text = each["help"].replace("|", "\\|")
        if each["buckets"]:
            text += f" Buckets: {', '.join(f'{bound:g}' for bound in each['buckets'])}."
        lines.append(f"| `{each['name']}` | {each['type']} | {labels} | {text} |")
    return lines


def page() -> str:
    """The whole page. Raises ValueError where a label is not explained, or one is that nobody has."""
    by_service = {service: families(service) for service in SERVICES}
    labels = {label for found in by_service.values() for each in found for label in each["labels"]}
    if wrong := labels ^ LABELS.keys():
        raise ValueError(f"LABELS in tools/write_metric_docs.py and the code differ in {', '.join(sorted(wrong))}")
    names = {service: {each["name"] for each in found} for service, found in by_service.items()}
    shared = set.intersection(*names.values())
    parts = [HEAD, "## Labels\n| label | values |\n|---|---|\n"]
    parts += [f"| `{label}` | {meaning} |\n" for label, meaning in sorted(LABELS.items())]
    parts += ["\n## Every server\n", "\n".join(rows(e for e in by_service["edge"] if e["name"] in shared)), "\n"]
    for service in SERVICES:
        own = [each for each in by_service[service] if each["name"] not in shared]
        if own:
            parts += [f"\n## {service.capitalize()}\n", "\n".join(rows(own)), "\n"]
    parts.append("\n## Questions\n| question | query |\n|---|---|\n")
    parts += [f"| {question} | `{query.replace('|', chr(92) + '|')}` |\n" for question, query in QUESTIONS.items()]
    return "".join(parts)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--families"]:
        print_families(sys.argv[2])
    else:
        target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/metrics.md"
        target.write_text(page())
