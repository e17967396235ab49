"""`--option STRATEGY.NAME=VALUE`: options of a chunking strategy on the command line."""

import dataclasses
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, get_args, get_type_hints

from kbmesh_client import (
    CodeOptions,
    DocumentOptions,
    EmailOptions,
    PropositionOptions,
    SemanticOptions,
    SimilarityOptions,
    SlackOptions,
)
from kbmesh_client.chunks import StrategyOptions

from kbmesh_cli.errors import CliError

_BY_STRATEGY: Mapping[str, type[Any]] = {
    "semantic": SemanticOptions,
    "document": DocumentOptions,
    "email": EmailOptions,
    "slack": SlackOptions,
    "code": CodeOptions,
    "similarity": SimilarityOptions,
    "proposition": PropositionOptions,
}
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def names() -> list[str]:
    """Every option there is, as `email.exclude_quotes`."""
    return [f"{name}.{field.name}" for name, kind in _BY_STRATEGY.items() for field in dataclasses.fields(kind)]


def parse_options(given: Sequence[str]) -> StrategyOptions | None:
    """The options of one strategy; None where none are given. Raises CliError."""
    values: dict[str, Any] = {}
    strategies: list[str] = []
    for each in given:
        name, separator, value = each.partition("=")
        strategy, _, option = name.strip().lower().partition(".")
        if not separator or f"{strategy}.{option}" not in names():
            raise CliError("USAGE", f"--option {each}: must be one of {', '.join(names())}, then = and a value")
        strategies.append(strategy)
        values[option] = _value(_BY_STRATEGY[strategy], option, value.strip(), each)
    if not strategies:
        return None
    if len(set(strategies)) > 1:
        raise CliError("USAGE", f"--option: options of {' and '.join(dict.fromkeys(strategies))} exclude each other")
    try:
        options: StrategyOptions = _BY_STRATEGY[strategies[0]](**values)
    except ValueError as error:
        raise CliError("USAGE", f"--option: {error}") from error
    return options


def _value(kind: type[Any], option: str, value: str, given: str) -> Any:
    wanted = get_type_hints(kind)[option]
    (wanted,) = [each for each in get_args(wanted) if each is not NoneType] or [wanted]
    try:
        return _TRUTH[value.lower()] if wanted is bool else wanted(value)
    except (KeyError, ValueError) as error:
        expected = {bool: "true or false", int: "a whole number", float: "a number"}[wanted]
        raise CliError("USAGE", f"--option {given}: must be {expected}") from error
