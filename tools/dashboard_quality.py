"""The dashboard of signals of retrieval quality: what answers were like, without a word of them."""

from dashboard_model import WINDOW, Dashboard, Panel, Query, S, quantile, rate

ANSWERS = "kbmesh_retriever_answers_total"

QUALITY = Dashboard(
    uid="kbmesh-quality",
    title="kbmesh / retrieval quality",
    why="Signals that answers got better or worse: scores, empty answers, what fell back, what came from caches. They "
    "show a change; whether answers are good, only judged questions tell (docs/quality.md).",
    panels=(
        Panel(
            title="Answers by outcome",
            drawn=True,
            unit="reqps",
            why="full; limited by settings or the question; degraded: a stage fell back; partial: a knowledge base is "
            "missing.",
            queries=(Query(expr=rate(ANSWERS, "outcome"), legend="{{outcome}}"),),
        ),
        Panel(
            title="Answers by strategy",
            why="What callers ask for.",
            unit="reqps",
            queries=(Query(expr=rate(ANSWERS, "strategy"), legend="{{strategy}}"),),
        ),
        Panel(
            title="Stages that fell back",
            drawn=True,
            unit="reqps",
            why="By the reason; DEADLINE_EXCEEDED: there was no time.",
            queries=(
                Query(
                    expr=f"sum by (stage, reason) (rate(kbmesh_retriever_degraded_answers_total{{{S}}}[{WINDOW}])) > 0",
                    legend="{{stage}} {{reason}}",
                ),
            ),
        ),
        Panel(
            title="What knowledge bases gave",
            why="ok, empty, below a threshold, or why they could not be searched.",
            unit="reqps",
            queries=(Query(expr=rate("kbmesh_retriever_knowledge_base_answers_total", "status"), legend="{{status}}"),),
        ),
        Panel(
            title="Answers without a result",
            drawn=True,
            unit="percentunit",
            why="A jump after a change of thresholds, models or data is worth a look.",
            queries=(
                Query(
                    expr=f'sum(rate(kbmesh_retriever_answer_results_bucket{{{S},le="0.0"}}[{WINDOW}]))'
                    f" / sum(rate(kbmesh_retriever_answer_results_count{{{S}}}[{WINDOW}]))",
                    legend="share",
                ),
            ),
        ),
        Panel(
            title="Results of an answer",
            why="Median and the fewest of ten answers.",
            queries=tuple(
                Query(expr=quantile(share, "kbmesh_retriever_answer_results"), legend=f"p{share * 100:g}")
                for share in (0.1, 0.5)
            ),
        ),
        Panel(
            title="Best rerank probability",
            drawn=True,
            unit="percentunit",
            maximum=1,
            why="Of each answer's best result. Where it falls, questions and documents drift apart.",
            queries=tuple(
                Query(expr=quantile(share, "kbmesh_retriever_top_rerank_probability"), legend=f"p{share * 100:g}")
                for share in (0.1, 0.5, 0.9)
            ),
        ),
        Panel(
            title="Best vector score",
            drawn=True,
            why="The best cosine among an answer's results. Comparable only while the model stays.",
            queries=tuple(
                Query(expr=quantile(share, "kbmesh_retriever_top_vector_score"), legend=f"p{share * 100:g}")
                for share in (0.1, 0.5, 0.9)
            ),
        ),
        Panel(
            title="Seconds by stage, p95",
            drawn=True,
            unit="s",
            why="Where the time of an answer goes.",
            queries=(Query(expr=quantile(0.95, "kbmesh_retriever_stage_seconds", "stage"), legend="{{stage}}"),),
        ),
        Panel(
            title="Share of cache hits",
            unit="percentunit",
            why="Kept and shared answers, and vectors of queries, of all that was asked for.",
            queries=(
                Query(
                    expr="sum by (cache) "
                    f'(rate(kbmesh_retriever_cache_requests_total{{{S},outcome=~"hit|shared"}}[{WINDOW}]))'
                    f" / {rate('kbmesh_retriever_cache_requests_total', 'cache')}",
                    legend="{{cache}}",
                ),
            ),
        ),
        Panel(
            title="Caches: what they hold",
            unit="bytes",
            why="In each process's memory.",
            queries=(Query(expr=f"sum by (cache) (kbmesh_retriever_cache_bytes{{{S}}})", legend="{{cache}}"),),
        ),
        Panel(
            title="Caches: what went wrong",
            unit="reqps",
            why="Faults are misses, never errors. Evictions: too small.",
            queries=(
                Query(expr=rate("kbmesh_retriever_cache_errors_total", "cache, fault"), legend="{{cache}} {{fault}}"),
                Query(expr=rate("kbmesh_retriever_cache_evictions_total", "cache"), legend="{{cache}} evicted"),
                Query(expr=rate("kbmesh_retriever_cache_refused_total", "cache"), legend="{{cache}} too large"),
            ),
        ),
        Panel(
            title="Duplicates that were merged",
            unit="reqps",
            why="Results that said the same as another one, and became its further citations.",
            queries=(
                Query(expr=f"sum(rate(kbmesh_retriever_duplicates_merged_total{{{S}}}[{WINDOW}]))", legend="merged"),
            ),
        ),
        Panel(
            title="Tokens of a context block",
            why="Against the budget that callers give.",
            queries=tuple(
                Query(expr=quantile(share, "kbmesh_retriever_context_tokens"), legend=f"p{share * 100:g}")
                for share in (0.5, 0.95)
            ),
        ),
    ),
)
