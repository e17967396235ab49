"""The enums of the contracts as the domain writes them: without prefix, in lower case."""

from kbmesh.chunker.v1 import chunker_pb2 as pb

# The value 0 is UNSPECIFIED, which the domain writes as an empty text.
_SOURCE_TYPES = {value: name.removeprefix("SOURCE_TYPE_").lower() for name, value in pb.SourceType.items() if value}
_SOURCE_TYPE_VALUES = {name: value for value, name in _SOURCE_TYPES.items()}
_STRATEGIES = {value: name.removeprefix("STRATEGY_").lower() for name, value in pb.Strategy.items() if value}
_STRATEGY_VALUES = {name: value for value, name in _STRATEGIES.items()}

NAMES_BY_FIELD = {
    "source_type": ("source_type_", _SOURCE_TYPE_VALUES.keys()),
    "strategy": ("strategy_", _STRATEGY_VALUES.keys()),
}
"""Of the fields of a filter that are enums: the contract's prefix in lower case, and the names there are."""


def source_type_name(value: pb.SourceType.ValueType) -> str:
    """SOURCE_TYPE_FILE is "file"; empty for UNSPECIFIED and for a value of a later version."""
    return _SOURCE_TYPES.get(value, "")


def source_type_of(name: str) -> pb.SourceType.ValueType:
    """The reverse of `source_type_name`; UNSPECIFIED for a name that is none."""
    return _SOURCE_TYPE_VALUES.get(name, pb.SOURCE_TYPE_UNSPECIFIED)


def strategy_name(value: pb.Strategy.ValueType) -> str:
    """STRATEGY_FIXED is "fixed"; empty for UNSPECIFIED and for a value of a later version."""
    return _STRATEGIES.get(value, "")


def strategy_of(name: str) -> pb.Strategy.ValueType:
    """The reverse of `strategy_name`; UNSPECIFIED for a name that is none."""
    return _STRATEGY_VALUES.get(name, pb.STRATEGY_UNSPECIFIED)
