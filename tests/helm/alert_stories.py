"""For each alert a story in which it must fire, and one like it in which it must stay silent.

A story is what promtool takes: series, each with its samples, one a step ("0+3x60" counts up by 3, sixty times).
"""

from collections.abc import Mapping
from dataclasses import dataclass

Series = Mapping[str, str]
HOUR = 60


def of(name: str, component: str = "retriever", **labels: str) -> str:
    """A series of the release that the tests render."""
    found = {"namespace": "search", "service": f"demo-kbmesh-{component}-headless", "pod": f"{component}-0", **labels}
    return f"{name}{{{','.join(f'{key}={value!r}' for key, value in found.items())}}}".replace("'", '"')


@dataclass(frozen=True, kw_only=True)
class Story:
    """What happens, and whether the alert fires at a minute of it."""

    alert: str
    fires: Series
    silent: Series
    at: int
    """Step."""
    step_minutes: int = 1
    severity: str = "warning"


def retrieve(code: str) -> str:
    return of(
        "grpc_server_handled_total",
        grpc_service="kbmesh.retriever.v1.RetrieverService",
        grpc_method="Retrieve",
        grpc_code=code,
    )


def handling(suffix: str, **labels: str) -> str:
    return of(
        f"grpc_server_handling_seconds_{suffix}",
        grpc_service="kbmesh.retriever.v1.RetrieverService",
        grpc_method="Retrieve",
        **labels,
    )


def answers(outcome: str) -> str:
    return of("kbmesh_retriever_answers_total", strategy="hybrid", outcome=outcome)


def info(component: str, device: str, wanted: str) -> str:
    return of(f"kbmesh_{component}_model_info", component, model="m", device=device, wanted_device=wanted)


def certificate(days: float) -> Series:
    return {of("kbmesh_tls_certificate_expiry_timestamp_seconds"): f"{days * 86400:.0f}x60"}


def counts(step: float, minutes: int = HOUR) -> str:
    return f"0+{step}x{minutes}"


STORIES = (
    Story(
        alert="KbmeshServiceMissing",
        severity="critical",
        at=10,
        fires={of("up", "chunker"): "0x60", of("up", "retriever"): "1x60", of("up", "embedder"): "1x60"},
        silent={of("up", one): "1x60" for one in ("chunker", "retriever", "embedder", "reranker", "edge")},
    ),
    Story(
        alert="KbmeshReplicaDown",
        at=15,
        fires={of("up"): "1x60", of("up", pod="retriever-1"): "0x60"},
        silent={of("up"): "1x60", of("up", pod="retriever-1"): "1 1 0 0 1x60"},
    ),
    Story(
        alert="KbmeshUnknownErrors",
        at=20,
        fires={of("kbmesh_server_errors_total", reason="INTERNAL"): "0x10 1x60"},
        silent={of("kbmesh_server_errors_total", reason="INVALID_FIELD"): counts(5)},
    ),
    Story(
        alert="KbmeshRefusing",
        at=30,
        fires={of("grpc_server_handled_total", "embedder", grpc_code="RESOURCE_EXHAUSTED"): counts(2)},
        silent={of("grpc_server_handled_total", "embedder", grpc_code="RESOURCE_EXHAUSTED"): "0x5 3x60"},
    ),
    Story(alert="KbmeshCertificateEnds", at=20, fires=certificate(3), silent=certificate(30)),
    Story(alert="KbmeshCertificateEnds", severity="critical", at=20, fires=certificate(0.5), silent=certificate(3)),
    Story(
        alert="KbmeshModelNotReady",
        at=20,
        fires={of("kbmesh_reranker_model_ready", "reranker", model="m"): "0x60"},
        silent={of("kbmesh_reranker_model_ready", "reranker", model="m"): "0x5 1x60"},
    ),
    Story(
        alert="KbmeshDeviceMismatch",
        at=10,
        fires={info("embedder", "cpu", "cuda"): "1x60"},
        silent={info("embedder", "cuda:0 (NVIDIA H200)", "cuda"): "1x60", info("reranker", "cpu", "auto"): "1x60"},
    ),
    Story(
        alert="KbmeshDeviceLost",
        severity="critical",
        at=20,
        fires={of("kbmesh_embedder_dropped_texts_total", "embedder", reason="lost"): "0x10 7x60"},
        silent={of("kbmesh_embedder_dropped_texts_total", "embedder", reason="expired"): "0x10 7x60"},
    ),
    Story(
        alert="KbmeshItemsFail",
        at=50,
        fires={of("kbmesh_embedder_failed_texts_total", "embedder"): counts(1)},
        silent={of("kbmesh_embedder_failed_texts_total", "embedder"): "0x5 9x60"},
    ),
    Story(
        alert="KbmeshScalerBlind",
        at=30,
        fires={of("kbmesh_scaler_unanswered_total", "embedder", counted_as="mean"): counts(1)},
        silent={of("kbmesh_scaler_unanswered_total", "embedder", counted_as="mean"): "0x5 2x60"},
    ),
    Story(
        alert="KbmeshBreakerOpen",
        at=10,
        fires={of("kbmesh_retriever_breakers_open", dependency="reranker"): "0 1x60"},
        silent={of("kbmesh_retriever_breakers_open", dependency="reranker"): "0 1 1 0x60"},
    ),
    Story(
        alert="KbmeshHedgesRefused",
        at=40,
        fires={
            of("kbmesh_retriever_hedges_total", dependency="qdrant", outcome="refused"): counts(30),
            of("kbmesh_retriever_hedges_total", dependency="qdrant", outcome="won"): counts(5),
        },
        silent={
            of("kbmesh_retriever_hedges_total", dependency="qdrant", outcome="refused"): counts(6),
            of("kbmesh_retriever_hedges_total", dependency="qdrant", outcome="lost"): counts(5),
        },
    ),
    Story(
        alert="KbmeshAbandonedCalls",
        at=20,
        fires={of("kbmesh_retriever_abandoned_calls_running"): "80x60"},
        silent={of("kbmesh_retriever_abandoned_calls_running"): "10x60"},
    ),
    Story(
        alert="KbmeshCacheFaults",
        at=40,
        fires={
            of("kbmesh_retriever_cache_errors_total", cache="answers", fault="unavailable"): counts(10),
            of("kbmesh_retriever_cache_requests_total", cache="answers", outcome="miss"): counts(100),
        },
        silent={
            of("kbmesh_retriever_cache_errors_total", cache="answers", fault="unavailable"): counts(1),
            of("kbmesh_retriever_cache_requests_total", cache="answers", outcome="miss"): counts(100),
        },
    ),
    Story(
        alert="KbmeshSweeperStuck",
        at=180,
        fires={of("kbmesh_retriever_last_sweep_timestamp_seconds"): "600x200"},
        silent={
            of("kbmesh_retriever_last_sweep_timestamp_seconds"): "0+60x200",
            of("kbmesh_retriever_sweep_left"): "0x200",
        },
    ),
    Story(
        alert="KbmeshIngestFails",
        at=40,
        fires={
            of("kbmesh_retriever_ingest_failures_total", reason="DEPENDENCY_UNAVAILABLE"): counts(2),
            of("kbmesh_retriever_ingested_documents_total", outcome="new"): counts(10),
        },
        silent={
            of("kbmesh_retriever_ingest_failures_total", reason="DOCUMENT_UNREADABLE"): counts(2),
            of("kbmesh_retriever_ingested_documents_total", outcome="new"): counts(10),
        },
    ),
    Story(
        alert="KbmeshIngestStuck",
        at=45,
        fires={
            of("kbmesh_retriever_ingest_documents_in_work"): "5x60",
            of("kbmesh_retriever_ingested_documents_total", outcome="new"): "3x60",
        },
        silent={
            of("kbmesh_retriever_ingest_documents_in_work"): "5x60",
            of("kbmesh_retriever_ingested_documents_total", outcome="new"): counts(1),
        },
    ),
    Story(
        alert="KbmeshChunksCut",
        at=100,
        fires={
            of("kbmesh_retriever_ingest_truncated_chunks_total"): counts(1, 120),
            of("kbmesh_retriever_ingest_embedded_chunks_total"): counts(10, 120),
        },
        silent={
            of("kbmesh_retriever_ingest_truncated_chunks_total"): counts(1, 120),
            of("kbmesh_retriever_ingest_embedded_chunks_total"): counts(100, 120),
        },
    ),
    Story(
        alert="KbmeshReadersDie",
        at=60,
        fires={of("kbmesh_chunker_reading_deaths_total", "chunker"): counts(0.5)},
        silent={of("kbmesh_chunker_reading_deaths_total", "chunker"): "0x10 3x60"},
    ),
    # The objectives. 14.4 times the budget of 0.1 % is 1.44 % of the calls.
    Story(
        alert="KbmeshRetrieveErrors",
        severity="critical",
        at=70,
        fires={retrieve("OK"): counts(97, 120), retrieve("UNAVAILABLE"): counts(3, 120)},
        silent={retrieve("OK"): counts(97, 120), retrieve("INVALID_ARGUMENT"): counts(3, 120)},
    ),
    # A little over the budget, for three days: slow, and sure.
    Story(
        alert="KbmeshRetrieveErrors",
        at=150,
        step_minutes=30,
        fires={retrieve("OK"): counts(9985, 160), retrieve("INTERNAL"): counts(15, 160)},
        silent={retrieve("OK"): counts(9995, 160), retrieve("INTERNAL"): counts(5, 160)},
    ),
    Story(
        alert="KbmeshRetrieveSlow",
        severity="critical",
        at=70,
        fires={
            handling("bucket", le="2.5"): counts(80, 120),
            handling("count"): counts(100, 120),
            retrieve("OK"): counts(100, 120),
        },
        silent={
            handling("bucket", le="2.5"): counts(95, 120),
            handling("count"): counts(100, 120),
            retrieve("OK"): counts(100, 120),
        },
    ),
    Story(
        alert="KbmeshRetrieveSlow",
        at=150,
        step_minutes=10,
        fires={
            handling("bucket", le="2.5"): counts(95, 160),
            handling("count"): counts(100, 160),
            retrieve("OK"): counts(100, 160),
        },
        silent={
            handling("bucket", le="2.5"): counts(995, 160),
            handling("count"): counts(1000, 160),
            retrieve("OK"): counts(1000, 160),
        },
    ),
    Story(
        alert="KbmeshAnswersDegraded",
        severity="critical",
        at=70,
        fires={answers("full"): counts(80, 120), answers("partial"): counts(20, 120), retrieve("OK"): counts(100, 120)},
        silent={
            answers("full"): counts(80, 120),
            answers("limited"): counts(20, 120),
            retrieve("OK"): counts(100, 120),
        },
    ),
    Story(
        alert="KbmeshAnswersDegraded",
        at=150,
        step_minutes=10,
        fires={
            answers("full"): counts(96, 160),
            answers("degraded"): counts(4, 160),
            retrieve("OK"): counts(100, 160),
        },
        silent={
            answers("full"): counts(995, 160),
            answers("degraded"): counts(5, 160),
            retrieve("OK"): counts(1000, 160),
        },
    ),
)
