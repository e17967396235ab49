"""Errors of the SDK. One tree; every error is a KbmeshError.

KbmeshError
├── InvalidRequest        INVALID_FIELD, REQUEST_TOO_LARGE, EMPTY_TEXT, TEXT_TOO_LONG
│   └── DocumentRejected  UNSUPPORTED_MEDIA_TYPE, DOCUMENT_UNREADABLE, DOCUMENT_EMPTY, DOCUMENT_TOO_LARGE,
│                         DOCUMENT_SHRUNK
├── AccessDenied          UNAUTHENTICATED, PERMISSION_DENIED
├── NotFound
│   ├── KnowledgeBaseNotFound
│   ├── DocumentNotFound
│   ├── JobNotFound
│   ├── RebuildNotFound
│   ├── ProfileNotFound
│   └── ModelNotFound
├── KnowledgeBaseAlreadyExists, ProfileAlreadyExists
├── Conflict              CONFLICT
├── RebuildIncomplete     REBUILD_INCOMPLETE
├── ModelMismatch         MODEL_MISMATCH
├── Overloaded            QUEUE_FULL; `retry_after_seconds` tells when to come back
├── DeadlineExceeded      DEADLINE_EXCEEDED
├── Cancelled             CANCELLED
├── ServiceUnavailable    nobody answers; SHUTTING_DOWN, MODEL_NOT_READY, DEPENDENCY_UNAVAILABLE
├── FeatureUnsupported    FEATURE_UNSUPPORTED
└── ServerFault           INTERNAL, INFERENCE_FAILED, DEPENDENCY_INVALID_RESPONSE, and what is not known
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import grpc


@dataclass(frozen=True, kw_only=True)
class FieldViolation:
    """A field of the request that is wrong, and how."""

    field: str
    description: str


@dataclass(frozen=True, kw_only=True)
class ErrorDetails:
    """What an error carries besides its message."""

    reason: str
    """Name of the ErrorReason without its prefix, such as "KNOWLEDGE_BASE_NOT_FOUND"."""
    code: grpc.StatusCode
    """The gRPC status code it came with."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """The keys that the reason's comment in errors.proto names."""
    field_violations: tuple[FieldViolation, ...] = ()
    """Fields of the request that are wrong."""
    retry_after_seconds: float | None = None
    """When to come back, where the server says so."""
    request_id: str = ""
    """The request's id, to look up in logs and traces."""


class KbmeshError(Exception):
    """A call failed. `reason` tells a machine why, `message` a person."""

    def __init__(self, message: str, details: ErrorDetails) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    @property
    def reason(self) -> str:
        """Name of the ErrorReason without its prefix."""
        return self.details.reason

    @property
    def code(self) -> grpc.StatusCode:
        """The gRPC status code."""
        return self.details.code

    @property
    def metadata(self) -> Mapping[str, str]:
        """The keys that the reason's comment in errors.proto names."""
        return self.details.metadata

    @property
    def field_violations(self) -> tuple[FieldViolation, ...]:
        """Fields of the request that are wrong."""
        return self.details.field_violations

    @property
    def retry_after_seconds(self) -> float | None:
        """When to come back, where the server says so."""
        return self.details.retry_after_seconds

    @property
    def request_id(self) -> str:
        """The request's id, to look up in logs and traces."""
        return self.details.request_id

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"

    def __reduce__(self) -> tuple[type["KbmeshError"], tuple[str, ErrorDetails]]:
        return type(self), (self.message, self.details)


class InvalidRequest(KbmeshError):
    """The request cannot be served as it is. `field_violations` names the fields."""


class DocumentRejected(InvalidRequest):
    """The document cannot be read, is empty, is too large, is of an unknown kind or has lost most of its text."""


class AccessDenied(KbmeshError):
    """The caller is not known, or may not do this."""


class NotFound(KbmeshError):
    """What the request names is not there."""


class KnowledgeBaseNotFound(NotFound):
    """The tenant has no such knowledge base."""


class DocumentNotFound(NotFound):
    """The knowledge base has no such document."""


class RebuildNotFound(NotFound):
    """No rebuild of the knowledge base is under way."""


class ProfileNotFound(NotFound):
    """The tenant has no such retrieval profile."""


class ProfileAlreadyExists(KbmeshError):
    """The tenant has a retrieval profile of that name."""


class RebuildIncomplete(KbmeshError):
    """Documents that readers find are not in the rebuild yet."""


class JobNotFound(NotFound):
    """The knowledge base has no such ingestion job, or has forgotten it."""


class ModelNotFound(NotFound):
    """The server has no such model. `metadata["available"]` names those it has."""


class KnowledgeBaseAlreadyExists(KbmeshError):
    """The tenant has a knowledge base of this name."""


class Conflict(KbmeshError):
    """Somebody else changed the thing meanwhile; read it again and retry."""


class ModelMismatch(KbmeshError):
    """The model in use is not the one the vectors were made with."""


class Overloaded(KbmeshError):
    """The server's queue is full."""


class DeadlineExceeded(KbmeshError):
    """The deadline passed before the work was done."""


class Cancelled(KbmeshError):
    """The call was cancelled."""


class ServiceUnavailable(KbmeshError):
    """The server, or something it needs, does not answer. Worth trying again."""


class FeatureUnsupported(KbmeshError):
    """The contract knows this option, the server does not serve it."""


class ServerFault(KbmeshError):
    """A fault in kbmesh. `request_id` finds it in the server's log."""


BY_REASON: Mapping[str, type[KbmeshError]] = {
    "INVALID_FIELD": InvalidRequest,
    "REQUEST_TOO_LARGE": InvalidRequest,
    "EMPTY_TEXT": InvalidRequest,
    "TEXT_TOO_LONG": InvalidRequest,
    "UNSUPPORTED_MEDIA_TYPE": DocumentRejected,
    "DOCUMENT_UNREADABLE": DocumentRejected,
    "DOCUMENT_EMPTY": DocumentRejected,
    "DOCUMENT_TOO_LARGE": DocumentRejected,
    "CONTENT_LEFT_OUT": DocumentRejected,
    "DOCUMENT_SHRUNK": DocumentRejected,
    "UNAUTHENTICATED": AccessDenied,
    "PERMISSION_DENIED": AccessDenied,
    "KNOWLEDGE_BASE_NOT_FOUND": KnowledgeBaseNotFound,
    "DOCUMENT_NOT_FOUND": DocumentNotFound,
    "JOB_NOT_FOUND": JobNotFound,
    "REBUILD_NOT_FOUND": RebuildNotFound,
    "REBUILD_INCOMPLETE": RebuildIncomplete,
    "PROFILE_NOT_FOUND": ProfileNotFound,
    "PROFILE_ALREADY_EXISTS": ProfileAlreadyExists,
    "MODEL_NOT_FOUND": ModelNotFound,
    "KNOWLEDGE_BASE_ALREADY_EXISTS": KnowledgeBaseAlreadyExists,
    "CONFLICT": Conflict,
    "MODEL_MISMATCH": ModelMismatch,
    "QUEUE_FULL": Overloaded,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "CANCELLED": Cancelled,
    "SHUTTING_DOWN": ServiceUnavailable,
    "MODEL_NOT_READY": ServiceUnavailable,
    "DEPENDENCY_UNAVAILABLE": ServiceUnavailable,
    "FEATURE_UNSUPPORTED": FeatureUnsupported,
    "INTERNAL": ServerFault,
    "INFERENCE_FAILED": ServerFault,
    "DEPENDENCY_INVALID_RESPONSE": ServerFault,
}

BY_CODE: Mapping[grpc.StatusCode, tuple[type[KbmeshError], str]] = {
    grpc.StatusCode.INVALID_ARGUMENT: (InvalidRequest, "INVALID_FIELD"),
    grpc.StatusCode.OUT_OF_RANGE: (InvalidRequest, "INVALID_FIELD"),
    grpc.StatusCode.UNAUTHENTICATED: (AccessDenied, "UNAUTHENTICATED"),
    grpc.StatusCode.PERMISSION_DENIED: (AccessDenied, "PERMISSION_DENIED"),
    grpc.StatusCode.NOT_FOUND: (NotFound, "UNSPECIFIED"),
    grpc.StatusCode.ABORTED: (Conflict, "CONFLICT"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (Overloaded, "QUEUE_FULL"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (DeadlineExceeded, "DEADLINE_EXCEEDED"),
    grpc.StatusCode.CANCELLED: (Cancelled, "CANCELLED"),
    grpc.StatusCode.UNAVAILABLE: (ServiceUnavailable, "DEPENDENCY_UNAVAILABLE"),
    grpc.StatusCode.UNIMPLEMENTED: (FeatureUnsupported, "FEATURE_UNSUPPORTED"),
}
"""Where an error carries no kbmesh reason: a proxy's, gRPC's own, or another server's."""
