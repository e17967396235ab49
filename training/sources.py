"""Freely licensed manuals and Python packages, fetched by Debian's and Python's own clients.

`python -m training.sources FOLDER` puts each into a folder of its name. Versions of packages are pinned; Debian keeps
only the newest of each manual, so its version is written down beside what was unpacked.
"""

import argparse
import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

VERSIONS_FILE = "VERSIONS.tsv"

Role = Literal["train", "test"]


@dataclass(frozen=True, kw_only=True)
class Manual:
    """A package of Debian that holds HTML pages."""

    name: str
    package: str
    licence: str
    role: Role
    pages: str
    """Where they are in it: a glob."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """A pure Python package."""

    name: str
    version: str
    licence: str
    role: Role


MANUALS = (
    Manual(name="postgresql", package="postgresql-doc-15", licence="PostgreSQL", role="train", pages="**/*.html"),
    Manual(name="python", package="python3.11-doc", licence="PSF-2.0", role="train", pages="**/html/[!w]*/*.html"),
    Manual(name="django", package="python-django-doc", licence="BSD-3-Clause", role="train", pages="**/*.html"),
    Manual(name="apache", package="apache2-doc", licence="Apache-2.0", role="train", pages="**/manual/en/**/*.html"),
    Manual(
        name="sqlite", package="sqlite3-doc", licence="public domain", role="test", pages="usr/share/doc/sqlite3/*.html"
    ),
    Manual(name="nodejs", package="nodejs-doc", licence="MIT", role="test", pages="**/api/[!a]*.html"),
)

PACKAGES = (
    Sources(name="django", version="5.2.8", licence="BSD-3-Clause", role="train"),
    Sources(name="scrapy", version="2.13.3", licence="BSD-3-Clause", role="train"),
    Sources(name="nltk", version="3.9.2", licence="Apache-2.0", role="train"),
    Sources(name="sphinx", version="8.2.3", licence="BSD-2-Clause", role="train"),
    Sources(name="celery", version="5.5.3", licence="BSD-3-Clause", role="train"),
    Sources(name="networkx", version="3.5", licence="BSD-3-Clause", role="test"),
    Sources(name="boltons", version="25.0.0", licence="BSD-3-Clause", role="test"),
    Sources(name="more-itertools", version="10.8.0", licence="MIT", role="test"),
    Sources(name="werkzeug", version="3.1.3", licence="BSD-3-Clause", role="test"),
)


def pages(folder: Path, manual: Manual) -> Iterator[bytes]:
    """Of a manual, by path, each content once."""
    seen = set()
    for path in sorted((folder / "manuals" / manual.name).glob(manual.pages)):
        if path.is_file():
            page = path.read_bytes()
            digest = hashlib.sha256(page).digest()
            if digest not in seen:
                seen.add(digest)
                yield page


def modules(folder: Path, package: Sources) -> Iterator[str]:
    """Sources of a package without its tests, by path."""
    for path in sorted((folder / "packages" / package.name).rglob("*.py")):
        if not any(
            part.startswith(("test", "migrations", "locale")) for part in path.relative_to(folder / "packages").parts
        ):
            yield path.read_text(encoding="utf-8", errors="replace")


def fetch(folder: Path) -> None:
    """What is not there yet. Raises subprocess.CalledProcessError where a client fails."""
    for kind in ("manuals", "packages"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for manual in MANUALS:
        if not (folder / "manuals" / manual.name).is_dir():
            _fetch_manual(folder / "manuals", manual)
    for package in PACKAGES:
        if not (folder / "packages" / package.name).is_dir():
            _fetch_package(folder / "packages", package)


def _fetch_manual(folder: Path, manual: Manual) -> None:
    with TemporaryDirectory(dir=folder) as place:
        subprocess.run(["apt-get", "download", "-q", manual.package], cwd=place, check=True)
        (archive,) = Path(place).glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", archive, Path(place) / "unpacked"], check=True)
        _note(folder, manual.name, archive.name)
        (Path(place) / "unpacked").rename(folder / manual.name)


def _fetch_package(folder: Path, package: Sources) -> None:
    with TemporaryDirectory(dir=folder) as place:
        wanted = f"{package.name}=={package.version}"
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", wanted]
        subprocess.run(command, cwd=place, check=True)
        (archive,) = Path(place).glob("*.whl")
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(Path(place) / "unpacked", [name for name in wheel.namelist() if name.endswith(".py")])
        _note(folder, package.name, archive.name)
        (Path(place) / "unpacked").rename(folder / package.name)


def _note(folder: Path, name: str, archive: str) -> None:
    with (folder / VERSIONS_FILE).open("a", encoding="utf-8") as versions:
        versions.write(f"{name}\t{archive}\n")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m training.sources", description=__doc__)
    parser.add_argument("folder", type=Path)
    fetch(parser.parse_args(arguments).folder)


if __name__ == "__main__":
    main()
