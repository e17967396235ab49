"""Writes README.md and values.schema.json of deploy/helm/kbmesh from its values.yaml. `make chart` calls it.

`--check` writes nothing, and fails where one of them is stale.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from chart_schema import chart_schema
from chart_values import ChartValue, read_values

CHART = Path(__file__).resolve().parents[1] / "deploy/helm/kbmesh"

HEAD = """# Helm chart of kbmesh
Chunker, embedder, reranker and retriever, with what operators need around them. How to begin, upgrade and watch it is
in [docs/kubernetes.md](../../../docs/kubernetes.md); whole sets of values are in [examples/](examples). This page is
generated from the comments of [values.yaml](values.yaml); what is not there is refused by
[values.schema.json](values.schema.json).
"""


def page(values: Sequence[ChartValue]) -> str:
    """README.md."""
    return HEAD + "".join(_sections(values))


def _sections(values: Sequence[ChartValue]) -> Iterator[str]:
    alone = [value for value in values if len(value.path) == 1 and value.leaf]
    yield _table("Top level", "", alone)
    for section in (value for value in values if len(value.path) == 1 and not value.leaf):
        rows = [value for value in values if value.path[0] == section.path[0] and value.leaf]
        yield _table(section.path[0], section.comment, rows)


def _table(title: str, comment: str, rows: Sequence[ChartValue]) -> str:
    lines = [f"\n## {title}", *([comment] if comment else []), "", "| value | default | |", "|---|---|---|"]
    lines += [f"| `{row.dotted}` | `{_default(row)}` | {_cell(row.comment)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _default(row: ChartValue) -> str:
    return _cell(json.dumps(row.default, ensure_ascii=False))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def written() -> dict[Path, str]:
    """What the files should hold."""
    values = read_values((CHART / "values.yaml").read_text())
    schema = json.dumps(chart_schema(values), indent=1, ensure_ascii=False) + "\n"
    return {CHART / "README.md": page(values), CHART / "values.schema.json": schema}


def main() -> int:
    """Writes, or checks."""
    stale = [path for path, text in written().items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            sys.stderr.write(
                f"{path.relative_to(CHART.parents[2])} is stale: run 'make chart' and commit what it writes\n"
            )
        return 1 if stale else 0
    for path in stale:
        path.write_text(written()[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
