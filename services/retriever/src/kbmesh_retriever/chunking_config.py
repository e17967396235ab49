"""A knowledge base's chunking settings: checked as far as can be without the chunker, and written canonically."""

from collections.abc import Mapping
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict
from kbmesh.chunker.v1 import chunker_pb2 as pb
from kbmesh_rpc.errors import FieldViolation, InvalidField

_FIELD = "knowledge_base.chunking"
_MIN_SIZE, _MAX_SIZE = 1, 100_000
_OPTIONS_OF = {
    "semantic": pb.STRATEGY_SEMANTIC,
    "document": pb.STRATEGY_DOCUMENT,
    "email": pb.STRATEGY_EMAIL,
    "slack": pb.STRATEGY_SLACK,
    "code": pb.STRATEGY_CODE,
    "similarity": pb.STRATEGY_SIMILARITY,
    "proposition": pb.STRATEGY_PROPOSITION,
}


def to_json(config: pb.ChunkingConfig) -> Mapping[str, Any]:
    """Protobuf JSON with the proto's field names; equal settings give equal JSON. Raises InvalidField, which names all
    that is wrong."""
    if violations := check(config):
        raise InvalidField.of(violations)
    canonical = pb.ChunkingConfig()
    canonical.CopyFrom(config)
    # What the contract calls the default is left out, said or not.
    if canonical.strategy == pb.STRATEGY_AUTO:
        canonical.strategy = pb.STRATEGY_UNSPECIFIED
    if canonical.unit == pb.SIZE_UNIT_CHARACTERS:
        canonical.unit = pb.SIZE_UNIT_UNSPECIFIED
    return MessageToDict(canonical, preserving_proto_field_name=True)


def from_json(chunking: Mapping[str, Any]) -> pb.ChunkingConfig:
    """The message that `to_json` wrote, with the defaults it left out said. Fields of a later version are dropped."""
    config = ParseDict(dict(chunking), pb.ChunkingConfig(), ignore_unknown_fields=True)
    config.strategy = config.strategy or pb.STRATEGY_AUTO
    config.unit = config.unit or pb.SIZE_UNIT_CHARACTERS
    return config


def check(config: pb.ChunkingConfig) -> list[FieldViolation]:
    """Everything that is wrong with it and can be seen without the chunker."""
    # What is left out takes a default that the chunker knows; only what is said can be compared here. The chunker is
    # asked about the rest.
    size = config.size if config.HasField("size") else _MAX_SIZE
    wrong: dict[str, str] = {}
    if config.strategy not in pb.Strategy.values():
        wrong["strategy"] = "is none of the contract's"
    if config.unit not in pb.SizeUnit.values():
        wrong["unit"] = "is none of the contract's"
    if not _MIN_SIZE <= size <= _MAX_SIZE:
        wrong["size"] = f"must be {_MIN_SIZE} to {_MAX_SIZE}"
    if config.HasField("overlap") and config.overlap >= size:
        wrong["overlap"] = "must be less than the size"
    if config.HasField("minimum") and config.minimum > size:
        wrong["minimum"] = "must be at most the size"
    options = config.WhichOneof("options")
    if options is not None:
        if config.strategy not in {_OPTIONS_OF[options], pb.STRATEGY_AUTO, pb.STRATEGY_UNSPECIFIED}:
            wrong[options] = "are options of another strategy than the chosen one"
        wrong |= _check_options(config)
    return [FieldViolation(field=f"{_FIELD}.{name}", description=said) for name, said in wrong.items()]


def _check_options(config: pb.ChunkingConfig) -> dict[str, str]:
    semantic, document, similarity = config.semantic, config.document, config.similarity
    wrong: dict[str, str] = {}
    if semantic.HasField("paragraph_blank_lines") and not 1 <= semantic.paragraph_blank_lines <= 10:
        wrong["semantic.paragraph_blank_lines"] = "must be 1 to 10"
    if document.HasField("max_heading_level") and not 1 <= document.max_heading_level <= 6:
        wrong["document.max_heading_level"] = "must be 1 to 6"
    if similarity.HasField("threshold") and not -1 <= similarity.threshold <= 1:
        wrong["similarity.threshold"] = "must be -1 to 1"
    if similarity.HasField("percentile") and (not 0 <= similarity.percentile <= 100 or 0 < similarity.percentile < 1):
        wrong["similarity.percentile"] = "must be 0 to 100, in percent, and not a fraction"
    if similarity.HasField("buffer") and similarity.buffer > 5:
        wrong["similarity.buffer"] = "must be 0 to 5"
    return wrong
