"""The dashboard of the mesh as a whole: is it well, and if not, which part?"""

from dashboard_model import WINDOW, Dashboard, Panel, Query, S, quantile, rate

RETRIEVE = ',grpc_service="kbmesh.retriever.v1.RetrieverService",grpc_method=~"Retrieve|RetrieveStream"'
OWN_FAULTS = ',grpc_code=~"INTERNAL|UNKNOWN|DATA_LOSS|UNAVAILABLE"'
HANDLED = "grpc_server_handled_total"
HANDLING = "grpc_server_handling_seconds"

MESH = Dashboard(
    uid="kbmesh-mesh",
    title="kbmesh / mesh",
    why="Whether callers are served, how fast, and which edge of the mesh is at fault where they are not.",
    panels=(
        Panel(
            title="Calls of Retrieve without a fault of the mesh",
            why="The share that the objective of availability is about.",
            kind="stat",
            unit="percentunit",
            width=6,
            maximum=1,
            queries=(
                Query(
                    expr=f"1 - sum(rate({HANDLED}{{{S}{RETRIEVE}{OWN_FAULTS}}}[{WINDOW}]))"
                    f" / sum(rate({HANDLED}{{{S}{RETRIEVE}}}[{WINDOW}]))"
                ),
            ),
        ),
        Panel(
            title="Calls of Retrieve within 2.5 s",
            why="The share that the objective of latency is about.",
            kind="stat",
            unit="percentunit",
            width=6,
            maximum=1,
            queries=(
                Query(
                    expr=f'sum(rate({HANDLING}_bucket{{{S}{RETRIEVE},le="2.5"}}[{WINDOW}]))'
                    f" / sum(rate({HANDLING}_count{{{S}{RETRIEVE}}}[{WINDOW}]))"
                ),
            ),
        ),
        Panel(
            title="Answers in which nothing was missing by a fault",
            why="The share that the objective of full answers is about: no stage fell back, every knowledge base was "
            "searched.",
            kind="stat",
            unit="percentunit",
            width=6,
            maximum=1,
            queries=(
                Query(
                    expr=f'1 - sum(rate(kbmesh_retriever_answers_total{{{S},outcome=~"degraded|partial"}}[{WINDOW}]))'
                    f" / sum(rate(kbmesh_retriever_answers_total{{{S}}}[{WINDOW}]))"
                ),
            ),
        ),
        Panel(
            title="Replicas that answer Prometheus",
            why="Fewer than wanted: one is starting, ended, or not reached.",
            kind="stat",
            width=6,
            queries=(Query(expr=f"sum by (job) (up{{{S}}})", legend="{{job}}"),),
        ),
        Panel(
            title="Calls a second",
            why="Load on each service.",
            unit="reqps",
            drawn=True,
            queries=(Query(expr=rate("grpc_server_started_total", "job"), legend="{{job}}"),),
        ),
        Panel(
            title="Latency of Retrieve",
            why="From a call's start to its end, at the retriever.",
            unit="s",
            drawn=True,
            queries=tuple(
                Query(expr=quantile(share, HANDLING, more=RETRIEVE), legend=f"p{share * 100:g}")
                for share in (0.5, 0.95, 0.99)
            ),
        ),
        Panel(
            title="Calls that did not end with OK",
            why="By service and code; whose fault it is, the code says.",
            unit="reqps",
            drawn=True,
            queries=(
                Query(
                    expr=f'sum by (job, grpc_code) (rate({HANDLED}{{{S},grpc_code!="OK"}}[{WINDOW}])) > 0',
                    legend="{{job}} {{grpc_code}}",
                ),
            ),
        ),
        Panel(
            title="Errors by reason",
            why="The reasons of docs/errors.md.",
            unit="reqps",
            drawn=True,
            queries=(
                Query(
                    expr=f"sum by (job, reason) (rate(kbmesh_server_errors_total{{{S}}}[{WINDOW}])) > 0",
                    legend="{{job}} {{reason}}",
                ),
            ),
        ),
        Panel(
            title="Calls in flight",
            why="What has begun and not ended.",
            queries=(Query(expr=f"sum by (job) (kbmesh_server_in_flight_calls{{{S}}})", legend="{{job}}"),),
        ),
        Panel(
            title="Calls that were refused for want of room",
            why="RESOURCE_EXHAUSTED: queues are full.",
            unit="reqps",
            queries=(Query(expr=rate("kbmesh_server_refusal_seconds_count", "job"), legend="{{job}}"),),
        ),
        Panel(
            title="Latency between services, p95",
            why="As the calling side sees it, retries and waiting included.",
            unit="s",
            drawn=True,
            queries=(
                Query(
                    expr=quantile(0.95, "grpc_client_handling_seconds", "job, grpc_method"),
                    legend="{{job}} to {{grpc_method}}",
                ),
            ),
        ),
        Panel(
            title="Failed calls between services",
            why="Which edge of the mesh is broken, as the calling side sees it.",
            unit="reqps",
            drawn=True,
            queries=(
                Query(
                    expr="sum by (job, grpc_method, grpc_code) "
                    f'(rate(grpc_client_handled_total{{{S},grpc_code!~"OK|CANCELLED"}}[{WINDOW}])) > 0',
                    legend="{{job}} to {{grpc_method}} {{grpc_code}}",
                ),
            ),
        ),
        Panel(
            title="Open breakers",
            why="Dependencies that are not asked for a while, as they failed five times in a row.",
            queries=(
                Query(
                    expr=f"sum by (dependency) (kbmesh_retriever_breakers_open{{{S}}})", legend="{{dependency}} open"
                ),
                Query(
                    expr=rate("kbmesh_retriever_breaker_refusals_total", "dependency"),
                    legend="{{dependency}} calls not made a second",
                ),
            ),
        ),
        Panel(
            title="Second attempts at slow reads",
            why="won: it came first. Many refused ones: a dependency is slow for all.",
            unit="reqps",
            queries=(
                Query(
                    expr=rate("kbmesh_retriever_hedges_total", "dependency, outcome"),
                    legend="{{dependency}} {{outcome}}",
                ),
            ),
        ),
        Panel(
            title="Calls that were given up",
            why="Their caller's time was over; those that still run hold connections.",
            queries=(
                Query(expr=f"sum(rate(kbmesh_retriever_abandoned_calls_total{{{S}}}[{WINDOW}]))", legend="a second"),
                Query(expr=f"sum(kbmesh_retriever_abandoned_calls_running{{{S}}})", legend="still running"),
            ),
        ),
        Panel(
            title="Memory",
            why="Resident memory of each process.",
            unit="bytes",
            queries=(Query(expr=f"process_resident_memory_bytes{{{S}}}", legend="{{job}} {{pod}}"),),
        ),
        Panel(
            title="Processor",
            why="Cores in use by each process.",
            queries=(Query(expr=f"rate(process_cpu_seconds_total{{{S}}}[{WINDOW}])", legend="{{job}} {{pod}}"),),
        ),
        Panel(
            title="Days until the certificate ends",
            why="The served certificate; it is read anew when its file changes.",
            unit="d",
            queries=(
                Query(
                    expr=f"(min by (job) (kbmesh_tls_certificate_expiry_timestamp_seconds{{{S}}}) - time()) / 86400",
                    legend="{{job}}",
                    empty="there are certificates only where TLS is on",
                ),
            ),
        ),
        Panel(
            title="Versions",
            why="What runs; two versions of one service stand beside each other during an upgrade.",
            kind="table",
            width=24,
            queries=(Query(expr=f"count by (job, version, python) (kbmesh_build_info{{{S}}})"),),
        ),
    ),
)
