"""Meshes for the stories of this folder."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mesh_process import KBMESH, Mesh


@pytest.fixture(scope="session")
def models_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model, exported once for all meshes of this run."""
    home = tmp_path_factory.mktemp("models-home")
    subprocess.run(
        [KBMESH, "--home", home, "models", "pull", "all-MiniLM-L6-v2", "--json"], check=True, stdout=subprocess.DEVNULL
    )
    return home / "models"


@pytest.fixture
def make_mesh(models_folder: Path, tmp_path: Path) -> Iterator[Callable[[], Mesh]]:
    """Makes meshes that are stopped when the test ends."""
    meshes: list[Mesh] = []

    def make() -> Mesh:
        home = tmp_path / f"home-{len(meshes)}"
        home.mkdir()
        (home / "models").symlink_to(models_folder, target_is_directory=True)
        meshes.append(Mesh(home=home))
        return meshes[-1]

    yield make
    for mesh in meshes:
        if mesh.process is not None:
            mesh.down()


@pytest.fixture(scope="session")
def shared_mesh(models_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """One mesh for the stories that break nothing. Each makes knowledge bases of its own."""
    home = tmp_path_factory.mktemp("shared-home")
    (home / "models").symlink_to(models_folder, target_is_directory=True)
    mesh = Mesh(home=home)
    mesh.up()
    yield mesh
    assert mesh.down() == 0
