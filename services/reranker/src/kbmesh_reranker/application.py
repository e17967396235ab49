"""The reranker, put together from its settings."""

import asyncio
from collections.abc import Mapping
from functools import partial

import grpc
from kbmesh.reranker.v1.reranker_pb2 import DESCRIPTOR
from kbmesh.reranker.v1.reranker_pb2_grpc import add_RerankerServiceServicer_to_server
from kbmesh_onnx.batcher import QueueLimits
from kbmesh_onnx.folder import Kind
from kbmesh_rpc.server import Registration

from kbmesh_reranker.backends.port import RerankBackend
from kbmesh_reranker.metrics import ModelMetrics
from kbmesh_reranker.models import ModelRegistry
from kbmesh_reranker.relevance import CallLimits
from kbmesh_reranker.servicer import RerankerServicer
from kbmesh_reranker.settings import RerankerSettings

SERVICE_NAME = DESCRIPTOR.services_by_name["RerankerService"].full_name

NEEDED_KINDS: Mapping[str, Kind | None] = {"auto": None, "onnx": "cross_encoder", "late_interaction": "encoder"}


class RerankerApplication:
    """Loads the models when the server warms up, and closes them when it ends."""

    def __init__(self, models: ModelRegistry, settings: RerankerSettings) -> None:
        self._models = models
        servicer = RerankerServicer(
            models,
            limits=CallLimits(
                query_characters=settings.max_query_characters,
                documents=settings.max_documents,
                document_characters=settings.max_document_characters,
            ),
        )

        def add(server: grpc.aio.Server) -> None:
            add_RerankerServiceServicer_to_server(servicer, server)

        self.registrations = (Registration(name=SERVICE_NAME, add=add),)

    async def warm_up(self) -> None:
        """Loads every model and runs it. Raises where one cannot be loaded."""
        await self._models.load()

    async def close(self) -> None:
        """Closes the models."""
        await self._models.close()


async def make_application(settings: RerankerSettings) -> RerankerApplication:
    """The application that `settings` describe, its models not loaded yet."""
    return RerankerApplication(ModelRegistry(settings.model_names, partial(open_backend, settings)), settings)


async def open_backend(settings: RerankerSettings, name: str) -> RerankBackend:
    """Loads one model. Raises ModelFolderError and DeviceUnavailable."""
    return await asyncio.to_thread(_open_backend, settings, name)


def _open_backend(settings: RerankerSettings, name: str) -> RerankBackend:
    limits = QueueLimits(
        queue_tokens=settings.queue_tokens, draw_tokens=settings.draw_tokens, batch_tokens=settings.batch_tokens
    )
    metrics = ModelMetrics(name, batch_tokens=settings.batch_tokens)
    # Imported here, so that the one does not need what the others do.
    if settings.backend == "fake":
        from kbmesh_reranker.backends.fake import FakeBackend

        return FakeBackend(name, max_windows=settings.max_windows, limits=limits, observer=metrics)

    from kbmesh_reranker.backends.late_interaction import LateInteractionBackend
    from kbmesh_reranker.backends.model_folder import OpenModel
    from kbmesh_reranker.backends.onnx import CrossEncoderBackend

    model = OpenModel.open(
        name,
        settings.models_folder / name,
        kind=NEEDED_KINDS[settings.backend],
        device=settings.device,
        require_device=settings.require_device,
        threads=settings.threads,
    )
    if model.card.kind == "cross_encoder":
        return CrossEncoderBackend(model, max_windows=settings.max_windows, limits=limits, observer=metrics)
    return LateInteractionBackend(model, max_windows=settings.max_windows, limits=limits, observer=metrics)
