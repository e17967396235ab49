"""Alerts fire where they should and are silent where they should, as promtool works them out."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from helm.alert_stories import STORIES, Series, Story, counts, retrieve
from helm.matrix import EXAMPLES
from helm.rendered import Helm

pytestmark = pytest.mark.needs("promtool")


@pytest.fixture(scope="module")
def rules(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rules of a release, as a file."""
    rendered = helm.render(EXAMPLES["gpu-keda"])
    groups = [group for one in ("alerts", "slo") for group in rendered.one("PrometheusRule", one)["spec"]["groups"]]
    file = tmp_path_factory.mktemp("rules") / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": groups}))
    return file


def holds(folder: Path, rules: Path, story: Story, *expected: tuple[Series, int, bool]) -> bool:
    """Whether the story's alert fires, or not, at steps of some series. Only its own rules are worked out."""
    groups = yaml.safe_load(rules.read_text())["groups"]
    for group in groups:
        group["rules"] = [rule for rule in group["rules"] if _matters(rule, story.alert, groups)]
    groups = [group for group in groups if group["rules"]]
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    firing = f'ALERTS{{alertname="{story.alert}",alertstate="firing",severity="{story.severity}"}}'
    step = f"{story.step_minutes}m"
    tests = [
        {
            "interval": step,
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f"count({firing}) > bool 0 or vector(0)",
                    "eval_time": f"{at * story.step_minutes}m",
                    "exp_samples": [{"labels": "{}", "value": int(fires)}],
                }
            ],
        }
        for series, at, fires in expected
    ]
    file = folder / "stories.yaml"
    stories = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": step,
        # Else promtool takes them in any order, and an alert may not see what was recorded at its own time.
        "group_eval_order": [group["name"] for group in groups],
        "tests": tests,
    }
    file.write_text(yaml.safe_dump(stories))
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False)
    assert "FAILED" in done.stdout + done.stderr or done.returncode == 0, done.stdout + done.stderr
    return done.returncode == 0


def _matters(rule: dict[str, str], alert: str, groups: list[dict[str, list[dict[str, str]]]]) -> bool:
    if "record" not in rule:
        return rule["alert"] == alert
    asking = (one["expr"] for group in groups for one in group["rules"] if one.get("alert") == alert)
    return any(f"{rule['record']}{{" in expr for expr in asking)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: f"{story.alert}-{story.severity}-{story.at}")
def test_an_alert_fires_in_its_story_and_is_silent_in_the_other(rules: Path, tmp_path: Path, story: Story) -> None:
    assert holds(tmp_path, rules, story, (story.fires, story.at, True), (story.silent, story.at, False))


def test_a_story_that_does_not_hold_is_found_out(rules: Path, tmp_path: Path) -> None:
    assert not holds(tmp_path, rules, STORIES[0], (STORIES[0].silent, STORIES[0].at, True))


def test_every_alert_has_a_story(rules: Path) -> None:
    assert {story.alert for story in STORIES} == set(alerts_in(rules))


def alerts_in(rules: Path) -> Iterator[str]:
    for group in yaml.safe_load(rules.read_text())["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                yield rule["alert"]


def test_an_outage_pages_within_minutes_and_goes_with_its_end(rules: Path, tmp_path: Path) -> None:
    good, bad, quiet = 120, 10, 60
    series = {
        retrieve("OK"): f"0+100x{good} {100 * good}x{bad} {100 * good}+100x{quiet}",
        retrieve("UNAVAILABLE"): f"0x{good} 0+100x{bad} {100 * bad}x{quiet}",
    }
    story = Story(alert="KbmeshRetrieveErrors", severity="critical", fires=series, silent=series, at=0)
    assert holds(tmp_path, rules, story, (series, good + 4, True), (series, good + bad + 40, False))


def test_a_handful_of_calls_pages_nobody(rules: Path, tmp_path: Path) -> None:
    series = {retrieve("OK"): counts(1, 70), retrieve("INTERNAL"): "0x60 0+1x10"}
    story = Story(alert="KbmeshRetrieveErrors", severity="critical", fires=series, silent=series, at=0)
    assert holds(tmp_path, rules, story, (series, 65, False))


def test_stories_tell_of_series_that_alerts_ask_for(rules: Path) -> None:
    asked = set(re.findall(r"\b((?:kbmesh|grpc)_[a-z_]+)\b(?=\{)", rules.read_text()))
    told = {name.partition("{")[0] for story in STORIES for name in (*story.fires, *story.silent)}
    assert told - {"up"} <= asked
