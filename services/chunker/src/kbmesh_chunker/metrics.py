"""What the chunker tells Prometheus. Labels are strategies and reasons, all known at start."""

from kbmesh_rpc.errors import Reason
from prometheus_client import Counter

from kbmesh_chunker.config import Strategy
from kbmesh_chunker.summary import Summary

DOCUMENTS = Counter(
    "kbmesh_chunker_documents_total", "Documents that were cut whole, by the strategy that cut them.", ["strategy"]
)
CHUNKS = Counter("kbmesh_chunker_chunks_total", "Chunks of those documents.", ["strategy"])
CHARACTERS = Counter("kbmesh_chunker_characters_total", "Characters of the text of those documents.", ["strategy"])
WARNINGS = Counter(
    "kbmesh_chunker_warnings_total",
    "Warnings about those documents: what was left out, is too long for the model, or could not be counted.",
    ["reason"],
)
for _strategy in Strategy:
    if _strategy is not Strategy.AUTO:
        DOCUMENTS.labels(_strategy.value)
        CHUNKS.labels(_strategy.value)
        CHARACTERS.labels(_strategy.value)
for _reason in Reason:
    WARNINGS.labels(_reason.name)


def count(summary: Summary) -> None:
    """Counts one document that was cut."""
    strategy = summary.strategy.value
    DOCUMENTS.labels(strategy).inc()
    CHUNKS.labels(strategy).inc(summary.total)
    CHARACTERS.labels(strategy).inc(summary.text_characters)
    for warning in summary.warnings:
        WARNINGS.labels(warning.reason.name).inc()
