"""The contracts' enums as strings. Each value is the Protobuf name without its prefix."""

from enum import StrEnum
from typing import Self


class WireEnum(StrEnum):
    """Accepts its values in any case and with hyphens: `RetrievalStrategy("hybrid-rerank")`."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        wanted = value.strip().upper().replace("-", "_")
        return next((member for member in cls if member.value == wanted), None)


class RetrievalStrategy(WireEnum):
    """The way candidates are found and ranked."""

    VECTOR_ONLY = "VECTOR_ONLY"
    HYBRID = "HYBRID"
    HYBRID_RERANK = "HYBRID_RERANK"
    ADVANCED = "ADVANCED"
    UNKNOWN = "UNKNOWN"
    """The server is newer than this SDK."""


class ScoreStage(WireEnum):
    """A stage whose score a threshold applies to."""

    VECTOR = "VECTOR"
    KEYWORD = "KEYWORD"
    FUSED = "FUSED"
    RERANK_PROBABILITY = "RERANK_PROBABILITY"
    FINAL = "FINAL"


class Stage(WireEnum):
    """A step of a retrieval."""

    RESOLVE = "RESOLVE"
    REPHRASE = "REPHRASE"
    EMBED = "EMBED"
    SEARCH = "SEARCH"
    FUSE = "FUSE"
    DEDUPLICATE = "DEDUPLICATE"
    RERANK = "RERANK"
    ATTRIBUTE = "ATTRIBUTE"
    UNKNOWN = "UNKNOWN"
    """The server is newer than this SDK."""


class CacheState(WireEnum):
    """Where an answer comes from."""

    UNASKED = "UNASKED"
    """No cache was asked."""
    MISS = "MISS"
    """It was computed for this call."""
    HIT = "HIT"
    """It was kept from an earlier call."""
    SHARED = "SHARED"
    """It was computed for an equal call that ran at the same time."""
    UNKNOWN = "UNKNOWN"
    """The server is newer than this SDK."""


class DisplayKind(WireEnum):
    """The kind of block that a result is shown as."""

    GENERIC = "GENERIC"
    SLACK = "SLACK"
    MAIL = "MAIL"
    WEB_PAGE = "WEB_PAGE"
    PDF = "PDF"
    CODE = "CODE"
    TICKET = "TICKET"
    UNKNOWN = "UNKNOWN"
    """The server is newer than this SDK."""


class KnowledgeBaseStatus(WireEnum):
    """What a knowledge base gave to a query."""

    OK = "OK"
    EMPTY = "EMPTY"
    BELOW_THRESHOLD = "BELOW_THRESHOLD"
    TIMEOUT = "TIMEOUT"
    UNAVAILABLE = "UNAVAILABLE"
    DENIED = "DENIED"
    NOT_FOUND = "NOT_FOUND"
    MODEL_MISMATCH = "MODEL_MISMATCH"
    UNKNOWN = "UNKNOWN"
    """The server is newer than this SDK."""


class RerankMethod(WireEnum):
    """How the reranker came to its order."""

    NONE = "NONE"
    """Nothing was reranked."""
    CROSS_ENCODER = "CROSS_ENCODER"
    LATE_INTERACTION = "LATE_INTERACTION"
    UNKNOWN = "UNKNOWN"
    """The server is newer than this SDK."""


class FusionMethod(WireEnum):
    """The way the lists of a query become one order."""

    ADAPTIVE = "ADAPTIVE"
    """Weighted scores, each channel trusted as far as its scores and the agreement of the channels warrant."""
    RRF = "RRF"
    """Reciprocal rank fusion."""
    WEIGHTED = "WEIGHTED"
    """The weighted sum of scores, normalised within each list."""
    DISTRIBUTION = "DISTRIBUTION"
    """The weighted sum of scores, normalised by their mean and deviation."""
    UNKNOWN = "UNKNOWN"
    """The server's own choice, or the server is newer than this SDK."""


class IngestOutcome(WireEnum):
    """What became of a document."""

    NEW = "NEW"
    CHANGED = "CHANGED"
    UNCHANGED = "UNCHANGED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"
    """The server is newer than this SDK."""


class Placement(WireEnum):
    """Where the vectors of a knowledge base lie."""

    DEDICATED = "DEDICATED"
    SHARED = "SHARED"
    UNKNOWN = "UNKNOWN"
    """The server is newer than this SDK."""


class Distance(WireEnum):
    """How the vectors of a knowledge base are compared."""

    COSINE = "COSINE"
    EUCLIDEAN = "EUCLIDEAN"
    DOT = "DOT"
    UNKNOWN = "UNKNOWN"
    """The server is newer than this SDK."""


class RebuildState(WireEnum):
    """Whether a rebuild can be finished."""

    BUILDING = "BUILDING"
    """Documents are outstanding."""
    READY = "READY"
    """Every document that readers find is in it."""
    UNKNOWN = "UNKNOWN"
    """What a newer server says."""


class ChunkingStrategy(WireEnum):
    """The way a document is cut."""

    AUTO = "AUTO"
    FIXED = "FIXED"
    SEMANTIC = "SEMANTIC"
    DOCUMENT = "DOCUMENT"
    EMAIL = "EMAIL"
    SLACK = "SLACK"
    CODE = "CODE"
    SIMILARITY = "SIMILARITY"
    PROPOSITION = "PROPOSITION"
    UNKNOWN = "UNKNOWN"
    """The server is newer than this SDK."""


class SizeUnit(WireEnum):
    """What the sizes of chunks are counted in."""

    CHARACTERS = "CHARACTERS"
    TOKENS = "TOKENS"
    UNKNOWN = "UNKNOWN"
    """The server is newer than this SDK."""


class SourceType(WireEnum):
    """The kind of place a document comes from."""

    GENERIC = "GENERIC"
    FILE = "FILE"
    WEB_PAGE = "WEB_PAGE"
    EMAIL = "EMAIL"
    SLACK = "SLACK"
    CODE = "CODE"
    TICKET = "TICKET"
    UNKNOWN = "UNKNOWN"
    """Not told, or the server is newer than this SDK."""
