"""Each query of each dashboard is one that Prometheus takes, and has data while a mesh is at work."""

import json
import math
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from observability.busy import keep_busy
from observability.prometheus_process import Prometheus, watching
from observability.watched_mesh import WatchedMesh

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools"))
from dashboard_svg import Line, Picture, page  # noqa: E402 - the tools are no package
from write_dashboards import DASHBOARDS  # noqa: E402

PANELS = [(dashboard, panel) for dashboard in DASHBOARDS for panel in dashboard.panels]
BUSY_SECONDS = 20.0


def filled(expr: str) -> str:
    """The query as Grafana asks it, for all releases and a short window."""
    for name, value in (("$namespace", ".*"), ("$service", ".*"), ("$__rate_interval", "30s")):
        expr = expr.replace(name, value)
    assert "$" not in expr
    return expr


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, float]]:
    """One that has watched a mesh at work, and since when."""
    mesh = WatchedMesh(folder=tmp_path_factory.mktemp("busy"))
    try:
        mesh.start()
        with watching(mesh, mesh.folder) as found:
            start = time.time()
            keep_busy(mesh, seconds=BUSY_SECONDS)
            yield found, start
    finally:
        mesh.stop()


@pytest.mark.needs("prometheus")
@pytest.mark.timeout(240)
def test_every_query_has_data_or_a_reason_to_have_none(watched: tuple[Prometheus, float]) -> None:
    prometheus, start = watched
    end = time.time()
    silent, spoke = [], []
    for dashboard, panel in PANELS:
        if dashboard.from_logs:
            continue
        for query in panel.queries:
            series = prometheus.query_range(filled(query.expr), start=start, end=end, step=3)
            finite = [one for one in series if any(math.isfinite(float(value)) for _, value in one["values"])]
            if not finite and not query.empty:
                silent.append(f"{dashboard.uid}: {panel.title}: {query.expr}")
            if finite and query.legend:
                names = set(re.findall(r"\{\{(\w+)\}\}", query.legend))
                spoke += [
                    f"{panel.title}: no label {name}"
                    for sample in finite
                    for name in names
                    if name not in sample["metric"]
                ]
    assert silent == []
    assert spoke == []


def test_what_is_written_is_what_is_asked() -> None:
    """The files are Grafana's: panels have places that do not overlap, sources, and the queries of the tools."""
    for dashboard in DASHBOARDS:
        page: dict[str, Any] = json.loads((ROOT / f"deploy/dashboards/{dashboard.uid}.json").read_text())
        chart = json.loads((ROOT / f"deploy/helm/kbmesh/files/dashboards/{dashboard.uid}.json").read_text())
        assert page == chart
        assert [panel["title"] for panel in page["panels"]] == [panel.title for panel in dashboard.panels]
        variables = {variable["name"] for variable in page["templating"]["list"]}
        places: set[tuple[int, int]] = set()
        for panel, wanted in zip(page["panels"], dashboard.panels, strict=True):
            assert [target["expr"] for target in panel["targets"]] == [query.expr for query in wanted.queries]
            assert panel["description"]
            assert panel["datasource"]["uid"].strip("${}") in variables
            grid = panel["gridPos"]
            own = {(grid["x"] + x, grid["y"] + y) for x in range(grid["w"]) for y in range(grid["h"])}
            assert not own & places, panel["title"]
            assert all(x < 24 for x, _ in own)
            places |= own
            for target in panel["targets"]:
                used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval", "__interval"}
                assert used <= variables
    assert len({dashboard.uid for dashboard in DASHBOARDS}) == len(DASHBOARDS)


def test_no_panel_of_metrics_asks_for_a_tenant() -> None:
    for dashboard, panel in PANELS:
        if not dashboard.from_logs:
            assert all("tenant" not in query.expr for query in panel.queries), panel.title


def test_pictures_are_small_and_show_the_panels_that_are_to_be_drawn() -> None:
    size = 0
    for dashboard in DASHBOARDS:
        drawn = [panel.title for panel in dashboard.panels if panel.drawn]
        if not drawn:
            continue
        file = ROOT / f"docs/pictures/{dashboard.uid}.svg"
        size += file.stat().st_size
        texts = {element.text for element in ElementTree.parse(file).iter("{http://www.w3.org/2000/svg}text")}
        assert set(drawn) <= texts, dashboard.uid
    assert 0 < size < 300_000


def test_a_gap_in_the_data_is_a_gap_in_the_line() -> None:
    points = [(0.0, 1.0), (1.0, 2.0), (2.0, math.nan), (3.0, 2.0), (4.0, 1.0)]
    drawn = page("Test & try", [Picture(title="a < b", unit="s", lines=[Line(name="x", points=points)])], seconds=4.0)
    texts = [element.text for element in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert {"Test & try", "a < b", "2 s", "1 s", "0"} <= set(texts)
    paths = [element.get("d", "") for element in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}path")]
    assert max(path.count("M") for path in paths) == 2
