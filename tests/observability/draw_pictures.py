"""Draws panels of the dashboards from a real Prometheus that watched a mesh at work, into docs/pictures.

`make pictures` calls it. With `--models FOLDER` the models are real ones, and the fake ones else.
"""

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent), str(ROOT / "tools")]
from dashboard_model import Dashboard, Panel  # noqa: E402 - neither tools nor tests are packages
from dashboard_svg import Line, Picture, page  # noqa: E402
from observability.busy import keep_busy  # noqa: E402
from observability.prometheus_process import Prometheus, watching  # noqa: E402
from observability.watched_mesh import WatchedMesh  # noqa: E402
from write_dashboards import DASHBOARDS  # noqa: E402

STEPS = 60


def filled(expr: str) -> str:
    for name, value in (("$namespace", ".*"), ("$service", ".*"), ("$__rate_interval", "15s")):
        expr = expr.replace(name, value)
    return expr


def legend(text: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), text) or "value"


def picture(prometheus: Prometheus, panel: Panel, *, start: float, end: float) -> Picture:
    step = (end - start) / STEPS
    lines = [
        Line(
            name=legend(query.legend, series["metric"]),
            points=[(moment - start, float(value)) for moment, value in series["values"]],
        )
        for query in panel.queries
        for series in prometheus.query_range(filled(query.expr), start=start, end=end, step=step)
    ]
    return Picture(title=panel.title, unit=panel.unit, lines=lines)


def draw(prometheus: Prometheus, dashboard: Dashboard, *, start: float, end: float) -> str:
    pictures = [picture(prometheus, panel, start=start, end=end) for panel in dashboard.panels if panel.drawn]
    return page(dashboard.title, pictures, seconds=end - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--to", type=Path, default=ROOT / "docs/pictures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mesh = WatchedMesh(folder=Path(folder))
        if arguments.models is not None:
            mesh.model_environment = {"KBMESH_MODELS": str(arguments.models)}
        try:
            mesh.start()
            with watching(mesh, mesh.folder) as prometheus:
                start = time.time()
                keep_busy(mesh, seconds=arguments.seconds)
                end = time.time()
                arguments.to.mkdir(exist_ok=True)
                for dashboard in DASHBOARDS:
                    if not dashboard.from_logs:
                        file = arguments.to / f"{dashboard.uid}.svg"
                        file.write_text(draw(prometheus, dashboard, start=start, end=end))
        finally:
            mesh.stop()


if __name__ == "__main__":
    main()
