"""Models at vendors' for tests: one for each provider, at a server of our own."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec

import pytest
from kbmesh_embedder.backends.port import EmbeddingBackend, Embeddings, InputType, Priority, Truncation
from kbmesh_embedder.backends.remote import RemoteBackend
from kbmesh_embedder.backends.remote_opening import open_remote
from kbmesh_embedder.remote_settings import RemoteEmbeddingModel
from kbmesh_onnx.batcher import BatchObserver, QueueLimits
from kbmesh_rpc.provider.patience import CallObserver
from provider_server import DIMENSION, KEY, MAX_TOKENS, MODEL, ProviderServer

SDKS = {"openai": "openai", "litellm": "openai", "cohere": "cohere", "huggingface": "huggingface_hub"}
PROVIDERS = tuple(SDKS)
PATHS = {"openai": "/v1", "litellm": "/v1", "cohere": "", "huggingface": "/endpoint"}
KEY_ENV = "KBMESH_TEST_PROVIDER_KEY"


def needs_sdk(provider: str) -> None:
    """Skips the test where the provider's SDK is not installed."""
    if find_spec(SDKS[provider]) is None:
        pytest.skip(f"needs {SDKS[provider]}, which is not installed; `make test` installs it")


def remote_settings(provider: str, server: ProviderServer, **changes: object) -> RemoteEmbeddingModel:
    """What the embedder is told of the server's model."""
    needs_sdk(provider)
    told: dict[str, object] = {
        "provider": provider,
        "model": MODEL,
        "base_url": server.url + PATHS[provider],
        "api_key_env": KEY_ENV,
        "dimension": DIMENSION,
        "max_tokens": MAX_TOKENS,
        "matryoshka_dimensions": (4,),
        "timeout_seconds": 5.0,
    }
    if provider in {"openai", "litellm"}:
        told["overlong"] = "refused"
    return RemoteEmbeddingModel.model_validate(told | changes)


@asynccontextmanager
async def remote_backend(
    provider: str,
    server: ProviderServer,
    *,
    limits: QueueLimits | None = None,
    observer: BatchObserver | None = None,
    calls: CallObserver | None = None,
    **changes: object,
) -> AsyncIterator[RemoteBackend]:
    """The backend of the server's model. KEY_ENV holds a key, as the fixture `provider_key` sees to."""
    settings = remote_settings(provider, server, **changes)
    backend = open_remote("remote", settings, limits=limits or QueueLimits(), observer=observer, calls=calls)
    try:
        yield backend
    finally:
        await backend.close()


async def embed(
    backend: EmbeddingBackend,
    texts: Sequence[str],
    *,
    input_type: InputType = InputType.DOCUMENT,
    truncation: Truncation = Truncation.END,
    priority: Priority = Priority.INTERACTIVE,
    deadline: float | None = None,
) -> Embeddings:
    """`backend.embed`, with what is usual."""
    return await backend.embed(
        texts, input_type=input_type, truncation=truncation, priority=priority, deadline=deadline
    )


__all__ = ["KEY", "KEY_ENV", "PROVIDERS", "SDKS", "embed", "needs_sdk", "remote_backend", "remote_settings"]
