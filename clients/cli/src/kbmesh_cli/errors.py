"""What goes wrong in the command itself, and how every error is told."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kbmesh_client import KbmeshError

HINTS: Mapping[str, str] = {
    "KNOWLEDGE_BASE_NOT_FOUND": "`kbmesh kb list` shows those there are; `kbmesh kb create NAME` makes one",
    "KNOWLEDGE_BASE_ALREADY_EXISTS": "choose another name, or `kbmesh kb delete NAME` first",
    "DOCUMENT_NOT_FOUND": "`kbmesh kb show NAME --documents` lists the documents",
    "MODEL_NOT_FOUND": "`kbmesh models list` shows the models there are",
    "MODEL_MISMATCH": "start the embedder with the model the knowledge base was made with, or move to the other one by "
    "`kbmesh kb rebuild start NAME`",
    "PROFILE_NOT_FOUND": "`kbmesh profile list` shows those there are; `kbmesh profile create NAME` makes one",
    "PROFILE_ALREADY_EXISTS": "choose another name, or `kbmesh profile update NAME`",
    "REBUILD_NOT_FOUND": "`kbmesh kb rebuild start NAME` begins one",
    "REBUILD_INCOMPLETE": "`kbmesh kb show NAME` tells how many; send them by `kbmesh ingest NAME --into-rebuild`",
    "MODEL_NOT_READY": "the model is still loading; try again in a moment",
    "QUEUE_FULL": "the mesh is busy; try again later",
    "DEADLINE_EXCEEDED": "`kbmesh doctor` tells whether every service answers",
    "DEPENDENCY_UNAVAILABLE": "`kbmesh doctor` tells which service does not answer; `kbmesh up` starts them",
    "SHUTTING_DOWN": "the mesh is stopping; `kbmesh up` starts it",
    "FEATURE_UNSUPPORTED": "this server does not offer it; docs/chunking.md and docs/retrieval.md list what there is",
    "UNSUPPORTED_MEDIA_TYPE": "docs/documents.md lists the kinds of documents that can be read",
    "INTERNAL": "the server's log has the cause under the request's id",
}


FEATURE_HINTS: Mapping[str, str] = {
    "STRATEGY_PROPOSITION": "it needs a language model: start the chunker with its address in KBMESH_LLM_URL; "
    "docs/chunking.md says how",
}
"""What turns on a feature that a server lacks, by the feature that FEATURE_UNSUPPORTED names."""


class CliError(Exception):
    """An expected failure of the command: told in one line, exit code 1."""

    def __init__(self, reason: str, message: str, *, hint: str = "", metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.hint = hint
        self.metadata = dict(metadata or {})


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What is told of an error."""

    reason: str
    """For a machine: a name of ErrorReason, or one of the command's own."""
    message: str
    """For a person."""
    hint: str = ""
    """What to do about it."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What the reason carries."""


def failure_of(error: KbmeshError | CliError) -> Failure:
    """Gives reason, message and hint of an error."""
    if isinstance(error, CliError):
        return Failure(reason=error.reason, message=one_line(error.message), hint=error.hint, metadata=error.metadata)
    message = error.message
    if error.field_violations:
        message = "; ".join(f"{violation.field}: {violation.description}" for violation in error.field_violations)
    hint = FEATURE_HINTS.get(error.metadata.get("feature", "")) or HINTS.get(error.reason, "")
    if error.retry_after_seconds is not None:
        hint = f"try again in {error.retry_after_seconds:g} s"
    metadata = dict(error.metadata)
    if error.request_id:
        metadata.setdefault("request_id", error.request_id)
    return Failure(reason=error.reason, message=one_line(message), hint=hint, metadata=metadata)


def one_line(message: str) -> str:
    """A message as one line, without what a validator puts before its own words."""
    return " ".join(message.replace("Value error, ", "").split())
