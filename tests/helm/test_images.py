"""The images are those that the chart names, and hold what their service needs and nothing else."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "deploy/images"
CHART = ROOT / "deploy/helm/kbmesh"
DOCKERFILES = sorted(IMAGES.glob("*.Dockerfile"))
SERVICES = {"chunker", "retriever", "embedder", "reranker", "edge"}


def instructions(file: Path, word: str) -> list[str]:
    text = re.sub(r"\\\n\s*", "", file.read_text())
    return [line.removeprefix(f"{word} ") for line in text.splitlines() if line.startswith(f"{word} ")]


def packages() -> dict[str, Path]:
    """Each package of this repository by its name."""
    return {
        tomllib.loads(path.read_text())["project"]["name"]: path.parent.relative_to(ROOT)
        for path in ROOT.glob("*/*/pyproject.toml")
    }


def needed(name: str, known: dict[str, Path]) -> set[Path]:
    """The folder of a package, and of those of this repository that it needs."""
    project = tomllib.loads((ROOT / known[name] / "pyproject.toml").read_text())["project"]
    found = {known[name]}
    for requirement in project["dependencies"]:
        other = re.match(r"[a-z-]+", requirement)
        if other and other[0] in known:
            found |= needed(other[0], known)
    return found


def test_each_image_of_the_chart_is_built_here() -> None:
    assert {file.stem for file in DOCKERFILES} == SERVICES | {"cli"}


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.stem)
def test_an_image_has_the_packages_that_its_own_needs(file: Path) -> None:
    known = packages()
    copied = {
        Path(line.split()[0]) for line in instructions(file, "COPY") if line.split()[0] in map(str, known.values())
    }
    wanted = needed(f"kbmesh-{file.stem}", known)
    if file.stem == "cli":
        wanted |= needed("kbmesh-onnx", known)
    assert copied == wanted
    (install,) = [line for line in instructions(file, "RUN") if "install.sh packages" in line]
    assert {Path(part) for part in install.split("packages ")[1].split()} == wanted


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.stem)
def test_an_image_is_made_of_a_lock(file: Path) -> None:
    (dependencies,) = [line for line in instructions(file, "RUN") if "install.sh dependencies" in line]
    lock = dependencies.rsplit(" ", 1)[1]
    for variant in ("cpu", "cuda"):
        text = (ROOT / "requirements" / f"{lock.replace('${VARIANT}', variant)}.lock").read_text()
        assert "--hash=sha256:" in text
        assert not re.search(r"^(torch|nvidia-[a-z0-9-]+|hatchling|pip)==", text, re.MULTILINE)


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.stem)
def test_an_image_runs_as_the_user_of_the_chart(file: Path) -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    text = str(values)
    (user,) = instructions(file, "USER")
    uid, gid = user.split(":")
    assert f"'runAsUser': {uid}" in text
    assert f"'runAsGroup': {gid}" in text


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_an_image_starts_its_service(service: str) -> None:
    (entry,) = instructions(IMAGES / f"{service}.Dockerfile", "ENTRYPOINT")
    module = re.search(r"kbmesh_\w+", entry)
    assert module
    folder = packages()[f"kbmesh-{service}"]
    assert (ROOT / folder / "src" / module[0] / "__main__.py").is_file()
