"""The ways to look that `kbmesh eval` compares: strategies, fusion methods and swept options."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kbmesh_client import FusionMethod, FusionOptions, RetrievalOptions, RetrievalStrategy

from kbmesh_cli.errors import CliError

MOST_VARIANTS = 50

_FUSED = frozenset(RetrievalStrategy) - {RetrievalStrategy.VECTOR_ONLY, RetrievalStrategy.UNKNOWN}
_RERANKED = frozenset({RetrievalStrategy.HYBRID_RERANK, RetrievalStrategy.ADVANCED})
_WHOLE = frozenset({"rrf_k", "top_k", "rerank_top_n"})
_OF_FUSION = ("vector_weight", "keyword_weight", "rrf_k")
SWEPT = (*_OF_FUSION, "top_k", "rerank_top_n", "diversity")
"""Options that can be swept."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to look."""

    strategy: RetrievalStrategy
    fusion: FusionMethod | None = None
    """The server's own choice where it is None."""
    swept: Mapping[str, float] = field(default_factory=dict)
    """Values of swept options."""

    @property
    def family(self) -> str:
        """Its name without what is swept."""
        return self.strategy.value.lower() + (f"/{self.fusion.value.lower()}" if self.fusion else "")

    @property
    def name(self) -> str:
        """Such as "hybrid/rrf rrf_k=30"."""
        return " ".join([self.family, *(f"{option}={value:g}" for option, value in self.swept.items())])

    def options(self, *, top_k: int) -> RetrievalOptions:
        """What is asked: documents, each by its best fragment, and no text for a prompt."""
        said: dict[str, float | int] = {
            option: int(value) if option in _WHOLE else value for option, value in self.swept.items()
        }
        options: RetrievalOptions = {
            "strategy": self.strategy,
            "top_k": int(said.get("top_k", top_k)),
            "max_results_per_document": 1,
            "context_budget_tokens": 0,
        }
        if self.fusion or any(option in said for option in _OF_FUSION):
            options["fusion"] = FusionOptions(
                method=self.fusion,
                vector_weight=said.get("vector_weight"),
                keyword_weight=said.get("keyword_weight"),
                rrf_k=int(said["rrf_k"]) if "rrf_k" in said else None,
            )
        if "rerank_top_n" in said:
            options["rerank_top_n"] = int(said["rerank_top_n"])
        if "diversity" in said:
            options["diversity"] = said["diversity"]
        return options


def parse_variants(strategies: str, fusions: str, sweeps: Sequence[str]) -> tuple[Variant, ...]:
    """Every strategy with every fusion method and every value, each once: what does not apply to a strategy does not
    multiply it. Raises CliError."""
    wanted = [_strategy(name) for name in _names(strategies)]
    if not wanted:
        raise CliError("USAGE", "--strategy names none")
    methods = [_fusion(name) for name in _names(fusions)]
    values = _sweeps(sweeps)
    variants = dict.fromkeys(_identities(wanted, methods, values))
    for option in values:
        if not any(option in dict(swept) for _, _, swept in variants):
            raise CliError("USAGE", f"--sweep {option} applies to none of the strategies", hint=_WHERE[option])
    if len(variants) > MOST_VARIANTS:
        raise CliError("USAGE", f"{len(variants)} combinations are over the limit of {MOST_VARIANTS}")
    return tuple(Variant(strategy=strategy, fusion=fusion, swept=dict(swept)) for strategy, fusion, swept in variants)


_Identity = tuple[RetrievalStrategy, FusionMethod | None, tuple[tuple[str, float], ...]]


def _identities(
    strategies: Sequence[RetrievalStrategy],
    methods: Sequence[FusionMethod],
    values: Mapping[str, Sequence[float]],
) -> Iterator[_Identity]:
    for strategy in strategies:
        chosen_by_the_mesh: list[FusionMethod | None] = [None]
        for method in (list(methods) or chosen_by_the_mesh) if strategy in _FUSED else chosen_by_the_mesh:
            applied = [option for option in values if _applies(option, strategy, method)]
            for chosen in itertools.product(*(values[option] for option in applied)):
                yield strategy, method, tuple(zip(applied, chosen, strict=True))


def _applies(option: str, strategy: RetrievalStrategy, method: FusionMethod | None) -> bool:
    if option == "rrf_k":
        return strategy in _FUSED and method is FusionMethod.RRF
    if option in _OF_FUSION:
        return strategy in _FUSED
    return strategy in _RERANKED if option == "rerank_top_n" else True


_WHERE: Mapping[str, str] = {
    "rrf_k": "it is the constant of --fusion rrf",
    "vector_weight": "vector_only fuses nothing",
    "keyword_weight": "vector_only fuses nothing",
    "rerank_top_n": "it is for hybrid_rerank and advanced",
    "top_k": "",
    "diversity": "",
}


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _strategy(name: str) -> RetrievalStrategy:
    try:
        strategy = RetrievalStrategy(name)
    except ValueError:
        strategy = RetrievalStrategy.UNKNOWN
    if strategy is RetrievalStrategy.UNKNOWN:
        known = ", ".join(each.value.lower() for each in RetrievalStrategy if each is not RetrievalStrategy.UNKNOWN)
        raise CliError("USAGE", f"there is no strategy {name!r}", hint=f"there are {known}")
    return strategy


def _fusion(name: str) -> FusionMethod:
    try:
        method = FusionMethod(name)
    except ValueError:
        method = FusionMethod.UNKNOWN
    if method is FusionMethod.UNKNOWN:
        known = ", ".join(each.value.lower() for each in FusionMethod if each is not FusionMethod.UNKNOWN)
        raise CliError("USAGE", f"there is no fusion method {name!r}", hint=f"there are {known}")
    return method


def _sweeps(given: Sequence[str]) -> dict[str, tuple[float, ...]]:
    sweeps: dict[str, tuple[float, ...]] = {}
    for sweep in given:
        option, _, text = sweep.partition("=")
        option = option.strip().replace("-", "_")
        if option not in SWEPT:
            raise CliError("USAGE", f"--sweep has no option {option!r}", hint=f"there are {', '.join(SWEPT)}")
        values = tuple(_value(option, part) for part in _names(text))
        if not values or option in sweeps:
            raise CliError("USAGE", f"--sweep {sweep} needs values, and each option once, such as {option}=0.3,0.5")
        sweeps[option] = values
    return sweeps


def _value(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0 or (option in _WHOLE and value != int(value)):
        kind = "a whole number" if option in _WHOLE else "a number"
        raise CliError("USAGE", f"--sweep {option}: {text!r} is not {kind} from 0 on")
    return value
