"""The contracts: linted, formatted, generated, and guarded against breaking changes."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUF = Path(sys.executable).parent / "buf"


def run(*command: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)


def test_contracts_are_linted_and_formatted() -> None:
    lint = run(BUF, "lint")
    assert lint.returncode == 0, lint.stdout
    formatting = run(BUF, "format", "--diff", "--exit-code")
    assert formatting.returncode == 0, formatting.stdout


def test_lint_demands_a_comment_on_every_element(tmp_path: Path) -> None:
    workspace = copy_contracts(tmp_path)
    edit(
        workspace / "protos/kbmesh/errors/v1/errors.proto", lambda text: text.replace("  // Why, for a machine.\n", "")
    )
    lint = run(BUF, "lint", cwd=workspace)
    assert lint.returncode != 0
    assert "reason" in lint.stdout


def test_generated_code_is_current() -> None:
    drift = run("tools/check_drift.sh")
    assert drift.returncode == 0, drift.stdout + drift.stderr


def copy_contracts(destination: Path) -> Path:
    workspace = destination / "workspace"
    workspace.mkdir()
    shutil.copy(ROOT / "buf.yaml", workspace)
    shutil.copytree(ROOT / "protos", workspace / "protos")
    shutil.copytree(ROOT / "third_party/protos", workspace / "third_party/protos")
    return workspace


def edit(path: Path, change: Callable[[str], str]) -> None:
    before = path.read_text()
    after = change(before)
    assert after != before, "the edit must change the contract"
    path.write_text(after)


EMBEDDER = "protos/kbmesh/embedder/v1/embedder.proto"


@pytest.mark.parametrize(
    ("name", "path", "change"),
    [
        ("a field is removed", EMBEDDER, lambda text: text.replace("  uint32 tokens_cut = 2;\n", "")),
        ("a field is renumbered", EMBEDDER, lambda text: text.replace("tokens_cut = 2", "tokens_cut = 9")),
        ("a field changes its type", EMBEDDER, lambda text: text.replace("uint32 tokens_cut", "string tokens_cut")),
        (
            "a method is removed",
            EMBEDDER,
            lambda text: text.replace("  rpc CountTokens(CountTokensRequest) returns (CountTokensResponse);\n", ""),
        ),
        (
            "a reason is renumbered",
            "protos/kbmesh/errors/v1/errors.proto",
            lambda text: text.replace("ERROR_REASON_QUEUE_FULL = 14", "ERROR_REASON_QUEUE_FULL = 99"),
        ),
    ],
)
def test_a_breaking_change_is_refused(name: str, path: str, change: Callable[[str], str], tmp_path: Path) -> None:
    workspace = copy_contracts(tmp_path)
    edit(workspace / path, change)
    breaking = run(BUF, "breaking", "--against", ROOT, cwd=workspace)
    assert breaking.returncode != 0, name
    assert path.removeprefix("protos/") in breaking.stdout


def test_an_added_field_breaks_nobody(tmp_path: Path) -> None:
    workspace = copy_contracts(tmp_path)
    edit(
        workspace / EMBEDDER,
        lambda text: text.replace(
            "  uint32 tokens_cut = 2;\n", "  uint32 tokens_cut = 2;\n  // New.\n  bool new = 99;\n"
        ),
    )
    breaking = run(BUF, "breaking", "--against", ROOT, cwd=workspace)
    assert breaking.returncode == 0, breaking.stdout


def test_the_check_compares_with_the_last_release(tmp_path: Path) -> None:
    """In a repository with a release tag, the check that CI runs finds the tag and refuses the change."""
    workspace = copy_contracts(tmp_path)
    (workspace / "tools").mkdir()
    shutil.copy(ROOT / "tools/check_breaking.sh", workspace / "tools")
    (workspace / ".venv/bin").mkdir(parents=True)
    (workspace / ".venv/bin/buf").symlink_to(BUF)
    check = workspace / "tools/check_breaking.sh"

    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        done = run("git", *identity, *arguments, cwd=workspace)
        assert done.returncode == 0, done.stderr

    git("init", "--quiet")
    git("add", "protos", "third_party", "buf.yaml")
    git("commit", "--quiet", "-m", "release")
    no_release = run(check, cwd=workspace)
    assert no_release.returncode == 0
    assert "no release tag" in no_release.stdout
    git("tag", "v0.1.0")
    assert run(check, cwd=workspace).returncode == 0
    edit(workspace / EMBEDDER, lambda text: text.replace("  uint32 tokens_cut = 2;\n", ""))
    refused = run(check, cwd=workspace)
    assert refused.returncode != 0
    assert "v0.1.0" in refused.stdout
