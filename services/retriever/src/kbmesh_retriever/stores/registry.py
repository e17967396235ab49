"""Vector stores by name: those that kbmesh comes with, those that a program registers, those that a package brings."""

from collections.abc import Callable
from importlib.metadata import entry_points

from kbmesh_rpc.certificates import CertificateFiles, Certificates, certificates_at

from kbmesh_retriever.settings import RetrieverSettings
from kbmesh_retriever.stores.pinecone import PineconeStore
from kbmesh_retriever.stores.port import VectorStore
from kbmesh_retriever.stores.qdrant import QdrantStore

ENTRY_POINTS = "kbmesh.stores"
"""Group of the entry points that are store factories."""

StoreFactory = Callable[[RetrieverSettings], VectorStore]
"""Makes a store. Connects to nothing yet. May raise ValueError for settings that are wrong."""


def _qdrant(settings: RetrieverSettings) -> VectorStore:
    return QdrantStore.connect(
        settings.qdrant_url,
        api_key=settings.qdrant_api_key.get_secret_value() or None,
        timeout_seconds=settings.qdrant_timeout_seconds,
        expected_points=settings.qdrant_expected_points,
        filterable_metadata=[name.strip() for name in settings.qdrant_filterable_metadata.split(",") if name.strip()],
        certificates=_qdrant_certificates(settings),
    )


def _qdrant_certificates(settings: RetrieverSettings) -> Certificates | None:
    files = CertificateFiles(certificate=settings.qdrant_cert, key=settings.qdrant_key, authorities=settings.qdrant_ca)
    return certificates_at(files) if files.certificate or files.authorities else None


def _pinecone(settings: RetrieverSettings) -> VectorStore:
    if not settings.pinecone_api_key.get_secret_value():
        raise ValueError("the vector store pinecone needs pinecone_api_key")
    return PineconeStore.connect(
        settings.pinecone_api_key.get_secret_value(),
        host=settings.pinecone_host,
        index_prefix=settings.pinecone_index_prefix,
        cloud=settings.pinecone_cloud,
        region=settings.pinecone_region,
        timeout_seconds=settings.pinecone_timeout_seconds,
        visible_seconds=settings.pinecone_visible_seconds,
    )


_FACTORIES: dict[str, StoreFactory] = {"qdrant": _qdrant, "pinecone": _pinecone}


def register_store(name: str, factory: StoreFactory) -> None:
    """From now on `vector_store` may be `name`. Raises ValueError for a name that is taken."""
    if not name or name in _FACTORIES:
        raise ValueError(f"a vector store cannot be registered as {name!r}: it is empty or taken")
    _FACTORIES[name] = factory


def open_store(settings: RetrieverSettings) -> VectorStore:
    """The store that `settings.vector_store` names. Raises ValueError for a name that nobody brings, FeatureUnsupported
    where what it needs is not installed, and what its factory raises."""
    name = settings.vector_store
    factory = _FACTORIES.get(name)
    if factory is None:
        brought = entry_points(group=ENTRY_POINTS)
        if name not in brought.names:
            known = ", ".join(sorted({*_FACTORIES, *brought.names}))
            raise ValueError(f"there is no vector store {name!r}; known are {known}")
        factory = brought[name].load()
    return factory(settings)
