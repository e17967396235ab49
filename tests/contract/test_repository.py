"""What must never stand in the repository."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tracked_files() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listing.stdout.split("\0") if name]


def test_no_file_names_a_package_registry() -> None:
    """Locks work behind any mirror only where they name none."""
    registry = re.compile(rb"https?://[a-z0-9.-]*(?:py" + rb"pi|pythonho" + rb"sted|npm" + rb"js)[a-z0-9.-]*")
    found = [path for path in tracked_files() if path.is_file() and registry.search(path.read_bytes())]
    assert found == []


def test_every_lock_is_hashed() -> None:
    locks = sorted((ROOT / "requirements").glob("*.lock"))
    assert locks
    for lock in locks:
        text = lock.read_text()
        pins = re.findall(r"^[a-z0-9][a-z0-9._\[\]-]*==", text, flags=re.MULTILINE | re.IGNORECASE)
        assert pins, lock.name
        assert text.count("--hash=sha256:") >= len(pins), lock.name


def test_the_demo_installs_no_vendor_sdk() -> None:
    """Vendors' SDKs and object stores are extras."""
    text = (ROOT / "requirements/dev.lock").read_text()
    for name in ("boto3", "pinecone", "litellm", "openai", "cohere", "torch", "transformers"):
        assert not re.search(rf"^{name}==", text, flags=re.MULTILINE), name
