"""A retrieval profile as a file: JSON or YAML, by the contract's names, as `kbmesh profile show --json` prints it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, cast

from kbmesh_client import Condition, Filter, FusionOptions, KnowledgeBaseSelector, Profile, RetrievalOptions

from kbmesh_cli.errors import CliError

_OPTIONS = frozenset(RetrievalOptions.__annotations__)
_IGNORED = frozenset({"name", "created_at", "updated_at"})
"""What `show` prints and a file may keep, though the command says it or the server does."""


@dataclass(frozen=True, kw_only=True)
class ProfileFile:
    """What a file says."""

    description: str | None
    knowledge_bases: Sequence[KnowledgeBaseSelector]
    options: RetrievalOptions


def read_profile(path: Path) -> ProfileFile:
    """Raises CliError for a file that cannot be read, or that says something that a profile cannot."""
    said = _mapping(_load(path), "the file")
    unknown = said.keys() - _OPTIONS - _IGNORED - {"description", "knowledge_bases"}
    if unknown:
        names = ", ".join(sorted(_OPTIONS | {"description", "knowledge_bases"}))
        raise _wrong(f"has no {min(unknown)!r}", hint=f"there are {names}")
    options = {name: value for name, value in said.items() if name in _OPTIONS and value is not None}
    if "strategy" in options:
        options["strategy"] = str(options["strategy"]).upper()
    if "filter" in options:
        options["filter"] = _filter(options["filter"], "filter")
    if "fusion" in options:
        fusion = _only(options["fusion"], FusionOptions, "fusion")
        options["fusion"] = FusionOptions(
            **{**fusion, "method": str(fusion["method"]).upper() if fusion.get("method") else None}
        )
    if "thresholds" in options:
        options["thresholds"] = {
            str(stage).upper(): least for stage, least in _mapping(options["thresholds"], "thresholds").items()
        }
    named = said.get("knowledge_bases") or []
    if not isinstance(named, list):
        raise _wrong("needs a list of knowledge_bases")
    return ProfileFile(
        description=said.get("description"),
        knowledge_bases=[_selector(one, f"knowledge_bases[{index}]") for index, one in enumerate(named)],
        options=cast(RetrievalOptions, options),
    )


def profile_to_json(profile: Profile) -> dict[str, Any]:
    """What `kbmesh profile show --json` prints, and a file may say. What is not said is left out."""
    options: dict[str, Any] = dict(profile.options)
    if "strategy" in options:
        options["strategy"] = str(options["strategy"]).lower()
    if "filter" in options:
        options["filter"] = _without_none(asdict(options["filter"]))
    if "fusion" in options:
        fusion = _without_none(asdict(options["fusion"]))
        options["fusion"] = {**fusion, **({"method": str(fusion["method"]).lower()} if "method" in fusion else {})}
    if "thresholds" in options:
        options["thresholds"] = {str(stage).lower(): least for stage, least in options["thresholds"].items()}
    return {
        "name": profile.name,
        "description": profile.description,
        "knowledge_bases": [_selector_to_json(one) for one in profile.knowledge_bases],
        **options,
        "created_at": profile.created_at.isoformat() if profile.created_at else None,
        "updated_at": profile.updated_at.isoformat() if profile.updated_at else None,
    }


def _selector_to_json(selector: KnowledgeBaseSelector) -> dict[str, Any]:
    said = _without_none(asdict(selector))
    stage = str(said.pop("min_score_stage")).lower()
    return {**said, **({"min_score_stage": stage} if selector.min_score is not None else {})}


def _without_none(value: Any) -> Any:
    """Also without empty lists: a filter's parts that hold nothing."""
    if isinstance(value, Mapping):
        return {name: _without_none(one) for name, one in value.items() if one is not None and one not in ((), [])}
    if isinstance(value, list | tuple):
        return [_without_none(one) for one in value]
    return value


def _load(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CliError("USAGE", f"{path} cannot be read: {error}") from error
    if path.suffix.lower() in (".yaml", ".yml"):
        try:
            import yaml
        except ImportError as error:
            hint = "pip install 'kbmesh-cli[local]', or write the file as JSON"
            raise CliError("USAGE", "YAML needs PyYAML, which is not installed", hint=hint) from error
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise CliError("USAGE", f"{path} is no YAML: {error}") from error
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise CliError("USAGE", f"{path} is no JSON: {error}", hint="a file of YAML is named *.yaml") from error


def _selector(given: Any, name: str) -> KnowledgeBaseSelector:
    if isinstance(given, str):
        return KnowledgeBaseSelector(knowledge_base=given)
    said = _only(given, KnowledgeBaseSelector, name)
    if not said.get("knowledge_base"):
        raise _wrong(f"needs a knowledge_base in {name}")
    if "min_score_stage" in said:
        said["min_score_stage"] = str(said["min_score_stage"]).upper()
    if said.get("filter") is not None:
        said["filter"] = _filter(said["filter"], f"{name}.filter")
    return KnowledgeBaseSelector(**said)


def _filter(given: Any, name: str) -> Filter | dict[str, Any]:
    said = _mapping(given, name)
    if not said.keys() <= {"all", "any", "none"}:
        return said  # the short form
    return Filter(
        **{
            part: [Condition(**_only(one, Condition, f"{name}.{part}")) for one in said.get(part) or ()]
            for part in ("all", "any", "none")
        }
    )


def _only(given: Any, kind: type[Any], name: str) -> dict[str, Any]:
    said = _mapping(given, name)
    known = [field.name for field in fields(kind)]
    if unknown := said.keys() - set(known):
        raise _wrong(f"has no {min(unknown)!r} in {name}", hint=f"there are {', '.join(known)}")
    return said


def _mapping(given: Any, name: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise _wrong(f"needs names and values in {name}, not {given!r}")
    return {str(key): value for key, value in given.items()}


def _wrong(said: str, *, hint: str = "") -> CliError:
    return CliError("USAGE", f"a profile {said}", hint=hint)
