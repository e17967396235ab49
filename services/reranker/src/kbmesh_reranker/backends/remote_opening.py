"""Opening a model at a vendor's."""

import hashlib
import json

from kbmesh_onnx.batcher import BatchObserver, QueueLimits
from kbmesh_onnx.token_counter import open_counter
from kbmesh_rpc.provider.patience import CallObserver

from kbmesh_reranker.backends.port import ELSEWHERE, Method, ModelDescription
from kbmesh_reranker.backends.remote import RemoteBackend
from kbmesh_reranker.remote_settings import RemoteRerankModel

USUAL_KEY = "CO_API_KEY"
"""Where Cohere's SDK looks for a key."""


def open_remote(
    name: str,
    settings: RemoteRerankModel,
    *,
    max_windows: int,
    max_call_windows: int,
    limits: QueueLimits,
    observer: BatchObserver | None = None,
    calls: CallObserver | None = None,
) -> RemoteBackend:
    """The backend of a model at a vendor's; imports its SDK, and so blocks for seconds. Nothing is sent yet.

    Raises FeatureUnsupported where the SDK is not installed, ApiKeyError where there is no key, and ModelFolderError
    for a tokenizer that cannot be read.
    """
    from kbmesh_reranker.backends.cohere import CohereProvider

    provider = CohereProvider(name, settings)
    return RemoteBackend(
        provider,
        describe(name, settings),
        counter=open_counter(settings.tokenizer),
        key_source=settings.key_source(USUAL_KEY),
        patience=settings.patience,
        concurrency=settings.concurrency,
        batch_items=settings.batch_items or provider.traits.batch_items,
        batch_tokens=settings.batch_tokens or provider.traits.batch_tokens,
        max_windows=max_windows,
        max_call_windows=max_call_windows,
        limits=limits,
        observer=observer,
        calls=calls,
    )


def describe(name: str, settings: RemoteRerankModel) -> ModelDescription:
    """What callers may know of it."""
    parts = {
        "provider": settings.provider,
        "place": settings.place("https://api.cohere.com"),
        "model": settings.model or name,
        "revision": settings.revision,
        "max_tokens": settings.max_tokens,
    }
    return ModelDescription(
        name=name,
        fingerprint="remote-" + hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest(),
        method=Method.CROSS_ENCODER,
        max_tokens=settings.max_tokens,
        device=ELSEWHERE,
        precision="unknown",
        backend=settings.provider,
    )
