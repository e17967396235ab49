"""Opening a model at a vendor's."""

import hashlib
import json
from collections.abc import Callable, Mapping

from kbmesh_onnx.batcher import BatchObserver, QueueLimits
from kbmesh_onnx.token_counter import open_counter
from kbmesh_rpc.provider.patience import CallObserver

from kbmesh_embedder.backends.port import ELSEWHERE, ModelDescription
from kbmesh_embedder.backends.provider_port import EmbeddingProvider
from kbmesh_embedder.backends.remote import RemoteBackend, VectorShape
from kbmesh_embedder.remote_settings import RemoteEmbeddingModel

Open = Callable[[str, RemoteEmbeddingModel], EmbeddingProvider]


def open_remote(
    name: str,
    settings: RemoteEmbeddingModel,
    *,
    limits: QueueLimits,
    observer: BatchObserver | None = None,
    calls: CallObserver | None = None,
) -> RemoteBackend:
    """The backend of a model at a vendor's; imports its SDK, and so blocks for seconds. Nothing is sent yet.

    Raises FeatureUnsupported where the SDK is not installed, ApiKeyError where there is no key, and ModelFolderError
    for a tokenizer that cannot be read.
    """
    key_source = settings.key_source(USUAL_KEYS[settings.provider])
    provider = _open_provider(name, settings)
    traits = provider.traits
    return RemoteBackend(
        provider,
        describe(name, settings),
        shape=VectorShape(dimension=settings.dimension, cut=settings.dimensions == "cut", normalize=settings.normalize),
        counter=open_counter(settings.tokenizer),
        key_source=key_source,
        patience=settings.patience,
        concurrency=settings.concurrency,
        batch_items=settings.batch_items or traits.batch_items,
        batch_tokens=settings.batch_tokens or traits.batch_tokens,
        limits=limits,
        observer=observer,
        calls=calls,
    )


USUAL_KEYS: Mapping[str, str] = {
    "openai": "OPENAI_API_KEY",
    "cohere": "CO_API_KEY",
    "huggingface": "HF_TOKEN",
    "litellm": "LITELLM_API_KEY",
}
"""Where each vendor's SDK looks for a key."""
ADDRESSES: Mapping[str, str] = {"openai": "https://api.openai.com/v1", "cohere": "https://api.cohere.com"}


def describe(name: str, settings: RemoteEmbeddingModel) -> ModelDescription:
    """What callers may know of it."""
    return ModelDescription(
        name=name,
        fingerprint=fingerprint(name, settings),
        dimension=settings.dimension,
        max_tokens=settings.max_tokens,
        pooling="unknown",
        normalized=settings.normalize,
        matryoshka_dimensions=tuple(sorted(settings.matryoshka_dimensions, reverse=True)),
        query_prefix=settings.query_prefix,
        document_prefix=settings.document_prefix,
        device=ELSEWHERE,
        precision="unknown",
        backend=settings.provider,
    )


def fingerprint(name: str, settings: RemoteEmbeddingModel) -> str:
    """A name for everything that a vector depends on and that is known here. That a vendor changes the model behind its
    name cannot be: that is what `revision` is for."""
    cohere = settings.provider == "cohere"
    parts = {
        "provider": settings.provider,
        "place": settings.place(ADDRESSES.get(settings.provider, "")),
        "model": settings.model or name,
        "revision": settings.revision,
        "dimension": settings.dimension,
        "dimensions": settings.dimensions,
        "normalize": settings.normalize,
        "query": [settings.query_prefix, _input_type(settings.query_input_type, "search_query" if cohere else "")],
        "document": [
            settings.document_prefix,
            _input_type(settings.document_input_type, "search_document" if cohere else ""),
        ],
    }
    return "remote-" + hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _input_type(told: str | None, usual: str) -> str:
    return usual if told is None else told


def _open_provider(name: str, settings: RemoteEmbeddingModel) -> EmbeddingProvider:
    # Imported here, so that the one does not need what the others do.
    if settings.provider == "cohere":
        from kbmesh_embedder.backends.cohere import CohereProvider

        return CohereProvider(name, settings)
    if settings.provider == "huggingface":
        from kbmesh_embedder.backends.huggingface import HuggingFaceProvider

        return HuggingFaceProvider(name, settings)
    from kbmesh_embedder.backends.openai import OpenAIProvider

    return OpenAIProvider(name, settings)
