"""What a caller may ask of the chunker, and how what is left out is filled in."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from kbmesh_rpc.errors import InvalidField

from kbmesh_chunker.cutter import Limits
from kbmesh_chunker.version import CHUNKER_VERSION

MIN_SIZE = 1
MAX_SIZE = 100_000

OptionValue = int | float | str | bool
Options = Mapping[str, OptionValue]


class Strategy(StrEnum):
    """Every strategy the contract knows. A value is the contract's name without its prefix, in lower case."""

    AUTO = "auto"
    FIXED = "fixed"
    SEMANTIC = "semantic"
    DOCUMENT = "document"
    EMAIL = "email"
    SLACK = "slack"
    CODE = "code"
    SIMILARITY = "similarity"
    PROPOSITION = "proposition"


class SizeUnit(StrEnum):
    """What sizes count."""

    CHARACTERS = "characters"
    TOKENS = "tokens"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes a strategy takes where the caller names none."""

    size: int
    overlap: int
    minimum: int


CHARACTER_SIZES = Sizes(size=1500, overlap=150, minimum=500)
_CHARACTERS_PER_TOKEN = 1500 / 320
"""1,500 characters of English are some 330 tokens."""


def token_sizes(characters: Sizes) -> Sizes:
    """Default sizes in tokens that go with those in characters."""
    size, overlap, minimum = (
        int(count / _CHARACTERS_PER_TOKEN) for count in (characters.size, characters.overlap, characters.minimum)
    )
    return Sizes(size=size, overlap=overlap, minimum=minimum)


@dataclass(frozen=True, kw_only=True)
class ConfigRequest:
    """A configuration as the caller sent it. None is what was left out."""

    strategy: Strategy = Strategy.AUTO
    size: int | None = None
    overlap: int | None = None
    minimum: int | None = None
    unit: SizeUnit = SizeUnit.CHARACTERS
    embedding_model: str = ""
    allow_truncation: bool = False
    options_of: Strategy | None = None
    """The strategy whose options were sent."""
    options: Options = field(default_factory=dict)
    """The options that were set, by name."""


@dataclass(frozen=True, kw_only=True)
class ChunkingConfig:
    """A configuration in which every field is set and right."""

    strategy: Strategy
    limits: Limits
    unit: SizeUnit
    embedding_model: str
    allow_truncation: bool
    options: Options

    @property
    def counts_tokens(self) -> bool:
        """Whether cutting needs the embedding model's tokens."""
        return self.unit is SizeUnit.TOKENS or (bool(self.embedding_model) and not self.allow_truncation)


def resolve_limits(request: ConfigRequest, *, characters: Sizes = CHARACTER_SIZES, path: str = "config") -> Limits:
    """The sizes to cut by. Defaults shrink with a small size; what the caller says is taken or refused.

    `path` is where the configuration stands in the request. Raises InvalidField.
    """
    defaults = characters if request.unit is SizeUnit.CHARACTERS else token_sizes(characters)
    size = defaults.size if request.size is None else request.size
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise InvalidField(f"{path}.size", f"must be {MIN_SIZE} to {MAX_SIZE}, is {size}")
    overlap = min(defaults.overlap, size // 10) if request.overlap is None else request.overlap
    if not 0 <= overlap < size:
        raise InvalidField(f"{path}.overlap", f"must be less than the size of {size}, is {overlap}")
    minimum = min(defaults.minimum, size // 3) if request.minimum is None else request.minimum
    if not 0 <= minimum <= size:
        raise InvalidField(f"{path}.minimum", f"must be at most the size of {size}, is {minimum}")
    return Limits(size=size, overlap=overlap, minimum=minimum)


def check_options_owner(request: ConfigRequest, *, path: str = "config") -> None:
    """Raises InvalidField where options of another strategy than the chosen one were sent. AUTO takes those of any, for
    the documents that it cuts by that strategy."""
    if request.options_of not in {None, request.strategy} and request.strategy is not Strategy.AUTO:
        raise InvalidField(
            f"{path}.{request.options_of}", f"options of {request.options_of}, but the strategy is {request.strategy}"
        )


def check_model(request: ConfigRequest, *, can_count: bool, path: str = "config") -> None:
    """Raises InvalidField where tokens must be counted and cannot be."""
    needed = request.unit is SizeUnit.TOKENS or (request.embedding_model and not request.allow_truncation)
    if request.unit is SizeUnit.TOKENS and not request.embedding_model:
        raise InvalidField(f"{path}.embedding_model", "must name the model whose tokens the unit TOKENS counts")
    if needed and not can_count:
        raise InvalidField(
            f"{path}.embedding_model", "this chunker is not connected to an embedder and cannot count tokens"
        )


def fingerprint(
    config: ChunkingConfig,
    *,
    model_fingerprint: str = "",
    max_tokens: int = 0,
    made_with: Mapping[str, str] | None = None,
) -> str:
    """SHA-256 (hex) of all that decides how a text is cut: configuration, chunker's version, model's tokens, and what
    else the strategy was made with."""
    return _fingerprint(
        config.strategy,
        config.limits,
        config.unit,
        config.embedding_model,
        config.allow_truncation,
        # 1 and True are equal and are not written alike.
        tuple((name, value, type(value)) for name, value in config.options.items()),
        model_fingerprint if config.counts_tokens else "",
        max_tokens if config.counts_tokens else 0,
        tuple(made_with.items()) if made_with else (),
    )


@lru_cache(maxsize=256)
def _fingerprint(
    strategy: Strategy,
    limits: Limits,
    unit: SizeUnit,
    embedding_model: str,
    allow_truncation: bool,
    options: tuple[tuple[str, OptionValue, type], ...],
    model_fingerprint: str,
    max_tokens: int,
    made_with: tuple[tuple[str, str], ...],
) -> str:
    decisive = {
        "version": CHUNKER_VERSION,
        "strategy": strategy,
        "size": limits.size,
        "overlap": limits.overlap,
        "minimum": limits.minimum,
        "unit": unit,
        "embedding_model": embedding_model,
        "allow_truncation": allow_truncation,
        "options": {name: value for name, value, _ in options},
        "model_fingerprint": model_fingerprint,
        "max_tokens": max_tokens,
        **({"made_with": dict(made_with)} if made_with else {}),
    }
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()
