"""The dashboard of the models: queues, batches, devices."""

from collections.abc import Sequence

from dashboard_model import WINDOW, Dashboard, Panel, Query, S, quantile, rate

SERVICES = (("embedder", "texts"), ("reranker", "windows"))


def both(expr: str, legend: str, *, empty: str = "") -> Sequence[Query]:
    """The same of embedder and reranker; `SERVICE` and `ITEMS` are put in."""
    return tuple(
        Query(
            expr=expr.replace("SERVICE", service).replace("ITEMS", items),
            legend=f"{service} {legend}".strip(),
            empty=empty,
        )
        for service, items in SERVICES
    )


INFERENCE = Dashboard(
    uid="kbmesh-inference",
    title="kbmesh / inference",
    why="What waits for the models of embedder and reranker, how full their batches are, and what was cut or lost.",
    panels=(
        Panel(
            title="Models",
            why="Read from the live session: the device in use beside the one that was wanted.",
            kind="table",
            width=24,
            queries=both(
                "max by (model, backend, device, wanted_device, precision, max_tokens) "
                f"(kbmesh_SERVICE_model_info{{{S}}})",
                "",
            ),
        ),
        Panel(
            title="Models that are ready",
            why="0 where a model is not loaded, or was lost.",
            queries=both(f"min by (model) (kbmesh_SERVICE_model_ready{{{S}}})", "{{model}}"),
        ),
        Panel(
            title="Tokens that wait",
            why="By lane. What scaling goes by, with those that run.",
            drawn=True,
            queries=both(f"sum by (model, lane) (kbmesh_SERVICE_queue_tokens{{{S}}})", "{{lane}}"),
        ),
        Panel(
            title="Tokens in the model",
            why="0 for long while tokens wait: the model hangs.",
            queries=both(f"sum by (model) (kbmesh_SERVICE_running_tokens{{{S}}})", "{{model}}"),
        ),
        Panel(
            title="Tokens a second",
            why="Work that is done, without padding.",
            drawn=True,
            queries=both(rate("kbmesh_SERVICE_tokens_total", "lane"), "{{lane}}"),
        ),
        Panel(
            title="Share of padding",
            why="What the model computed in vain; sorting by length keeps it low.",
            unit="percentunit",
            drawn=True,
            queries=both(
                f"{rate('kbmesh_SERVICE_padding_tokens_total', 'lane')} / "
                f"({rate('kbmesh_SERVICE_padding_tokens_total', 'lane')} + "
                f"{rate('kbmesh_SERVICE_tokens_total', 'lane')})",
                "{{lane}}",
            ),
        ),
        Panel(
            title="Seconds of one run, p95",
            why="How long somebody waits at least who comes while it runs.",
            unit="s",
            drawn=True,
            queries=both(quantile(0.95, "kbmesh_SERVICE_batch_seconds", "lane"), "{{lane}}"),
        ),
        Panel(
            title="Texts of one run, median",
            why="How much goes together.",
            queries=both(quantile(0.5, "kbmesh_SERVICE_batch_ITEMS", "lane"), "{{lane}}"),
        ),
        Panel(
            title="Fill of a run, mean",
            why="Tokens over what a run may have; low under light load, which is no fault.",
            unit="percentunit",
            queries=both(
                f"{rate('kbmesh_SERVICE_batch_fill_ratio_sum', 'lane')} / "
                f"{rate('kbmesh_SERVICE_batch_fill_ratio_count', 'lane')}",
                "{{lane}}",
            ),
        ),
        Panel(
            title="Latency of Embed and Rerank, p95",
            why="At the serving side, waiting included.",
            unit="s",
            drawn=True,
            queries=(
                Query(
                    expr=quantile(
                        0.95, "grpc_server_handling_seconds", "grpc_method", more=',grpc_method=~"Embed|Rerank"'
                    ),
                    legend="{{grpc_method}}",
                ),
            ),
        ),
        Panel(
            title="Left the queue undone",
            why="cancelled: the caller left; expired: its time was over; lost: no device.",
            queries=both(rate("kbmesh_SERVICE_dropped_ITEMS_total", "reason"), "{{reason}}"),
        ),
        Panel(
            title="Cut and failed",
            why="Texts over the model's limit, and texts that got an error in place of a result.",
            queries=(
                Query(expr=rate("kbmesh_embedder_truncated_texts_total", "model"), legend="texts cut"),
                Query(expr=rate("kbmesh_embedder_failed_texts_total", "model"), legend="texts failed"),
                Query(expr=rate("kbmesh_reranker_truncated_documents_total", "model"), legend="documents cut"),
                Query(expr=rate("kbmesh_reranker_truncated_queries_total", "model"), legend="queries cut"),
                Query(expr=rate("kbmesh_reranker_failed_documents_total", "model"), legend="documents failed"),
            ),
        ),
        Panel(
            title="Seconds to a refusal, p99",
            why="A full queue must say no at once.",
            unit="s",
            queries=(
                Query(
                    expr=quantile(0.99, "kbmesh_server_refusal_seconds", "job", more=',job=~"embedder|reranker"'),
                    legend="{{job}}",
                    empty="nobody is refused while queues have room",
                ),
            ),
        ),
        Panel(
            title="What the scaler says",
            why="Tokens of all replicas, as KEDA was last told, and replicas that did not tell.",
            queries=(
                Query(expr=f"max by (job) (kbmesh_scaler_tokens{{{S}}})", legend="{{job}} tokens"),
                Query(
                    expr=f"sum by (job) (rate(kbmesh_scaler_unanswered_total{{{S}}}[{WINDOW}]))",
                    legend="{{job}} unanswered a second",
                ),
            ),
        ),
    ),
)
