"""What a dashboard is made of, and how it is written for Grafana.

Panels are kept as plain values, so that the same queries are written for Grafana, asked of a real Prometheus by the
tests, and drawn for the docs.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

S = 'namespace=~"$namespace",service=~"$service"'
"""The selector of every series: the releases that are looked at."""
WINDOW = "$__rate_interval"
GRID_COLUMNS = 24
ROW_HEIGHT = 8

METRICS = {"type": "prometheus", "uid": "${metrics}"}
LOGS = {"type": "loki", "uid": "${logs}"}


@dataclass(frozen=True, kw_only=True)
class Query:
    """What a panel asks."""

    expr: str
    """PromQL or LogQL."""
    legend: str = ""
    """How each series is called; braces name labels."""
    empty: str = ""
    """Why it may have no data though all is well. Empty: it must have some under load."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One picture."""

    title: str
    queries: Sequence[Query]
    why: str
    """What a person learns from it."""
    kind: str = "timeseries"
    """timeseries, stat, table or logs."""
    unit: str = "short"
    width: int = 8
    maximum: float | None = None
    drawn: bool = False
    """Whether it is among the pictures of the docs."""


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """A page of panels."""

    uid: str
    title: str
    why: str
    panels: Sequence[Panel]
    from_logs: bool = False


def rate(metric: str, by: str, *, more: str = "") -> str:
    """Events a second, summed by labels."""
    return f"sum by ({by}) (rate({metric}{{{S}{more}}}[{WINDOW}]))"


def quantile(share: float, metric: str, by: str = "", *, more: str = "") -> str:
    """A quantile of a histogram."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) (rate({metric}_bucket{{{S}{more}}}[{WINDOW}])))"


def mean(metric: str, by: str, *, more: str = "") -> str:
    """The mean of a histogram."""
    return f"{rate(metric + '_sum', by, more=more)} / {rate(metric + '_count', by, more=more)}"


def written(dashboard: Dashboard) -> str:
    """The dashboard as JSON for Grafana."""
    source = LOGS if dashboard.from_logs else METRICS
    page: dict[str, Any] = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.why,
        "tags": ["kbmesh"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [{"type": "dashboards", "tags": ["kbmesh"], "title": "kbmesh", "asDropdown": True}],
        "templating": {"list": list(_variables(dashboard))},
        "panels": list(_panels(dashboard.panels, source)),
    }
    return json.dumps(page, indent=1) + "\n"


def _variables(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    if dashboard.from_logs:
        yield {"name": "logs", "type": "datasource", "query": "loki", "label": "logs"}
        yield {"name": "namespace", "type": "textbox", "query": ".+", "label": "namespace"}
        return
    yield {"name": "metrics", "type": "datasource", "query": "prometheus", "label": "metrics"}
    series = "grpc_server_started_total"
    for name, selector in (("namespace", series), ("service", f'{series}{{namespace=~"$namespace"}}')):
        yield {
            "name": name,
            "type": "query",
            "datasource": METRICS,
            "query": {"query": f"label_values({selector}, {name})", "refId": name},
            "refresh": 2,
            "includeAll": True,
            "multi": True,
            # Matches series without the label too, as those of a mesh outside Kubernetes.
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }


def _panels(panels: Sequence[Panel], source: dict[str, str]) -> Iterator[dict[str, Any]]:
    column = row = 0
    for number, panel in enumerate(panels, start=1):
        if column + panel.width > GRID_COLUMNS:
            column, row = 0, row + ROW_HEIGHT
        yield _panel(panel, number, source, {"x": column, "y": row, "w": panel.width, "h": ROW_HEIGHT})
        column += panel.width


def _panel(panel: Panel, number: int, source: dict[str, str], place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.kind == "timeseries":
        defaults["min"] = 0
    if panel.maximum is not None:
        defaults["max"] = panel.maximum
    instant = panel.kind in {"stat", "table"}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.why,
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}} if panel.kind == "timeseries" else {},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": source,
                "expr": query.expr,
                "legendFormat": query.legend,
                "instant": instant,
                "range": not instant,
                **({"format": "table"} if panel.kind == "table" else {}),
            }
            for place, query in enumerate(panel.queries)
        ],
    }
