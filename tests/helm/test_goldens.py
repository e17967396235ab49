"""What the chart renders to changes only where somebody has seen it: `make goldens` writes it, a review reads it."""

import pytest
from helm.rendered import Helm
from helm.write_goldens import FOLDER, NAMES, golden


@pytest.mark.parametrize("name", NAMES)
def test_the_chart_renders_what_was_reviewed(helm: Helm, name: str) -> None:
    assert golden(helm, name) == (FOLDER / f"{name}.yaml").read_text(), "see the difference, then run `make goldens`"
