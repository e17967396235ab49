"""Puts the chunker together."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc
from kbmesh.chunker.v1 import chunker_pb2_grpc
from kbmesh_rpc.channel import calling_certificates
from kbmesh_rpc.server import Registration

from kbmesh_chunker.admission import Admission
from kbmesh_chunker.chunking import Chunker
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.reading_process import ReadingProcesses
from kbmesh_chunker.embedder import EmbedderClient
from kbmesh_chunker.language_model import ChatModel
from kbmesh_chunker.servicer import ChunkerServicer
from kbmesh_chunker.settings import ChunkerSettings
from kbmesh_chunker.strategies.port import Models

SERVICE = "kbmesh.chunker.v1.ChunkerService"


class ChunkerApplication:
    """The chunker's process: a pool of threads that cut, and the models that are asked."""

    def __init__(self, settings: ChunkerSettings) -> None:
        self._executor = ThreadPoolExecutor(settings.worker_threads, thread_name_prefix="chunk")
        self._embedder: EmbedderClient | None = None
        if settings.embedder_address:
            self._embedder = EmbedderClient.connect(
                settings.embedder_address,
                max_message_bytes=settings.max_message_bytes,
                certificates=calling_certificates(settings),
            )
        self._language_model: ChatModel | None = None
        if settings.llm_url:
            self._language_model = ChatModel(
                base_url=settings.llm_url,
                model=settings.llm_model,
                api_key=settings.llm_api_key.get_secret_value(),
                timeout_seconds=settings.llm_timeout_seconds,
                concurrency=settings.llm_concurrency,
            )
        limits = ReadingLimits(
            max_document_bytes=settings.max_document_bytes,
            max_text_bytes=settings.max_text_bytes,
            max_pages=settings.max_pages,
            max_seconds=settings.max_reading_seconds,
        )
        self._reader: ReadingProcesses | None = None
        if settings.reading_processes:
            self._reader = ReadingProcesses(
                limits=limits,
                processes=settings.reading_processes,
                memory_bytes=settings.max_reading_memory_bytes,
                executor=self._executor,
            )
        chunker = Chunker(
            limits=limits,
            counter=self._embedder,
            executor=self._executor,
            reader=self._reader,
            models=Models(embedder=self._embedder, language_model=self._language_model),
            admission=Admission(settings.max_waiting_bytes),
        )
        self._servicer = ChunkerServicer(chunker, max_message_bytes=settings.max_message_bytes)

    @classmethod
    async def make(cls, settings: ChunkerSettings) -> "ChunkerApplication":
        """Makes the application inside the event loop it will run in, as channels need one."""
        return cls(settings)

    @property
    def registrations(self) -> Sequence[Registration]:
        """The one service."""
        return (Registration(name=SERVICE, add=self._add),)

    def _add(self, server: grpc.aio.Server) -> None:
        chunker_pb2_grpc.add_ChunkerServiceServicer_to_server(self._servicer, server)

    async def warm_up(self) -> None:
        """Starts the processes in which documents are read. Raises DependencyUnavailable."""
        if self._reader is not None:
            await self._reader.start()

    async def close(self) -> None:
        """Ends the processes, the threads and the connections."""
        if self._reader is not None:
            await self._reader.close()
        if self._embedder is not None:
            await self._embedder.close()
        if self._language_model is not None:
            await self._language_model.close()
        self._executor.shutdown(wait=False, cancel_futures=True)
