"""Wrong configurations are refused by the name of the field; what is left out is filled in."""

import pytest
from chunker.conftest import Chunk
from kbmesh_chunker.config import ConfigRequest, SizeUnit, Strategy, resolve_limits
from kbmesh_chunker.cutter import Limits
from kbmesh_rpc.errors import FeatureUnsupported, InvalidField


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"size": 0}, "config.size"),
        ({"size": 100_001}, "config.size"),
        ({"overlap": 1500}, "config.overlap"),
        ({"size": 100, "overlap": 100}, "config.overlap"),
        ({"size": 100, "minimum": 101}, "config.minimum"),
        ({"minimum": 1501}, "config.minimum"),
        ({"unit": SizeUnit.TOKENS}, "config.embedding_model"),
        ({"strategy": Strategy.FIXED, "options_of": Strategy.SEMANTIC}, "config.semantic"),
        ({"strategy": Strategy.SEMANTIC, "options_of": Strategy.DOCUMENT}, "config.document"),
        (
            {"strategy": Strategy.AUTO, "options_of": Strategy.DOCUMENT, "options": {"max_heading_level": 7}},
            "config.document.max_heading_level",
        ),
        (
            {
                "strategy": Strategy.SEMANTIC,
                "options_of": Strategy.SEMANTIC,
                "options": {"paragraph_blank_lines": 0},
            },
            "config.semantic.paragraph_blank_lines",
        ),
        (
            {"strategy": Strategy.DOCUMENT, "options_of": Strategy.DOCUMENT, "options": {"max_heading_level": 7}},
            "config.document.max_heading_level",
        ),
    ],
)
async def test_a_wrong_field_is_named(chunk: Chunk, config: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        # The document is wrong as well: the configuration is looked at first.
        await chunk("", **config)
    assert refused.value.metadata["field"] == field


async def test_a_strategy_that_is_not_served_says_so(chunk: Chunk) -> None:
    with pytest.raises(FeatureUnsupported) as refused:
        await chunk("text", strategy=Strategy.PROPOSITION)
    assert refused.value.metadata["feature"] == "STRATEGY_PROPOSITION"


@pytest.mark.parametrize(
    ("request_", "limits"),
    [
        (ConfigRequest(), Limits(size=1500, overlap=150, minimum=500)),
        (ConfigRequest(size=300), Limits(size=300, overlap=30, minimum=100)),
        (ConfigRequest(size=32), Limits(size=32, overlap=3, minimum=10)),
        (ConfigRequest(size=8), Limits(size=8, overlap=0, minimum=2)),
        (ConfigRequest(size=1), Limits(size=1, overlap=0, minimum=0)),
        (ConfigRequest(size=9000), Limits(size=9000, overlap=150, minimum=500)),
        (ConfigRequest(size=300, minimum=300, overlap=0), Limits(size=300, overlap=0, minimum=300)),
        (ConfigRequest(unit=SizeUnit.TOKENS), Limits(size=320, overlap=32, minimum=106)),
    ],
)
def test_defaults_shrink_with_the_size(request_: ConfigRequest, limits: Limits) -> None:
    assert resolve_limits(request_) == limits


async def test_the_fingerprint_tells_settings_that_cut_otherwise(chunk: Chunk) -> None:
    text = "# A heading\n\n" + "Words of a text. " * 50
    configs: list[dict[str, object]] = [
        {},
        {"size": 300},
        {"size": 300, "overlap": 0},
        {"size": 300, "minimum": 0},
        {"strategy": Strategy.FIXED},
        {"strategy": Strategy.SEMANTIC},
        {"embedding_model": "word-pieces"},
        {"embedding_model": "word-pieces", "allow_truncation": True},
        {"strategy": Strategy.DOCUMENT, "options_of": Strategy.DOCUMENT, "options": {"max_heading_level": 1}},
    ]
    prints = [(await chunk(text, media_type="text/markdown", **config)).fingerprint for config in configs]
    assert len(set(prints)) == len(configs)
    chosen = await chunk(text, media_type="text/markdown", strategy=Strategy.DOCUMENT, size=1500)
    assert chosen.fingerprint == prints[0], "what AUTO and the defaults come to is the same as saying it"
