"""What `kbmesh eval` compares."""

import pytest
from kbmesh_cli.errors import CliError
from kbmesh_cli.variants import parse_variants
from kbmesh_client import FusionMethod


def names(strategies: str, fusions: str = "", *sweeps: str) -> list[str]:
    """Of the ways to look."""
    return [variant.name for variant in parse_variants(strategies, fusions, sweeps)]


def test_strategies_keep_their_order_and_names() -> None:
    assert names("hybrid, vector_only,hybrid") == ["hybrid", "vector_only"]
    assert names("VECTOR-ONLY") == ["vector_only"]


def test_fusion_multiplies_what_is_fused() -> None:
    assert names("vector_only,hybrid,hybrid_rerank", "adaptive,rrf") == [
        "vector_only",
        *("hybrid/adaptive", "hybrid/rrf"),
        *("hybrid_rerank/adaptive", "hybrid_rerank/rrf"),
    ]


def test_a_swept_option_multiplies_what_it_applies_to() -> None:
    assert names("vector_only,hybrid", "", "keyword_weight=0,0.3") == [
        *("vector_only", "hybrid keyword_weight=0", "hybrid keyword_weight=0.3")
    ]
    assert names("hybrid", "adaptive,rrf", "rrf_k=10,60") == [
        "hybrid/adaptive",
        "hybrid/rrf rrf_k=10",
        "hybrid/rrf rrf_k=60",
    ]
    assert names("hybrid", "", "top-k=10,20", "keyword_weight=1,2") == [
        *("hybrid top_k=10 keyword_weight=1", "hybrid top_k=10 keyword_weight=2"),
        *("hybrid top_k=20 keyword_weight=1", "hybrid top_k=20 keyword_weight=2"),
    ]


def test_what_is_swept_is_asked() -> None:
    (variant,) = parse_variants(
        "hybrid_rerank", "rrf", ["rrf_k=10", "vector_weight=0.5", "rerank_top_n=50", "diversity=0.2"]
    )
    options = variant.options(top_k=20)
    fusion = options["fusion"]
    assert fusion is not None
    assert (fusion.method, fusion.rrf_k, fusion.vector_weight, fusion.keyword_weight) == (
        FusionMethod.RRF,
        10,
        0.5,
        None,
    )
    assert (options["top_k"], options["rerank_top_n"], options["diversity"]) == (20, 50, 0.2)
    assert (options["max_results_per_document"], options["context_budget_tokens"]) == (1, 0)


def test_what_is_not_said_is_left_to_the_mesh() -> None:
    (variant,) = parse_variants("hybrid", "", [])
    assert "fusion" not in variant.options(top_k=20)


@pytest.mark.parametrize(
    ("strategies", "fusions", "sweeps"),
    [
        ("psychic", "", []),
        ("unknown", "", []),
        ("", "", []),
        ("hybrid", "magic", []),
        ("hybrid", "unknown", []),
        ("hybrid", "", ["mood=1"]),
        ("hybrid", "", ["top_k"]),
        ("hybrid", "", ["top_k="]),
        ("hybrid", "", ["top_k=1.5"]),
        ("hybrid", "", ["top_k=many"]),
        ("hybrid", "", ["keyword_weight=-1"]),
        ("hybrid", "", ["keyword_weight=nan"]),
        ("hybrid", "", ["keyword_weight=1", "keyword_weight=2"]),
        ("vector_only", "", ["keyword_weight=1"]),
        ("hybrid", "weighted", ["rrf_k=60"]),
        ("hybrid", "", ["rerank_top_n=5"]),
        ("hybrid", "", [f"top_k={','.join(map(str, range(1, 60)))}"]),
    ],
)
def test_what_there_is_not_is_refused(strategies: str, fusions: str, sweeps: list[str]) -> None:
    with pytest.raises(CliError) as caught:
        parse_variants(strategies, fusions, sweeps)
    assert caught.value.reason == "USAGE"
