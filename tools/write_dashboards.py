"""Writes the Grafana dashboards: deploy/dashboards/*.json, and the chart's own copy, since a chart may read nothing
outside of itself. `make dashboards` calls it."""

import sys
from pathlib import Path

from dashboard_inference import INFERENCE
from dashboard_ingest import INGEST
from dashboard_mesh import MESH
from dashboard_model import written
from dashboard_quality import QUALITY
from dashboard_talkers import TALKERS

ROOT = Path(__file__).resolve().parents[1]
DASHBOARDS = (MESH, INFERENCE, QUALITY, INGEST, TALKERS)
FOLDERS = ("deploy/dashboards", "deploy/helm/kbmesh/files/dashboards")

if __name__ == "__main__":
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    for name in FOLDERS:
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        for dashboard in DASHBOARDS:
            (folder / f"{dashboard.uid}.json").write_text(written(dashboard))
