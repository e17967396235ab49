"""The embedder, put together from its settings."""

import asyncio
from functools import partial

import grpc
from kbmesh.embedder.v1.embedder_pb2 import DESCRIPTOR
from kbmesh.embedder.v1.embedder_pb2_grpc import add_EmbedderServiceServicer_to_server
from kbmesh_onnx.batcher import QueueLimits
from kbmesh_onnx.load import LoadMeter
from kbmesh_rpc.channel import calling_certificates
from kbmesh_rpc.scaler.registrations import make_scaling
from kbmesh_rpc.server import Registration
from kbmesh_rpc.targets import is_loopback
from kbmesh_rpc.tei.info_servicer import InfoServicer
from kbmesh_rpc.tei.registrations import tei_registrations
from kbmesh_rpc.tei.tokenize_servicer import TokenizeServicer

from kbmesh_embedder.backends.port import EmbeddingBackend
from kbmesh_embedder.embedding import CallLimits
from kbmesh_embedder.metrics import call_metrics, model_metrics
from kbmesh_embedder.models import ModelRegistry
from kbmesh_embedder.servicer import EmbedderServicer
from kbmesh_embedder.settings import EmbedderSettings
from kbmesh_embedder.tei import TeiModel
from kbmesh_embedder.tei_servicer import TeiEmbedServicer, served_model

SERVICE_NAME = DESCRIPTOR.services_by_name["EmbedderService"].full_name

REMOTE_BATCH_TOKENS = 100_000
"""By which the fill of a call to a vendor is measured, where no setting says how much one may hold."""


class EmbedderApplication:
    """Loads the models when the server warms up, and closes them when it ends."""

    def __init__(self, models: ModelRegistry, settings: EmbedderSettings, meter: LoadMeter | None = None) -> None:
        """`meter` is the one that the models' backends were opened with."""
        self._models = models
        self.condition = models.condition
        servicer = EmbedderServicer(
            models,
            limits=CallLimits(
                texts=settings.max_texts,
                text_characters=settings.max_text_characters,
                answer_bytes=settings.max_message_bytes,
            ),
            stream_concurrency=settings.stream_concurrency,
        )

        def add(server: grpc.aio.Server) -> None:
            add_EmbedderServiceServicer_to_server(servicer, server)

        tei = TeiModel(models, text_characters=settings.max_text_characters)
        self._scaling = make_scaling(
            (meter or LoadMeter()).loads,
            peers=settings.scaler_peers,
            any_name=is_loopback(settings.host) and not settings.scaler_peers,
            timeout_seconds=settings.scaler_timeout_seconds,
            certificates=calling_certificates(settings),
        )
        self.registrations = (
            Registration(name=SERVICE_NAME, add=add),
            *tei_registrations(
                {
                    "Info": InfoServicer(partial(served_model, tei, settings)),
                    "Embed": TeiEmbedServicer(tei, stream_concurrency=settings.stream_concurrency),
                    "Tokenize": TokenizeServicer(tei, stream_concurrency=settings.stream_concurrency),
                }
            ),
            *self._scaling.registrations,
        )

    async def warm_up(self) -> None:
        """Loads every model and runs it. Raises where one cannot be loaded and is not to be tried again."""
        await self._models.load()

    async def close(self) -> None:
        """Closes the models."""
        await self._scaling.close()
        await self._models.close()


async def make_application(settings: EmbedderSettings) -> EmbedderApplication:
    """The application that `settings` describe, its models not loaded yet."""
    meter = LoadMeter()
    return EmbedderApplication(
        ModelRegistry(
            settings.model_names,
            partial(open_backend, settings, meter),
            retry_seconds=settings.load_retry_seconds,
            wanted_device=settings.require_device or settings.device,
        ),
        settings,
        meter,
    )


async def open_backend(settings: EmbedderSettings, meter: LoadMeter, name: str) -> EmbeddingBackend:
    """Loads one model. Raises ModelFolderError, DeviceUnavailable, and for one at a vendor's ApiKeyError and
    FeatureUnsupported."""
    limits = QueueLimits(
        queue_tokens=settings.queue_tokens,
        draw_tokens=settings.draw_tokens,
        batch_tokens=settings.batch_tokens,
        bulk_share=settings.bulk_share,
    )
    remote = settings.remote_models.get(name)
    batch_tokens = settings.batch_tokens if remote is None else remote.batch_tokens or REMOTE_BATCH_TOKENS
    metrics = meter.observe(name, model_metrics(name, batch_tokens=batch_tokens))
    # Imported here, so that the one does not need what the other does.
    if remote is not None:
        from kbmesh_embedder.backends.remote_opening import open_remote

        return await asyncio.to_thread(
            open_remote, name, remote, limits=limits, observer=metrics, calls=call_metrics(name)
        )

    if settings.backend == "fake":
        from kbmesh_embedder.backends.fake import FakeBackend

        return FakeBackend(name, limits=limits, observer=metrics)

    from kbmesh_embedder.backends.onnx import OnnxBackend

    return await asyncio.to_thread(
        OnnxBackend.open,
        name,
        settings.models_folder / name,
        device=settings.device,
        require_device=settings.require_device,
        threads=settings.threads,
        limits=limits,
        observer=metrics,
        device_settings=settings.device_settings(name),
    )
