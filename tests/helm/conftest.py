"""Helm for the tests of the chart."""

from collections.abc import Iterator

import pytest
from helm.matrix import MATRIX
from helm.rendered import HELM_PYTHON, Helm, Rendered


@pytest.fixture(scope="session")
def helm() -> Iterator[Helm]:
    """Helm's library, where `make test-services` has installed it."""
    if not HELM_PYTHON.exists():
        pytest.skip("needs Helm's library in .venv-helm, which is not installed; `make test-services` installs it")
    process = Helm()
    yield process
    process.close()


@pytest.fixture(params=list(MATRIX))
def rendered(request: pytest.FixtureRequest, helm: Helm) -> Rendered:
    """The chart with each set of values of the matrix."""
    return helm.render(MATRIX[request.param])
