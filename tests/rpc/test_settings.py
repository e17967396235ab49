"""An operator configures a server, and is told what is wrong."""

from pathlib import Path

import pytest
import yaml
from kbmesh_rpc.settings import ServerSettings, load_settings
from pydantic import Field, SecretStr, ValidationError


class StoreSettings(ServerSettings):
    """Settings of a server with a store."""

    port: int = 7499
    api_key: SecretStr = SecretStr("")
    """Key of the store."""
    shards: int = Field(default=1, ge=1)
    """Number of shards."""
    models: list[str] = Field(default_factory=lambda: ["small"])
    """Models to load."""


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in StoreSettings.model_fields:
        monkeypatch.delenv(f"KBMESH_{name.upper()}", raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "store.yaml"
    path.write_text("shards: 3\nlog_level: debug\nmodels: [large]\n")
    return path


def load(*argv: str) -> StoreSettings:
    return load_settings(StoreSettings, service="store", argv=argv)


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as caught:
        load(*argv)
    assert caught.value.code == 2
    return capsys.readouterr().err


def test_environment_wins_over_file_wins_over_default(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    monkeypatch.setenv("KBMESH_SHARDS", "5")
    settings = load("--config", str(file))
    assert (settings.shards, settings.log_level, settings.port) == (5, "debug", 7499)
    assert settings.models == ["large"]
    assert settings.service == "store"


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        load().shards = 2  # type: ignore[misc]  # that is the point


def test_a_bad_value_in_the_environment_is_named_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KBMESH_SHARDS", "0")
    monkeypatch.setenv("KBMESH_LOG_LEVEL", "loud")
    message = refused(capsys)
    assert "KBMESH_SHARDS" in message
    assert "KBMESH_LOG_LEVEL" in message


def test_a_list_that_is_not_json_is_named_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KBMESH_MODELS", "small,large")
    assert "KBMESH_MODELS" in refused(capsys)


def test_a_bad_value_in_the_file_is_named_by_its_key(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("shards: many\n")
    assert f"{file}: shards" in refused(capsys, "--config", str(file))


def test_an_unknown_key_in_the_file_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("shards: 2\nshard: 3\n")
    assert f"{file}: shard:" in refused(capsys, "--config", str(file))


@pytest.mark.parametrize("content", ["- a\n", "a: [\n", "text"])
def test_a_file_that_holds_no_settings_is_refused(content: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(content)
    assert str(file) in refused(capsys, "--config", str(file))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "absent.yaml" in refused(capsys, "--config", str(tmp_path / "absent.yaml"))


def test_an_empty_file_changes_nothing(file: Path) -> None:
    file.write_text("# nothing yet\n")
    assert load("--config", str(file)) == load()


def test_a_port_is_checked_even_where_a_service_gives_its_own_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KBMESH_PORT", "70000")
    assert "KBMESH_PORT" in refused(capsys)


def test_a_setting_without_default_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load_settings(ServerSettings, service="bare", argv=[])
    assert "KBMESH_PORT" in capsys.readouterr().err


def test_printed_settings_are_a_file_that_loads_again_and_hide_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KBMESH_API_KEY", "hunter2")
    monkeypatch.setenv("KBMESH_SHARDS", "4")
    with pytest.raises(SystemExit) as caught:
        load("--print-settings")
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert "hunter2" not in printed
    assert yaml.safe_load(printed)["api_key"] == "**********"
    assert StoreSettings(**yaml.safe_load(printed)).shards == 4


def test_a_bad_secret_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("api_key: [hunter2]\n")
    message = refused(capsys, "--config", str(file))
    assert "api_key" in message
    assert "hunter2" not in message


def test_help_lists_each_setting_with_its_default_and_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        load("--help")
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    for name in StoreSettings.model_fields:
        assert f"KBMESH_{name.upper()} " in shown
    assert "Number of shards." in shown
    assert "default 7499" in shown
    assert "Port of the gRPC server." in shown  # inherited, though the default is the subclass's


@pytest.mark.parametrize("settings", [ServerSettings, StoreSettings])
def test_every_setting_is_documented(settings: type[ServerSettings], capsys: pytest.CaptureFixture[str]) -> None:
    inherited = ServerSettings.model_fields
    for name, field in settings.model_fields.items():
        assert field.description or inherited[name].description
