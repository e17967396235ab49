"""Writes tests/helm/golden/ anew: what the chart renders to, for eyes in a review. `make goldens` calls it."""

import sys
from pathlib import Path

import yaml

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helm.matrix import MATRIX
from helm.rendered import CHART, Helm

FOLDER = Path(__file__).with_name("golden")
NAMES = ("defaults", "gpu-keda", "mutual-tls")


def golden(helm: Helm, name: str) -> str:
    """All manifests as one file, by kind and name, without the chart's version."""
    manifests = sorted(helm.render(MATRIX[name]).manifests, key=lambda each: (each["kind"], each["metadata"]["name"]))
    text: str = yaml.safe_dump_all(manifests, sort_keys=True, width=120)
    version: str = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    return text.replace(version, "VERSION")


def main() -> None:
    helm = Helm()
    FOLDER.mkdir(exist_ok=True)
    for name in NAMES:
        (FOLDER / f"{name}.yaml").write_text(golden(helm, name))
    helm.close()


if __name__ == "__main__":
    main()
