"""The reranker, put together from its settings."""

import asyncio
from collections.abc import Mapping
from functools import partial

import grpc
from kbmesh.reranker.v1.reranker_pb2 import DESCRIPTOR
from kbmesh.reranker.v1.reranker_pb2_grpc import add_RerankerServiceServicer_to_server
from kbmesh_onnx.batcher import QueueLimits
from kbmesh_onnx.folder import Kind
from kbmesh_onnx.load import LoadMeter
from kbmesh_rpc.channel import calling_certificates
from kbmesh_rpc.scaler.registrations import make_scaling
from kbmesh_rpc.server import Registration
from kbmesh_rpc.targets import is_loopback
from kbmesh_rpc.tei.info_servicer import InfoServicer
from kbmesh_rpc.tei.registrations import tei_registrations
from kbmesh_rpc.tei.tokenize_servicer import TokenizeServicer

from kbmesh_reranker.backends.port import RerankBackend
from kbmesh_reranker.metrics import call_metrics, model_metrics
from kbmesh_reranker.models import ModelRegistry
from kbmesh_reranker.relevance import CallLimits
from kbmesh_reranker.servicer import RerankerServicer
from kbmesh_reranker.settings import RerankerSettings
from kbmesh_reranker.tei import TeiModel
from kbmesh_reranker.tei_servicer import TeiRerankServicer, served_model

SERVICE_NAME = DESCRIPTOR.services_by_name["RerankerService"].full_name

TOKENIZE_STREAM_CONCURRENCY = 4

NEEDED_KINDS: Mapping[str, Kind | None] = {"auto": None, "onnx": "cross_encoder", "late_interaction": "encoder"}

REMOTE_BATCH_TOKENS = 100_000
"""By which the fill of a call to a vendor is measured, where no setting says how much one may hold."""


class RerankerApplication:
    """Loads the models when the server warms up, and closes them when it ends."""

    def __init__(self, models: ModelRegistry, settings: RerankerSettings, meter: LoadMeter | None = None) -> None:
        """`meter` is the one that the models' backends were opened with."""
        self._models = models
        self.condition = models.condition
        limits = CallLimits(
            query_characters=settings.max_query_characters,
            documents=settings.max_documents,
            document_characters=settings.max_document_characters,
        )
        servicer = RerankerServicer(models, limits=limits)

        def add(server: grpc.aio.Server) -> None:
            add_RerankerServiceServicer_to_server(servicer, server)

        tei = TeiModel(models, limits=limits)
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
                    "Rerank": TeiRerankServicer(tei, stream_bytes=settings.max_message_bytes),
                    "Tokenize": TokenizeServicer(tei, stream_concurrency=TOKENIZE_STREAM_CONCURRENCY),
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


async def make_application(settings: RerankerSettings) -> RerankerApplication:
    """The application that `settings` describe, its models not loaded yet."""
    meter = LoadMeter()
    return RerankerApplication(
        ModelRegistry(
            settings.model_names,
            partial(open_backend, settings, meter),
            retry_seconds=settings.load_retry_seconds,
            wanted_device=settings.require_device or settings.device,
        ),
        settings,
        meter,
    )


async def open_backend(settings: RerankerSettings, meter: LoadMeter, name: str) -> RerankBackend:
    """Loads one model. Raises ModelFolderError, DeviceUnavailable, and for one at a vendor's ApiKeyError and
    FeatureUnsupported."""
    return await asyncio.to_thread(_open_backend, settings, meter, name)


def _open_backend(settings: RerankerSettings, meter: LoadMeter, name: str) -> RerankBackend:
    limits = QueueLimits(
        queue_tokens=settings.queue_tokens,
        draw_tokens=settings.draw_tokens,
        batch_tokens=settings.batch_tokens,
        bulk_share=settings.bulk_share,
    )
    windows, call_windows = settings.max_windows, settings.max_call_windows
    remote = settings.remote_models.get(name)
    batch_tokens = settings.batch_tokens if remote is None else remote.batch_tokens or REMOTE_BATCH_TOKENS
    metrics = meter.observe(name, model_metrics(name, batch_tokens=batch_tokens))
    # Imported here, so that the one does not need what the others do.
    if remote is not None:
        from kbmesh_reranker.backends.remote_opening import open_remote

        return open_remote(
            name,
            remote,
            max_windows=windows,
            max_call_windows=call_windows,
            limits=limits,
            observer=metrics,
            calls=call_metrics(name),
        )

    if settings.backend == "fake":
        from kbmesh_reranker.backends.fake import FakeBackend

        return FakeBackend(name, max_windows=windows, max_call_windows=call_windows, limits=limits, observer=metrics)

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
        device_settings=settings.device_settings(name),
    )
    if model.card.kind == "cross_encoder":
        return CrossEncoderBackend(
            model, max_windows=windows, max_call_windows=call_windows, limits=limits, observer=metrics
        )
    return LateInteractionBackend(
        model, max_windows=windows, max_call_windows=call_windows, limits=limits, observer=metrics
    )
