"""The strategies that this server offers."""

from collections.abc import Mapping

from kbmesh_rpc.errors import FeatureUnsupported

from kbmesh_chunker.config import Strategy
from kbmesh_chunker.strategies.code import Code
from kbmesh_chunker.strategies.document import Document
from kbmesh_chunker.strategies.email import Email
from kbmesh_chunker.strategies.fixed import Fixed
from kbmesh_chunker.strategies.port import StrategyPort
from kbmesh_chunker.strategies.proposition import Proposition
from kbmesh_chunker.strategies.semantic import Semantic
from kbmesh_chunker.strategies.similarity import Similarity
from kbmesh_chunker.strategies.slack import Slack

_ALL: tuple[StrategyPort, ...] = (
    Fixed(),
    Semantic(),
    Document(),
    Code(),
    Email(),
    Slack(),
    Similarity(),
    Proposition(),
)

STRATEGIES: Mapping[Strategy, StrategyPort] = {port.strategy: port for port in _ALL}

AUTO_DESCRIPTION = "Chooses by media type and content, and says what it chose."


def find(strategy: Strategy) -> StrategyPort:
    """The strategy of a name other than AUTO. Raises FeatureUnsupported where this server has none."""
    if strategy not in STRATEGIES:
        raise FeatureUnsupported(f"STRATEGY_{strategy.name}")
    return STRATEGIES[strategy]
