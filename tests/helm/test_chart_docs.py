"""README.md and values.schema.json of the chart are made of values.yaml, and every value there says what it is."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
import yaml
from helm.rendered import CHART, ROOT


@pytest.fixture(autouse=True)
def tools() -> Iterator[None]:
    sys.path.insert(0, str(ROOT / "tools"))
    yield
    sys.path.remove(str(ROOT / "tools"))


def test_readme_and_schema_are_current() -> None:
    checked = subprocess.run(
        [sys.executable, ROOT / "tools/write_chart_docs.py", "--check"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_every_value_has_a_comment() -> None:
    from chart_values import read_values

    values = read_values((CHART / "values.yaml").read_text())
    assert [value.dotted for value in values if value.leaf and not value.comment] == []


def test_every_value_is_read() -> None:
    """A value that no template reads would be a promise that nobody keeps."""
    from chart_values import read_values

    templates = "".join(path.read_text() for path in (CHART / "templates").rglob("*.*"))
    names = {value.path[-1] for value in read_values((CHART / "values.yaml").read_text())}
    maps_as_a_whole = {"limits", "requests", "cpu", "memory"}
    assert {name for name in names - maps_as_a_whole if f".{name}" not in templates} == set()


def test_the_schema_is_closed() -> None:
    """No map takes keys that it does not name, but those whose keys are the operator's own."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    open_maps = {"labels", "annotations", "nodeSelector", "affinity", "podLabels", "podAnnotations"}
    named_by_operators = {"remote_models"}

    def check(node: dict[str, object], path: str) -> None:
        properties = node.get("properties")
        each = node.get("additionalProperties")
        if path.rpartition(".")[2] in named_by_operators and isinstance(each, dict):
            check(each, f"{path}.*")
        elif node.get("type") == "object" and path.rpartition(".")[2] not in open_maps:
            assert node.get("additionalProperties") is False, path
        if isinstance(properties, dict):
            for name, below in properties.items():
                check(below, f"{path}.{name}")

    check(schema, "")


def test_the_examples_name_values_that_there_are() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for path in (CHART / "examples").glob("*.yaml"):
        assert set(yaml.safe_load(path.read_text())) <= set(values), path.name


def test_chart_and_services_have_one_version() -> None:
    from importlib.metadata import version

    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == version("kbmesh-retriever")
