"""The dashboard of who calls most: from logs, since a tenant is never a label of a metric."""

from dashboard_model import Dashboard, Panel, Query

LINES = '{namespace=~"$namespace"} | json'

TALKERS = Dashboard(
    uid="kbmesh-talkers",
    title="kbmesh / top talkers",
    why="Which tenants call most, take most time and fail most, by the hash that stands for each in the logs. From the "
    'lines "caller", which every server writes once a minute for its busiest ten.',
    from_logs=True,
    panels=(
        Panel(
            title="Calls at the retriever",
            why="The ten busiest tenants.",
            width=12,
            queries=(
                Query(
                    expr=f'topk(10, sum by (tenant_hash) (sum_over_time({LINES} | event="caller" | '
                    'service="retriever" | unwrap calls [$__interval])))',
                    legend="{{tenant_hash}}",
                ),
            ),
        ),
        Panel(
            title="Time of calls at the retriever",
            why="Who keeps it busy.",
            width=12,
            unit="ms",
            queries=(
                Query(
                    expr=f'topk(10, sum by (tenant_hash) (sum_over_time({LINES} | event="caller" | '
                    'service="retriever" | unwrap busy_milliseconds [$__interval])))',
                    legend="{{tenant_hash}}",
                ),
            ),
        ),
        Panel(
            title="Failed calls",
            why="At any service, whosever fault.",
            width=12,
            queries=(
                Query(
                    expr=f'topk(10, sum by (service, tenant_hash) (sum_over_time({LINES} | event="caller" | '
                    "unwrap failed [$__interval])))",
                    legend="{{service}} {{tenant_hash}}",
                ),
            ),
        ),
        Panel(
            title="Codes by method",
            why="Every call that did not end with OK is a line.",
            width=12,
            queries=(
                Query(
                    expr=f'sum by (method, code) (count_over_time({LINES} | event="call" | code!="OK" [$__interval]))',
                    legend="{{method}} {{code}}",
                ),
            ),
        ),
        Panel(
            title="Errors and warnings",
            why="In full; a request's id finds its other lines.",
            kind="logs",
            width=24,
            queries=(Query(expr=f'{LINES} | level=~"error|warning"'),),
        ),
    ),
)
