"""The synchronous client."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar, Unpack

import grpc
from google.protobuf.field_mask_pb2 import FieldMask
from kbmesh.chunker.v1 import chunker_pb2, chunker_pb2_grpc
from kbmesh.retriever.v1 import (
    ingestion_pb2,
    ingestion_pb2_grpc,
    knowledge_base_pb2,
    knowledge_base_pb2_grpc,
    profile_pb2,
    profile_pb2_grpc,
    retriever_pb2,
    retriever_pb2_grpc,
)

from kbmesh_client.channels import open_channel
from kbmesh_client.chunks import ChunkedDocument, ChunkingConfig
from kbmesh_client.connection import (
    DEFAULT_ENDPOINT,
    DEFAULT_TENANT,
    MAX_DOCUMENT_BYTES,
    MAX_MESSAGE_BYTES,
    Identity,
    channel_options,
    new_request_id,
    require_chunker_endpoint,
)
from kbmesh_client.documents import Document, IngestDocument, IngestResult
from kbmesh_client.enums import Distance, Placement
from kbmesh_client.errors import JobNotFound
from kbmesh_client.jobs import DoneDocuments, IngestJob, JobResult
from kbmesh_client.knowledge_bases import KnowledgeBase, RetrievalDefaults
from kbmesh_client.outgoing import OutgoingDocuments
from kbmesh_client.reconnection import RECONNECT_SECONDS, Reconnection
from kbmesh_client.retrieval import KnowledgeBasesLike, Profile, Retrieval, RetrievalOptions
from kbmesh_client.tls import TlsFiles
from kbmesh_client.wire.chunks import chunked_document_from_wire, config_to_wire, document_to_wire
from kbmesh_client.wire.documents import (
    document_from_wire,
    ingest_result_from_wire,
    job_from_wire,
    job_result_from_wire,
    options_request,
)
from kbmesh_client.wire.knowledge_bases import create_request, knowledge_base_from_wire, rebuild_request, update_request
from kbmesh_client.wire.options import profile_from_wire, profile_to_wire, retrieve_request
from kbmesh_client.wire.retrieval import retrieval_from_wire, stream_answer_from_wire
from kbmesh_client.wire.status import error_from_call

Request = TypeVar("Request")
Response = TypeVar("Response")


class KbmeshClient:
    """Talks to a kbmesh. Thread-safe; close it, or use it in a `with` block.

    Every method raises a `KbmeshError` where the call fails, and ValueError for an option that there is not.
    """

    def __init__(
        self,
        endpoint: str = DEFAULT_ENDPOINT,
        *,
        chunker_endpoint: str | None = None,
        tenant: str = DEFAULT_TENANT,
        principals: Sequence[str] = (),
        tls: TlsFiles | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        plaintext: bool = False,
        timeout_seconds: float = 10.0,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        max_document_bytes: int = MAX_DOCUMENT_BYTES,
    ) -> None:
        """Opens no connection yet.

        endpoint: host:port of the retriever, or a gRPC target such as "dns:///kbmesh-retriever:7400".
        chunker_endpoint: host:port of the chunker, which `chunk` needs. A mesh of `kbmesh up` has it at 127.0.0.1:7401.
        tenant, principals: who calls.
        tls: TLS by files, which may change meanwhile. Without it, and without credentials, plain text.
        credentials: TLS by gRPC's own object, which stays as it is.
        plaintext: whether plain text may go to another machine. It always may on this one.
        timeout_seconds: deadline of a call that names none. Ingestion has no deadline unless it names one.
        """
        self._endpoint = endpoint
        self._chunker_endpoint = chunker_endpoint
        self._identity = Identity(tenant=tenant, principals=tuple(principals))
        self._timeout_seconds = timeout_seconds
        self._max_document_bytes = max_document_bytes

        def open_to(target: str) -> grpc.Channel:
            options = channel_options(target, max_message_bytes)
            return open_channel(target, options, tls=tls, credentials=credentials, plaintext=plaintext)

        self._channel = open_to(endpoint)
        self._chunker_channel = open_to(chunker_endpoint) if chunker_endpoint else self._channel
        self._knowledge_bases = knowledge_base_pb2_grpc.KnowledgeBaseServiceStub(self._channel)
        self._ingestion = ingestion_pb2_grpc.IngestionServiceStub(self._channel)
        self._profiles = profile_pb2_grpc.ProfileServiceStub(self._channel)
        self._retriever = retriever_pb2_grpc.RetrieverServiceStub(self._channel)
        self._chunker = chunker_pb2_grpc.ChunkerServiceStub(self._chunker_channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends calls in flight and closes the connections."""
        self._channel.close()
        if self._chunker_channel is not self._channel:
            self._chunker_channel.close()

    # Knowledge bases

    def create_knowledge_base(
        self,
        name: str,
        *,
        description: str = "",
        chunking: ChunkingConfig | None = None,
        embedding_model: str = "",
        placement: Placement | str = Placement.DEDICATED,
        retrieval: RetrievalDefaults | None = None,
        readers: Sequence[str] = (),
        distance: Distance | str = Distance.COSINE,
        timeout_seconds: float | None = None,
    ) -> KnowledgeBase:
        """Makes a knowledge base. The embedder's default model is used where none is named.

        readers: principals who may retrieve from it; everybody of the tenant where none is named.
        """
        request = create_request(
            name,
            description=description,
            chunking=chunking,
            embedding_model=embedding_model,
            placement=placement,
            retrieval=retrieval,
            readers=readers,
            distance=distance,
        )
        response = self._call(self._knowledge_bases.CreateKnowledgeBase, request, timeout_seconds)
        return knowledge_base_from_wire(response.knowledge_base)

    def get_knowledge_base(self, name: str, *, timeout_seconds: float | None = None) -> KnowledgeBase:
        """Reads a knowledge base by name or id."""
        request = knowledge_base_pb2.GetKnowledgeBaseRequest(knowledge_base=name)
        response = self._call(self._knowledge_bases.GetKnowledgeBase, request, timeout_seconds)
        return knowledge_base_from_wire(response.knowledge_base)

    def list_knowledge_bases(
        self, *, page_size: int = 100, timeout_seconds: float | None = None
    ) -> Iterator[KnowledgeBase]:
        """Reads all knowledge bases by name, page after page. The deadline is for each page."""
        page_token = ""
        while True:
            request = knowledge_base_pb2.ListKnowledgeBasesRequest(page_size=page_size, page_token=page_token)
            response = self._call(self._knowledge_bases.ListKnowledgeBases, request, timeout_seconds)
            yield from map(knowledge_base_from_wire, response.knowledge_bases)
            page_token = response.next_page_token
            if not page_token:
                return

    def update_knowledge_base(
        self,
        name: str,
        *,
        description: str | None = None,
        retrieval: RetrievalDefaults | None = None,
        readers: Sequence[str] | None = None,
        timeout_seconds: float | None = None,
    ) -> KnowledgeBase:
        """Changes what is given; what is None stays. Readers that are empty open it to everybody of the tenant."""
        request = update_request(name, description=description, retrieval=retrieval, readers=readers)
        response = self._call(self._knowledge_bases.UpdateKnowledgeBase, request, timeout_seconds)
        return knowledge_base_from_wire(response.knowledge_base)

    def rebuild_knowledge_base(
        self,
        name: str,
        *,
        chunking: ChunkingConfig | None = None,
        embedding_model: str = "",
        placement: Placement | str | None = None,
        timeout_seconds: float | None = None,
    ) -> KnowledgeBase:
        """Begins a rebuild, or goes on with the one that has these settings. What is not given stays as it is.

        Until `finish_rebuild` readers find the knowledge base as it is. Send every document again, by `ingest` with
        `into_rebuild`; `rebuild` of the answer, and of `get_knowledge_base`, tells how far it is.
        """
        request = rebuild_request(name, chunking=chunking, embedding_model=embedding_model, placement=placement)
        response = self._call(self._knowledge_bases.UpdateKnowledgeBase, request, timeout_seconds)
        return knowledge_base_from_wire(response.knowledge_base)

    def finish_rebuild(
        self, name: str, *, drop_outstanding: bool = False, timeout_seconds: float | None = None
    ) -> tuple[KnowledgeBase, int]:
        """Puts the rebuild in the knowledge base's place, at once for every reader.

        Gives what the knowledge base is now, and how many documents were dropped. Raises RebuildIncomplete while
        documents are outstanding, unless `drop_outstanding` says that they may go, and RebuildNotFound.
        """
        request = knowledge_base_pb2.FinishRebuildRequest(knowledge_base=name, drop_outstanding=drop_outstanding)
        response = self._call(self._knowledge_bases.FinishRebuild, request, timeout_seconds)
        return knowledge_base_from_wire(response.knowledge_base), response.documents_dropped

    def cancel_rebuild(self, name: str, *, timeout_seconds: float | None = None) -> None:
        """Gives a rebuild up; readers notice nothing. Raises RebuildNotFound."""
        request = knowledge_base_pb2.CancelRebuildRequest(knowledge_base=name)
        self._call(self._knowledge_bases.CancelRebuild, request, timeout_seconds)

    def delete_knowledge_base(self, name: str, *, timeout_seconds: float | None = None) -> int:
        """Removes a knowledge base with all its documents. Gives how many went with it."""
        request = knowledge_base_pb2.DeleteKnowledgeBaseRequest(knowledge_base=name)
        return self._call(self._knowledge_bases.DeleteKnowledgeBase, request, timeout_seconds).documents_deleted

    # Documents

    def ingest(
        self,
        knowledge_base: str,
        documents: Iterable[IngestDocument],
        *,
        concurrency: int = 0,
        job_id: str = "",
        allow_shrink: bool = False,
        into_rebuild: bool = False,
        reconnect_seconds: float = RECONNECT_SECONDS,
        timeout_seconds: float | None = None,
    ) -> Iterator[IngestResult]:
        """Takes documents in and gives a result for each, in the order in which they are done.

        Documents are read from `documents` only as fast as the server takes them, so millions fit in little memory.
        One that fails, or is too large to be sent, fails alone in its result. What `documents` raises is raised
        here, after the results of those before it. The call runs while results are read; leaving the loop ends it.

        concurrency: documents the server works on at once; its own choice when 0, at most 256.
        job_id: keeps the results under this name. Called again with it and the same documents, what was taken in before
        and has the same content is not sent again; its result is `resumed`.
        allow_shrink: it is meant that nothing or little is left of documents: no DOCUMENT_SHRUNK.
        into_rebuild: the documents go into the rebuild of the knowledge base that is under way.
        reconnect_seconds: where the server goes away once it has answered, what has no result is sent again over a new
        connection; for so long without a result, then it raises. What had gone in before is then told as UNCHANGED.
        """
        done = DoneDocuments()
        if job_id:
            with suppress(JobNotFound):
                done = DoneDocuments(self.list_job_results(knowledge_base, job_id, into_rebuild=into_rebuild))
        outgoing = OutgoingDocuments(max_document_bytes=self._max_document_bytes, done=done)
        reconnecting = Reconnection(seconds=reconnect_seconds)
        request_id = new_request_id()
        ends = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        given = iter(documents)

        def requests(stream: int) -> Iterator[ingestion_pb2.IngestRequest]:
            yield options_request(
                knowledge_base,
                concurrency=concurrency,
                job_id=job_id,
                allow_shrink=allow_shrink,
                into_rebuild=into_rebuild,
            )
            yield from outgoing.messages(given, stream)

        while True:
            left = None if ends is None else max(0.0, ends - time.monotonic())
            call = self._ingestion.Ingest(
                requests(outgoing.begin_stream()), timeout=left, metadata=self._identity.metadata(request_id)
            )
            try:
                for response in call:
                    yield from outgoing.take_unsent()
                    outgoing.answered(response.external_id)
                    reconnecting.answered()
                    yield ingest_result_from_wire(response)
            except grpc.RpcError as error:
                found = error_from_call(error, endpoint=self._endpoint, request_id=request_id)
                wait = reconnecting.wait_after(found)
                if wait is None:
                    outgoing.raise_kept_error()
                    raise found from error
                time.sleep(wait)
            else:
                break
            finally:
                call.cancel()
        yield from outgoing.take_unsent()
        outgoing.raise_kept_error()

    def get_document(self, knowledge_base: str, document: str, *, timeout_seconds: float | None = None) -> Document:
        """Reads what is known of a document, by id or external id."""
        request = ingestion_pb2.GetDocumentRequest(knowledge_base=knowledge_base, document=document)
        return document_from_wire(self._call(self._ingestion.GetDocument, request, timeout_seconds).document)

    def list_documents(
        self, knowledge_base: str, *, page_size: int = 100, timeout_seconds: float | None = None
    ) -> Iterator[Document]:
        """Reads what is known of all documents by external id, page after page. The deadline is for each page."""
        page_token = ""
        while True:
            request = ingestion_pb2.ListDocumentsRequest(
                knowledge_base=knowledge_base, page_size=page_size, page_token=page_token
            )
            response = self._call(self._ingestion.ListDocuments, request, timeout_seconds)
            yield from map(document_from_wire, response.documents)
            page_token = response.next_page_token
            if not page_token:
                return

    def get_job(self, knowledge_base: str, job_id: str, *, timeout_seconds: float | None = None) -> IngestJob:
        """Reads how far an ingestion has come."""
        request = ingestion_pb2.GetJobRequest(knowledge_base=knowledge_base, job_id=job_id)
        return job_from_wire(self._call(self._ingestion.GetJob, request, timeout_seconds).job)

    def list_jobs(
        self, knowledge_base: str, *, page_size: int = 100, timeout_seconds: float | None = None
    ) -> Iterator[IngestJob]:
        """Reads the jobs that are still remembered, by id, page after page. The deadline is for each page."""
        page_token = ""
        while True:
            request = ingestion_pb2.ListJobsRequest(
                knowledge_base=knowledge_base, page_size=page_size, page_token=page_token
            )
            response = self._call(self._ingestion.ListJobs, request, timeout_seconds)
            yield from map(job_from_wire, response.jobs)
            page_token = response.next_page_token
            if not page_token:
                return

    def list_job_results(
        self,
        knowledge_base: str,
        job_id: str,
        *,
        page_size: int = 1000,
        into_rebuild: bool = False,
        timeout_seconds: float | None = None,
    ) -> Iterator[JobResult]:
        """Reads what became of a job's documents, page after page. The deadline is for each page.

        into_rebuild: `content_sha256` tells what the rebuild of the knowledge base has, in place of what readers find.
        """
        page_token = ""
        while True:
            request = ingestion_pb2.ListJobResultsRequest(
                knowledge_base=knowledge_base,
                job_id=job_id,
                page_size=page_size,
                page_token=page_token,
                into_rebuild=into_rebuild,
            )
            response = self._call(self._ingestion.ListJobResults, request, timeout_seconds)
            yield from map(job_result_from_wire, response.results)
            page_token = response.next_page_token
            if not page_token:
                return

    def delete_document(self, knowledge_base: str, document: str, *, timeout_seconds: float | None = None) -> int:
        """Removes a document by id or external id. Gives how many chunks went with it."""
        request = ingestion_pb2.DeleteDocumentRequest(knowledge_base=knowledge_base, document=document)
        return self._call(self._ingestion.DeleteDocument, request, timeout_seconds).chunks_deleted

    # Profiles

    def create_profile(
        self,
        name: str,
        knowledge_bases: KnowledgeBasesLike = (),
        *,
        description: str = "",
        timeout_seconds: float | None = None,
        **options: Unpack[RetrievalOptions],
    ) -> Profile:
        """Keeps how an agent asks: where, and how (by the names of `RetrievalOptions`). Knowledge bases need not exist
        yet. Raises ProfileAlreadyExists."""
        request = profile_pb2.CreateProfileRequest(profile=profile_to_wire(name, description, knowledge_bases, options))
        response = self._call(self._profiles.CreateProfile, request, timeout_seconds)
        return profile_from_wire(response.profile)

    def get_profile(self, name: str, *, timeout_seconds: float | None = None) -> Profile:
        """Reads a profile. Raises ProfileNotFound."""
        request = profile_pb2.GetProfileRequest(name=name)
        response = self._call(self._profiles.GetProfile, request, timeout_seconds)
        return profile_from_wire(response.profile)

    def list_profiles(self, *, page_size: int = 100, timeout_seconds: float | None = None) -> Iterator[Profile]:
        """Reads all profiles by name, page after page. The deadline is for each page."""
        page_token = ""
        while True:
            request = profile_pb2.ListProfilesRequest(page_size=page_size, page_token=page_token)
            response = self._call(self._profiles.ListProfiles, request, timeout_seconds)
            yield from map(profile_from_wire, response.profiles)
            page_token = response.next_page_token
            if not page_token:
                return

    def update_profile(
        self,
        name: str,
        knowledge_bases: KnowledgeBasesLike | None = None,
        *,
        description: str | None = None,
        timeout_seconds: float | None = None,
        **options: Unpack[RetrievalOptions],
    ) -> Profile:
        """Changes the description where one is given. Knowledge bases and options are kept together: where any of them
        is given, these take the place of all there were. Raises ProfileNotFound."""
        paths = ["description"] if description is not None else []
        if knowledge_bases is not None or options:
            paths.append("defaults")
        request = profile_pb2.UpdateProfileRequest(
            profile=profile_to_wire(name, description or "", knowledge_bases or (), options),
            update_mask=FieldMask(paths=paths),
        )
        if not paths:
            return self.get_profile(name, timeout_seconds=timeout_seconds)
        response = self._call(self._profiles.UpdateProfile, request, timeout_seconds)
        return profile_from_wire(response.profile)

    def delete_profile(self, name: str, *, timeout_seconds: float | None = None) -> None:
        """Removes a profile. Raises ProfileNotFound."""
        self._call(self._profiles.DeleteProfile, profile_pb2.DeleteProfileRequest(name=name), timeout_seconds)

    # Retrieval

    def retrieve(
        self,
        query: str,
        knowledge_bases: KnowledgeBasesLike = (),
        *,
        profile: str = "",
        explain: bool = False,
        skip_cache: bool = False,
        timeout_seconds: float | None = None,
        **options: Unpack[RetrievalOptions],
    ) -> Retrieval:
        """Finds the fragments that answer the query, ranked and attributed.

        knowledge_bases: where to look: a name, a selector, or several of either.
        profile: name of an agent's retrieval profile, whose word holds wherever this call says nothing.
        explain: returns what each stage saw.
        skip_cache: computes the answer even where it is kept from an earlier call.
        options: how to look, by the names of `RetrievalOptions`.
        """
        request = retrieve_request(
            query, knowledge_bases, options, profile=profile, explain=explain, skip_cache=skip_cache
        )
        return retrieval_from_wire(self._call(self._retriever.Retrieve, request, timeout_seconds))

    def retrieve_stream(
        self,
        query: str,
        knowledge_bases: KnowledgeBasesLike = (),
        *,
        profile: str = "",
        explain: bool = False,
        skip_cache: bool = False,
        timeout_seconds: float | None = None,
        **options: Unpack[RetrievalOptions],
    ) -> Iterator[Retrieval]:
        """Like `retrieve`, but gives the fused order as soon as it is known (`is_final` is False), then the answer."""
        inner = retrieve_request(
            query, knowledge_bases, options, profile=profile, explain=explain, skip_cache=skip_cache
        )
        request_id = new_request_id()
        call = self._retriever.RetrieveStream(
            retriever_pb2.RetrieveStreamRequest(request=inner),
            timeout=self._timeout_seconds if timeout_seconds is None else timeout_seconds,
            metadata=self._identity.metadata(request_id),
        )
        try:
            yield from map(stream_answer_from_wire, call)
        except grpc.RpcError as error:
            raise error_from_call(error, endpoint=self._endpoint, request_id=request_id) from error
        finally:
            call.cancel()

    # Chunking

    def chunk(
        self,
        document: IngestDocument | str | bytes,
        config: ChunkingConfig | None = None,
        *,
        return_text: bool = False,
        timeout_seconds: float | None = None,
    ) -> ChunkedDocument:
        """Cuts a document and keeps nothing. Goes to `chunker_endpoint`. The deadline is 60 s by default.

        Raises ValueError where the client was made without a `chunker_endpoint`.
        """
        chunker_endpoint = require_chunker_endpoint(self._chunker_endpoint)
        if not isinstance(document, IngestDocument):
            document = IngestDocument(external_id="", content=document)
        request = chunker_pb2.ChunkRequest(
            document=document_to_wire(document), config=config_to_wire(config), return_text=return_text
        )
        timeout = max(60.0, self._timeout_seconds) if timeout_seconds is None else timeout_seconds
        response = self._call(self._chunker.Chunk, request, timeout, endpoint=chunker_endpoint)
        return chunked_document_from_wire(response)

    def _call(
        self,
        method: Callable[..., Response],
        request: object,
        timeout_seconds: float | None,
        *,
        endpoint: str | None = None,
    ) -> Response:
        request_id = new_request_id()
        try:
            return method(
                request,
                timeout=self._timeout_seconds if timeout_seconds is None else timeout_seconds,
                metadata=self._identity.metadata(request_id),
            )
        except grpc.RpcError as error:
            raise error_from_call(error, endpoint=endpoint or self._endpoint, request_id=request_id) from error
