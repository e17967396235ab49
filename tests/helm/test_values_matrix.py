"""Every set of values that operators are likely to have lints, renders, and is what Kubernetes takes."""

import pytest
from helm.matrix import IMAGE_VOLUMES, MATRIX
from helm.rendered import VERSIONS, Helm, Rendered

CUSTOM_RESOURCES = {
    *("ScaledObject", "ScaledJob", "TriggerAuthentication", "ServiceMonitor", "PrometheusRule", "Certificate"),
}
"""Kinds of KEDA, the Prometheus operator and cert-manager: test_custom_resources.py looks at them."""


@pytest.mark.parametrize("name", MATRIX)
def test_values_make_valid_manifests(helm: Helm, name: str) -> None:
    versions = ("1.33", VERSIONS[-1]) if name in IMAGE_VOLUMES else VERSIONS
    rendered = helm.render(MATRIX[name], versions=versions)
    assert rendered.lint == []
    assert rendered.invalid == []
    assert set(rendered.unknown) <= CUSTOM_RESOURCES


def test_a_misspelt_field_would_be_noticed(helm: Helm) -> None:
    # Without this, a validator that accepts everything would look like a good chart.
    broken = {"retriever": {"extraVolumes": [{"name": "x", "configMap": {"nmae": "x"}}]}}
    rendered = helm.render(broken, versions=VERSIONS)
    assert rendered.invalid
    assert all("nmae" in complaint for complaint in rendered.invalid)


def test_names_do_not_collide(rendered: Rendered) -> None:
    names = [(manifest["kind"], manifest["metadata"]["name"]) for manifest in rendered.manifests]
    assert len(names) == len(set(names))
    assert all(len(name) <= 63 for _, name in names)


def test_two_releases_share_a_namespace(helm: Helm) -> None:
    """Names differ even where release names are alike up to the length at which they are cut."""
    first, second = (
        {
            (manifest["kind"], manifest["metadata"]["name"])
            for manifest in helm.render(MATRIX["nightly-ingest"], name="a" * 52 + end).manifests
        }
        for end in "xy"
    )
    assert not first & second
    assert all(len(name) <= 63 for _, name in first)


def test_everything_stands_in_the_namespace_of_the_release(rendered: Rendered) -> None:
    for manifest in rendered.manifests:
        if manifest["kind"] != "PriorityClass":
            assert manifest["metadata"]["namespace"] == "search", manifest["metadata"]["name"]


def test_notes_have_the_first_call(helm: Helm) -> None:
    notes = helm.render(name="mesh").notes
    assert "port-forward service/mesh-kbmesh-retriever 7400:7400" in notes
    assert "kb create handbook" in notes
    assert "Nothing is authenticated" in notes
    assert "tls.enabled is false" in notes
