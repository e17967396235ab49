"""The errors of kbmesh's contracts, one class for each reason.

    KbmeshError
    ├── InvalidField, RequestTooLarge                         the request is wrong
    ├── Unauthenticated, PermissionDenied                     the caller is wrong
    ├── KnowledgeBaseNotFound, KnowledgeBaseAlreadyExists, DocumentNotFound, JobNotFound, Conflict
    ├── RebuildNotFound, RebuildIncomplete
    ├── ProfileNotFound, ProfileAlreadyExists
    ├── ModelNotFound, ModelMismatch, ModelNotReady, InferenceFailed
    ├── EmptyText, TextTooLong                                one text is wrong
    ├── UnsupportedMediaType, DocumentUnreadable, DocumentEmpty, DocumentTooLarge, DocumentShrunk, ContentLeftOut
    ├── QueueFull, DeadlineExceeded, Cancelled, ShuttingDown  not now
    ├── DependencyUnavailable, DependencyInvalidResponse      somebody we need is wrong
    └── FeatureUnsupported, InternalError                     we are wrong

Domain code raises these; `kbmesh_rpc.status` turns them into gRPC statuses and back. This module therefore imports
neither grpc nor generated code. Each constructor fills the metadata that `errors.proto` documents for its reason.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Self

NAME_CHARACTERS = 64
"""Of a name that a message repeats. Names that exist are rarely longer; one of a megabyte is somebody's mistake."""
VALUE_CHARACTERS = 256
"""Of a metadata value, and of the path of a field."""
MESSAGE_CHARACTERS = 1000
"""Of a message, and of what is wrong with a field."""

_UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Control characters, those that turn the direction of a line, and halves of surrogate pairs: in a log or a terminal
they would do something in place of being read."""


def shown(name: str) -> str:
    """A name of the caller's as a message repeats it: in quotes, escaped, and no more than its first characters."""
    return repr(name if len(name) <= NAME_CHARACTERS else name[: NAME_CHARACTERS - 1] + "…")


def one_line(text: str) -> str:
    """A message as one line, bounded. Of white space, in which there may be line breaks, a space is left."""
    return readable(" ".join(text[: 4 * MESSAGE_CHARACTERS].split()))


def readable(text: str, most: int = MESSAGE_CHARACTERS) -> str:
    """A text of at most so many characters, with an ellipsis where it was longer, and control characters escaped."""
    head = _UNSHOWN.sub(lambda found: found[0].encode("unicode_escape").decode(), text[: most + 1])
    return head if len(head) <= most else head[: most - 1] + "…"


class Reason(StrEnum):
    """Why a call, or an item of it, failed. The value is the name in `kbmesh.errors.v1.ErrorReason`."""

    INVALID_FIELD = "ERROR_REASON_INVALID_FIELD"
    REQUEST_TOO_LARGE = "ERROR_REASON_REQUEST_TOO_LARGE"
    UNAUTHENTICATED = "ERROR_REASON_UNAUTHENTICATED"
    PERMISSION_DENIED = "ERROR_REASON_PERMISSION_DENIED"
    KNOWLEDGE_BASE_NOT_FOUND = "ERROR_REASON_KNOWLEDGE_BASE_NOT_FOUND"
    KNOWLEDGE_BASE_ALREADY_EXISTS = "ERROR_REASON_KNOWLEDGE_BASE_ALREADY_EXISTS"
    DOCUMENT_NOT_FOUND = "ERROR_REASON_DOCUMENT_NOT_FOUND"
    MODEL_NOT_FOUND = "ERROR_REASON_MODEL_NOT_FOUND"
    MODEL_MISMATCH = "ERROR_REASON_MODEL_MISMATCH"
    MODEL_NOT_READY = "ERROR_REASON_MODEL_NOT_READY"
    EMPTY_TEXT = "ERROR_REASON_EMPTY_TEXT"
    TEXT_TOO_LONG = "ERROR_REASON_TEXT_TOO_LONG"
    INFERENCE_FAILED = "ERROR_REASON_INFERENCE_FAILED"
    QUEUE_FULL = "ERROR_REASON_QUEUE_FULL"
    DEADLINE_EXCEEDED = "ERROR_REASON_DEADLINE_EXCEEDED"
    CANCELLED = "ERROR_REASON_CANCELLED"
    SHUTTING_DOWN = "ERROR_REASON_SHUTTING_DOWN"
    DEPENDENCY_UNAVAILABLE = "ERROR_REASON_DEPENDENCY_UNAVAILABLE"
    DEPENDENCY_INVALID_RESPONSE = "ERROR_REASON_DEPENDENCY_INVALID_RESPONSE"
    UNSUPPORTED_MEDIA_TYPE = "ERROR_REASON_UNSUPPORTED_MEDIA_TYPE"
    DOCUMENT_UNREADABLE = "ERROR_REASON_DOCUMENT_UNREADABLE"
    DOCUMENT_EMPTY = "ERROR_REASON_DOCUMENT_EMPTY"
    DOCUMENT_TOO_LARGE = "ERROR_REASON_DOCUMENT_TOO_LARGE"
    CONFLICT = "ERROR_REASON_CONFLICT"
    FEATURE_UNSUPPORTED = "ERROR_REASON_FEATURE_UNSUPPORTED"
    INTERNAL = "ERROR_REASON_INTERNAL"
    CONTENT_LEFT_OUT = "ERROR_REASON_CONTENT_LEFT_OUT"
    DOCUMENT_SHRUNK = "ERROR_REASON_DOCUMENT_SHRUNK"
    JOB_NOT_FOUND = "ERROR_REASON_JOB_NOT_FOUND"
    REBUILD_NOT_FOUND = "ERROR_REASON_REBUILD_NOT_FOUND"
    REBUILD_INCOMPLETE = "ERROR_REASON_REBUILD_INCOMPLETE"
    PROFILE_NOT_FOUND = "ERROR_REASON_PROFILE_NOT_FOUND"
    PROFILE_ALREADY_EXISTS = "ERROR_REASON_PROFILE_ALREADY_EXISTS"


@dataclass(frozen=True, kw_only=True)
class FieldViolation:
    """One field of a request that is wrong."""

    field: str
    """Path of the field in the request, such as `texts[3]`."""
    description: str
    """What is wrong with it, for a person."""

    def readable(self) -> "FieldViolation":
        """The same, bounded as an error's texts are."""
        return FieldViolation(field=readable(self.field, VALUE_CHARACTERS), description=one_line(self.description))


class KbmeshError(Exception):
    """What every error of kbmesh is. Raise a subclass; catch this.

    Whatever it is made of, its texts are bounded and can be read: a name that it repeats is the caller's, of any length
    and of any characters."""

    reason: ClassVar[Reason]
    message: str
    """For a person. Holds no text of a document or query."""
    metadata: dict[str, str]
    """The keys that the reason's comment in `errors.proto` names."""
    field_violations: tuple[FieldViolation, ...]
    """The wrong fields; empty for most reasons."""
    retry_after_seconds: float | None
    """When to come back, where the server knows it."""

    def __init__(
        self,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        field_violations: Sequence[FieldViolation] = (),
        retry_after_seconds: float | None = None,
    ) -> None:
        self.message = one_line(message)
        super().__init__(self.message)
        self.metadata = {key: readable(value, VALUE_CHARACTERS) for key, value in (metadata or {}).items()}
        self.field_violations = tuple(violation.readable() for violation in field_violations)
        self.retry_after_seconds = retry_after_seconds

    def __reduce__(self) -> tuple[object, ...]:
        # Subclasses have keyword constructors, which the default of Exception cannot call: it would lose errors that
        # cross a process pool.
        return rebuild, (self.reason, self.message, self.metadata, self.field_violations, self.retry_after_seconds)


class InvalidField(KbmeshError):
    """A field of the request is missing, malformed or out of range."""

    reason = Reason.INVALID_FIELD

    def __init__(self, field: str, message: str) -> None:
        super().__init__(
            f"{field}: {message}",
            metadata={"field": field},
            field_violations=(FieldViolation(field=field, description=message),),
        )

    @classmethod
    def of(cls, violations: Sequence[FieldViolation]) -> Self:
        """One error for several wrong fields. `violations` is not empty."""
        error = cls(violations[0].field, violations[0].description)
        error.field_violations = tuple(violation.readable() for violation in violations)
        return error


class RequestTooLarge(KbmeshError):
    """The request holds more items or bytes than the server accepts."""

    reason = Reason.REQUEST_TOO_LARGE

    def __init__(self, *, field: str, limit: int, actual: int) -> None:
        message = f"{actual} is over the limit of {limit}"
        super().__init__(
            f"{field}: {message}",
            metadata={"field": field, "limit": str(limit), "actual": str(actual)},
            field_violations=(FieldViolation(field=field, description=message),),
        )


class Unauthenticated(KbmeshError):
    """The caller's credentials are missing or not valid."""

    reason = Reason.UNAUTHENTICATED

    def __init__(self, message: str = "the caller's credentials are missing or not valid") -> None:
        super().__init__(message)


class PermissionDenied(KbmeshError):
    """The caller may not do this."""

    reason = Reason.PERMISSION_DENIED

    def __init__(self, message: str = "the caller may not do this") -> None:
        super().__init__(message)


class KnowledgeBaseNotFound(KbmeshError):
    """The tenant has no such knowledge base, or none of several that were named."""

    reason = Reason.KNOWLEDGE_BASE_NOT_FOUND

    def __init__(self, *names: str) -> None:
        named = " or ".join(map(shown, names))
        super().__init__(f"there is no knowledge base {named}", metadata={"knowledge_base": ", ".join(names)})


class KnowledgeBaseAlreadyExists(KbmeshError):
    """The tenant has a knowledge base of this name."""

    reason = Reason.KNOWLEDGE_BASE_ALREADY_EXISTS

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a knowledge base {shown(name)} already", metadata={"knowledge_base": name})


class DocumentNotFound(KbmeshError):
    """The knowledge base has no such document."""

    reason = Reason.DOCUMENT_NOT_FOUND

    def __init__(self, *, knowledge_base: str, document: str) -> None:
        super().__init__(
            f"knowledge base {shown(knowledge_base)} has no document {shown(document)}",
            metadata={"knowledge_base": knowledge_base, "document": document},
        )


class ModelNotFound(KbmeshError):
    """The server has no model of this name."""

    reason = Reason.MODEL_NOT_FOUND

    def __init__(self, model: str, available: Sequence[str] = ()) -> None:
        names = ",".join(available)
        super().__init__(
            f"there is no model {shown(model)}; available: {names or 'none'}",
            metadata={"model": model, "available": names},
        )


class ModelMismatch(KbmeshError):
    """The model in use is not the one the vectors were made with. `expected` and `actual` are fingerprints."""

    reason = Reason.MODEL_MISMATCH

    def __init__(self, model: str, *, expected: str, actual: str) -> None:
        super().__init__(
            f"model {shown(model)} has the fingerprint {actual}, expected was {expected}",
            metadata={"model": model, "expected_fingerprint": expected, "actual_fingerprint": actual},
        )


class ModelNotReady(KbmeshError):
    """The model is still loading, or could not be loaded."""

    reason = Reason.MODEL_NOT_READY

    def __init__(self, model: str, message: str) -> None:
        super().__init__(message, metadata={"model": model})


class EmptyText(KbmeshError):
    """The text is blank."""

    reason = Reason.EMPTY_TEXT

    def __init__(self, field: str) -> None:
        super().__init__(
            f"{field}: the text is blank",
            metadata={"field": field},
            field_violations=(FieldViolation(field=field, description="the text is blank"),),
        )


class TextTooLong(KbmeshError):
    """The text is over the model's limit and the request forbids truncation."""

    reason = Reason.TEXT_TOO_LONG

    def __init__(self, *, tokens: int, limit: int) -> None:
        super().__init__(
            f"the text has {tokens} tokens, the limit is {limit}",
            metadata={"tokens": str(tokens), "limit": str(limit)},
        )


class InferenceFailed(KbmeshError):
    """The model gave no usable output (NaN, a zero vector, a failed run)."""

    reason = Reason.INFERENCE_FAILED

    def __init__(self, model: str, message: str) -> None:
        super().__init__(message, metadata={"model": model})


class QueueFull(KbmeshError):
    """The queue is full; come back after `retry_after_seconds`."""

    reason = Reason.QUEUE_FULL

    def __init__(self, *, queued_tokens: int, limit: int, retry_after_seconds: float) -> None:
        super().__init__(
            f"the queue holds {queued_tokens} tokens, the limit is {limit}",
            metadata={"queued_tokens": str(queued_tokens), "limit": str(limit)},
            retry_after_seconds=retry_after_seconds,
        )


class DeadlineExceeded(KbmeshError):
    """The deadline passed before the work was done. `stage` names where the call was."""

    reason = Reason.DEADLINE_EXCEEDED

    def __init__(self, stage: str) -> None:
        super().__init__(f"the deadline passed in {stage}", metadata={"stage": stage})


class Cancelled(KbmeshError):
    """The caller went away."""

    reason = Reason.CANCELLED

    def __init__(self) -> None:
        super().__init__("the caller went away")


class ShuttingDown(KbmeshError):
    """The server is draining and takes no new calls; another replica will."""

    reason = Reason.SHUTTING_DOWN

    def __init__(self) -> None:
        super().__init__("the server is shutting down; another replica takes the call")


class DependencyUnavailable(KbmeshError):
    """A service or store that the call needs did not answer. `cause` says why, where it is known; `errors.proto` names
    the values."""

    reason = Reason.DEPENDENCY_UNAVAILABLE

    def __init__(self, dependency: str, message: str, *, cause: str = "") -> None:
        super().__init__(message, metadata={"dependency": dependency} | ({"cause": cause} if cause else {}))


class DependencyInvalidResponse(KbmeshError):
    """A service or store that the call needs answered with something that cannot be used."""

    reason = Reason.DEPENDENCY_INVALID_RESPONSE

    def __init__(self, dependency: str, message: str) -> None:
        super().__init__(message, metadata={"dependency": dependency})


class UnsupportedMediaType(KbmeshError):
    """There is no reader for this kind of document."""

    reason = Reason.UNSUPPORTED_MEDIA_TYPE

    def __init__(self, media_type: str) -> None:
        super().__init__(f"there is no reader for {shown(media_type)}", metadata={"media_type": media_type})


class DocumentUnreadable(KbmeshError):
    """The document is broken or is not of the kind it says."""

    reason = Reason.DOCUMENT_UNREADABLE

    def __init__(self, media_type: str, message: str) -> None:
        super().__init__(message, metadata={"media_type": media_type})


class ContentLeftOut(KbmeshError):
    """Part of a document is on purpose not in its text. Only ever in warnings."""

    reason = Reason.CONTENT_LEFT_OUT

    def __init__(self, message: str, **metadata: str) -> None:
        super().__init__(message, metadata=metadata)


class DocumentEmpty(KbmeshError):
    """The document holds no text at all."""

    reason = Reason.DOCUMENT_EMPTY

    def __init__(self) -> None:
        super().__init__("the document holds no text")


class DocumentShrunk(KbmeshError):
    """Nothing or little is left of a document that was read again, and nobody said that it is meant."""

    reason = Reason.DOCUMENT_SHRUNK

    def __init__(self, *, before: int, now: int) -> None:
        super().__init__(
            f"the document had {before} characters and has {now} now; allow_shrink says that this is meant",
            metadata={"before": str(before), "now": str(now), "unit": "characters"},
        )


class JobNotFound(KbmeshError):
    """The knowledge base has no such ingestion job, or has forgotten it."""

    reason = Reason.JOB_NOT_FOUND

    def __init__(self, *, knowledge_base: str, job: str) -> None:
        super().__init__(
            f"there is no ingestion job {shown(job)} in {shown(knowledge_base)}; old ones are forgotten",
            metadata={"knowledge_base": knowledge_base, "job": job},
        )


class DocumentTooLarge(KbmeshError):
    """The document is larger than the server accepts. Sizes are in bytes."""

    reason = Reason.DOCUMENT_TOO_LARGE

    def __init__(self, *, limit: int, actual: int) -> None:
        super().__init__(
            f"the document has {actual} bytes, the limit is {limit}",
            metadata={"limit": str(limit), "actual": str(actual)},
        )


class RebuildNotFound(KbmeshError):
    """No rebuild of the knowledge base is under way."""

    reason = Reason.REBUILD_NOT_FOUND

    def __init__(self, name: str) -> None:
        super().__init__(f"no rebuild of knowledge base {shown(name)} is under way", metadata={"knowledge_base": name})


class RebuildIncomplete(KbmeshError):
    """Documents that readers find are not in the rebuild yet."""

    reason = Reason.REBUILD_INCOMPLETE

    def __init__(self, name: str, *, outstanding: int) -> None:
        super().__init__(
            f"documents of knowledge base {shown(name)} are not in its rebuild: {outstanding}",
            metadata={"knowledge_base": name, "outstanding": str(outstanding)},
        )


class ProfileNotFound(KbmeshError):
    """The tenant has no retrieval profile of that name."""

    reason = Reason.PROFILE_NOT_FOUND

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no retrieval profile {shown(name)}", metadata={"profile": name})


class ProfileAlreadyExists(KbmeshError):
    """The tenant has a retrieval profile of that name."""

    reason = Reason.PROFILE_ALREADY_EXISTS

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a retrieval profile {shown(name)} already", metadata={"profile": name})


class Conflict(KbmeshError):
    """Somebody else changed the thing meanwhile; read it again and retry."""

    reason = Reason.CONFLICT

    def __init__(self, resource: str, message: str) -> None:
        super().__init__(message, metadata={"resource": resource})


class FeatureUnsupported(KbmeshError):
    """The contract knows this option, this server does not serve it."""

    reason = Reason.FEATURE_UNSUPPORTED

    def __init__(self, feature: str) -> None:
        super().__init__(f"this server does not serve {feature}", metadata={"feature": feature})


class InternalError(KbmeshError):
    """A fault in kbmesh. The server's log has it in full under the request's id."""

    reason = Reason.INTERNAL

    def __init__(self, request_id: str) -> None:
        super().__init__(
            f"internal error; the log has it under request {request_id}", metadata={"request_id": request_id}
        )


_CLASSES: dict[Reason, type[KbmeshError]] = {cls.reason: cls for cls in KbmeshError.__subclasses__()}


def error_for(reason: Reason, message: str, metadata: Mapping[str, str]) -> KbmeshError:
    """The typed error of `reason`, rebuilt from what came over the wire."""
    return rebuild(reason, message, metadata, (), None)


def rebuild(
    reason: Reason,
    message: str,
    metadata: Mapping[str, str],
    field_violations: Sequence[FieldViolation],
    retry_after_seconds: float | None,
) -> KbmeshError:
    """Like `error_for`, with the parts that only a whole status carries."""
    cls = _CLASSES[reason]
    error = cls.__new__(cls)
    KbmeshError.__init__(
        error,
        message,
        metadata=metadata,
        field_violations=field_violations,
        retry_after_seconds=retry_after_seconds,
    )
    return error
