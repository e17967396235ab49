"""Options of a question as a person types them."""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum

from kbmesh_client import FusionOptions, ScoreStage

from kbmesh_cli.errors import CliError


class RetrievalChoice(StrEnum):
    """Retrieval strategies by their names on the command line."""

    VECTOR_ONLY = "vector_only"
    HYBRID = "hybrid"
    HYBRID_RERANK = "hybrid_rerank"
    ADVANCED = "advanced"


class FusionChoice(StrEnum):
    """Fusion methods by their names on the command line."""

    ADAPTIVE = "adaptive"
    RRF = "rrf"
    WEIGHTED = "weighted"
    DISTRIBUTION = "distribution"


def fusion_options(
    method: FusionChoice | None, vector_weight: float | None, keyword_weight: float | None, rrf_k: int | None
) -> FusionOptions | None:
    """None where nothing is said."""
    if method is None and vector_weight is None and keyword_weight is None and rrf_k is None:
        return None
    return FusionOptions(
        method=None if method is None else method.value,
        vector_weight=vector_weight,
        keyword_weight=keyword_weight,
        rrf_k=rrf_k,
    )


def parse_thresholds(given: Sequence[str]) -> Mapping[ScoreStage | str, float] | None:
    """Reads `STAGE=MIN`, each stage once; None where none is given. Raises CliError."""
    thresholds: dict[ScoreStage | str, float] = {}
    for said in given:
        name, _, text = said.partition("=")
        try:
            stage, least = ScoreStage(name.strip()), float(text)
        except ValueError:
            stage, least = None, math.nan
        if stage is None or not math.isfinite(least):
            known = ", ".join(each.value.lower() for each in ScoreStage)
            hint = f"such as --threshold vector=0.3; stages are {known}"
            raise CliError("USAGE", f"--threshold needs STAGE=MIN, not {said!r}", hint=hint)
        if stage in thresholds:
            raise CliError("USAGE", f"--threshold has {name.strip()} twice")
        thresholds[stage] = least
    return thresholds or None
