"""A night's ingestion breaks off in the middle, and goes on in the morning under its name."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID, uuid4

import grpc
import pytest
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh.errors.v1 import errors_pb2
from kbmesh.retriever.v1 import ingestion_pb2 as pb
from kbmesh.retriever.v1.ingestion_pb2_grpc import IngestionServiceStub
from kbmesh_client import AsyncKbmeshClient, IngestDocument, IngestOutcome, JobNotFound
from kbmesh_retriever.catalog.job_port import JobResult
from kbmesh_retriever.catalog.sql import SqlCatalog
from kbmesh_retriever.ingest.document import IngestResult
from kbmesh_retriever.ingest.job import JobRecord
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import DependencyUnavailable, Reason
from kbmesh_rpc.errors import JobNotFound as JobForgotten
from kbmesh_rpc.status import from_rpc_error
from retriever.mesh_fakes import Faulty, always
from retriever.workshop import Clock, Workshop

DAY = 86_400


def result(external_id: str, outcome: str = "new", content: str = "text") -> JobResult:
    return JobResult(
        external_id=external_id,
        document_id=str(uuid4()),
        outcome=outcome,
        content_sha256=hashlib.sha256(content.encode()).digest(),
        chunks=2,
        tokens=7,
    )


async def kept(catalog: SqlCatalog, knowledge_base_id: UUID, name: str) -> dict[str, JobResult]:
    job = await catalog.jobs.get(knowledge_base_id, name)
    found, after = {}, ""
    while page := await catalog.jobs.results(job.id, limit=2, after=after):
        found.update({entry.external_id: entry for entry in page})
        after = page[-1].key
    return found


# The service


async def test_what_was_done_is_told_and_left_out(workshop: Workshop, retriever_address: str) -> None:
    await workshop.make()
    documents = [IngestDocument(external_id=f"d{number}", content=f"Text number {number}.") for number in range(8)]
    async with AsyncKbmeshClient(retriever_address) as client:
        workshop.embedder.before("embed", lambda call: DependencyUnavailable("embedder", "down") if call > 0 else None)
        first = [entry async for entry in client.ingest("handbook", documents, job_id="nightly", concurrency=1)]
        assert [entry.outcome for entry in first].count(IngestOutcome.FAILED) == 7
        job = await client.get_job("handbook", "nightly")
        assert (job.new_documents, job.failed_documents, job.chunks) == (1, 7, 1)
        assert job.finished_at is not None

        workshop.embedder.heal()
        cut = workshop.paragraphs.cut
        again = {entry.external_id: entry async for entry in client.ingest("handbook", documents, job_id="nightly")}
        assert len(again) == 8
        assert {name for name, entry in again.items() if entry.resumed} == {"d0"}
        assert (again["d0"].outcome, again["d0"].tokens) == (IngestOutcome.NEW, 3)
        assert workshop.paragraphs.cut - cut == 7, "the document that was done was not sent"
        job = await client.get_job("handbook", "nightly")
        assert (job.new_documents, job.failed_documents, job.results_not_kept) == (8, 0, 0)
        assert [entry.job_id async for entry in client.list_jobs("handbook")] == ["nightly"]

        changed = [IngestDocument(external_id="d3", content="Another text."), *documents]
        sent = [entry async for entry in client.ingest("handbook", changed, job_id="nightly")]
        assert next(entry for entry in sent if entry.external_id == "d3").resumed is False

        failed = [entry async for entry in client.list_job_results("handbook", "nightly", page_size=3)]
        assert sorted(entry.result.external_id for entry in failed) == [f"d{number}" for number in range(8)]


async def ingested(
    client: AsyncKbmeshClient, *documents: IngestDocument, into_rebuild: bool = False
) -> dict[str, bool]:
    """Which of them were left out."""
    results = client.ingest("handbook", documents, job_id="j", into_rebuild=into_rebuild)
    return {entry.external_id: entry.resumed async for entry in results}


async def test_what_is_not_there_any_more_is_sent_again(workshop: Workshop, retriever_address: str) -> None:
    await workshop.make()
    documents = [IngestDocument(external_id=name, content=f"Text of {name}.") for name in ("kept", "gone", "changed")]
    async with AsyncKbmeshClient(retriever_address) as client:
        await ingested(client, *documents)
        await client.delete_document("handbook", "gone")
        await workshop.ingest(
            await workshop.catalog.get_knowledge_base("default", "handbook"), "changed", "Other text."
        )
        assert await ingested(client, *documents) == {"kept": True, "gone": False, "changed": False}
        there = {entry.external_id: entry.content_sha256 async for entry in client.list_documents("handbook")}
        assert there == {entry.external_id: hashlib.sha256(entry.content.encode()).digest() for entry in documents}


async def test_a_job_goes_into_a_rebuild_and_out_of_one_that_was_given_up(
    workshop: Workshop, retriever_address: str
) -> None:
    await workshop.make()
    old, new = (IngestDocument(external_id=name, content=f"Text of {name}.") for name in ("old", "new"))
    async with AsyncKbmeshClient(retriever_address) as client:
        await ingested(client, old)
        for ends in (client.cancel_rebuild, client.finish_rebuild):
            await client.rebuild_knowledge_base("handbook")
            assert await ingested(client, old, new, into_rebuild=True) == {"old": False, "new": False}
            assert await ingested(client, old, new, into_rebuild=True) == {"old": True, "new": True}
            await ends("handbook")
            left_out = ends == client.finish_rebuild
            assert await ingested(client, old, new) == {"old": True, "new": left_out}
            assert {entry.external_id async for entry in client.list_documents("handbook")} == {"old", "new"}


async def test_what_is_said_of_a_document_changes_in_a_job_as_well(workshop: Workshop, retriever_address: str) -> None:
    """Also where it is taken away."""
    await workshop.make()
    said: list[dict[str, Any]] = [{"metadata": {"team": "ops"}}, {"tags": ["t"]}, {"principals": ["ann"]}, {}]
    async with AsyncKbmeshClient(retriever_address) as client:
        for more in said:
            document = IngestDocument(external_id="a", content="The same text.", **more)
            assert await ingested(client, document) == {"a": False}
            there = await client.get_document("handbook", "a")
            assert (dict(there.metadata), there.tags, there.principals) == (
                more.get("metadata", {}),
                tuple(more.get("tags", ())),
                tuple(more.get("principals", ())),
            )
        assert await ingested(client, document) == {"a": True}


@pytest.mark.parametrize("waits", ["for a document", "for a result"])
async def test_a_job_whose_caller_left_has_not_come_to_its_end(
    workshop: Workshop, retriever_address: str, waits: str
) -> None:
    await workshop.make()

    async def documents() -> AsyncIterator[IngestDocument]:
        for number in range(9):
            yield IngestDocument(external_id=f"d{number}", content=f"Text number {number}.")
        if waits == "for a document":
            await asyncio.Event().wait()

    async with AsyncKbmeshClient(retriever_address) as client:
        results = client.ingest("handbook", documents(), job_id="j", concurrency=3)
        await anext(results)
        await results.aclose()
        while not (job := await client.get_job("handbook", "j")).new_documents:  # noqa: ASYNC110 - written after the call
            await asyncio.sleep(0.01)
        assert job.finished_at is None
        resumed = [entry async for entry in client.ingest("handbook", [], job_id="j")]
        assert resumed == []
        assert (await client.get_job("handbook", "j")).finished_at is not None


async def test_jobs_are_a_tenants_own(workshop: Workshop, retriever_address: str) -> None:
    await workshop.make("mine", tenant="acme")
    await workshop.make("mine", tenant="umbrella")
    document = IngestDocument(external_id="secret", content="A secret text.")
    async with (
        AsyncKbmeshClient(retriever_address, tenant="acme") as acme,
        AsyncKbmeshClient(retriever_address, tenant="umbrella") as umbrella,
    ):
        assert [entry.outcome async for entry in acme.ingest("mine", [document], job_id="j")] == [IngestOutcome.NEW]
        assert [entry async for entry in umbrella.list_jobs("mine")] == []
        with pytest.raises(JobNotFound):
            await umbrella.get_job("mine", "j")
        assert [entry.resumed async for entry in umbrella.ingest("mine", [document], job_id="j")] == [False]


async def test_the_reason_of_a_failure_is_kept(workshop: Workshop, retriever_address: str) -> None:
    await workshop.make()
    async with open_channel(retriever_address) as channel:
        service = IngestionServiceStub(channel)
        requests = [
            pb.IngestRequest(options=pb.IngestOptions(knowledge_base="handbook", job_id="j")),
            pb.IngestRequest(document=pb.IngestDocument(external_id="empty", document=chunker_pb2.Document(text=" "))),
        ]
        [_] = [response async for response in service.Ingest(iter(requests))]
        answer = await service.ListJobResults(pb.ListJobResultsRequest(knowledge_base="handbook", job_id="j"))
        [entry] = answer.results
        assert entry.result.error.reason == errors_pb2.ERROR_REASON_DOCUMENT_EMPTY
        for call in (
            lambda: service.GetJob(pb.GetJobRequest(knowledge_base="handbook", job_id="none")),
            lambda: service.ListJobResults(pb.ListJobResultsRequest(knowledge_base="handbook", job_id="none")),
        ):
            assert await reason_of(call) is Reason.JOB_NOT_FOUND
        nameless = pb.GetJobRequest(knowledge_base="handbook")
        assert await reason_of(lambda: service.GetJob(nameless)) is Reason.INVALID_FIELD


async def reason_of(call: Callable[[], object]) -> Reason:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call()
    return from_rpc_error(caught.value, dependency="retriever").reason


# The catalog


async def test_of_one_document_the_last_result_counts(workshop: Workshop) -> None:
    kb, jobs = await workshop.make(), workshop.catalog.jobs
    job_id = await jobs.begin(kb.public_id, "j")
    await jobs.keep(job_id, [result("a", "failed"), result("b"), result("a", "new")])
    await jobs.keep(job_id, [result("b", "unchanged")])
    assert await jobs.begin(kb.public_id, "j") == job_id
    job = await jobs.get(kb.public_id, "j")
    assert job.counts == {"new": 1, "changed": 0, "unchanged": 1, "failed": 0}
    assert (job.chunks, job.tokens, job.results_not_kept, job.finished_at) == (4, 14, 0, None)
    assert set(await kept(workshop.catalog, kb.public_id, "j")) == {"a", "b"}


async def test_a_job_keeps_so_many_results_and_counts_the_rest(
    workshop: Workshop, catalog_url: str, clock: Clock
) -> None:
    small = SqlCatalog(catalog_url, now=clock, max_job_results=3)
    kb = await workshop.make()
    job_id = await small.jobs.begin(kb.public_id, "j")
    await small.jobs.keep(job_id, [result(f"d{number}") for number in range(2)])
    await small.jobs.keep(job_id, [result(f"d{number}") for number in range(1, 6)])
    job = await small.jobs.get(kb.public_id, "j")
    assert (sum(job.counts.values()), job.results_not_kept) == (3, 3)
    await small.jobs.keep(job_id, [result("d0", "failed")])
    assert (await kept(small, kb.public_id, "j"))["d0"].outcome == "failed", "what is kept can still change"
    await small.close()


async def test_old_jobs_and_those_of_a_deleted_knowledge_base_are_forgotten(workshop: Workshop, clock: Clock) -> None:
    kb, other = await workshop.make(), await workshop.make("other")
    jobs = workshop.catalog.jobs
    old = await jobs.begin(kb.public_id, "old")
    await jobs.keep(old, [result("a")])
    gone = await jobs.begin(other.public_id, "gone")
    await jobs.keep(gone, [result("a")])
    clock.advance(5 * DAY)
    await jobs.begin(kb.public_id, "young")
    await workshop.knowledge_bases.delete("default", "other")
    clock.advance(3 * DAY)
    await jobs.begin(kb.public_id, "new")
    assert [job.name for job in await jobs.list(kb.public_id, limit=9, after="")] == ["new", "young"]
    assert await jobs.results(old, limit=9, after="") == await jobs.results(gone, limit=9, after="") == []
    with pytest.raises(JobForgotten):
        await jobs.get(other.public_id, "gone")
    await jobs.keep(old, [result("b")])
    await jobs.finish(old)
    assert await jobs.results(old, limit=9, after="") == []


# The record


async def test_results_are_written_in_batches(workshop: Workshop) -> None:
    kb = await workshop.make()
    jobs = Faulty(workshop.catalog.jobs)
    seconds = 0.0
    record = JobRecord(jobs, await jobs.begin(kb.public_id, "j"), clock=lambda: seconds)
    for number in range(250):
        await record.add(IngestResult(external_id=f"d{number}", outcome="new"))
    assert jobs.calls["keep"] == 1
    seconds = 10.0
    await record.add(IngestResult(external_id="late", outcome="unchanged"))
    assert jobs.calls["keep"] == 2
    await record.close(finished=True)
    job = await workshop.catalog.jobs.get(kb.public_id, "j")
    assert job.counts == {"new": 250, "changed": 0, "unchanged": 1, "failed": 0}
    assert job.finished_at is not None


async def test_a_record_that_cannot_be_kept_fails_no_document(workshop: Workshop) -> None:
    kb = await workshop.make()
    jobs = Faulty(workshop.catalog.jobs)
    record = JobRecord(jobs, await jobs.begin(kb.public_id, "j"), clock=lambda: 0.0)
    jobs.before("keep", always(DependencyUnavailable("catalog", "down")))
    jobs.before("finish", always(DependencyUnavailable("catalog", "down")))
    for number in range(250):
        await record.add(IngestResult(external_id=f"d{number}", outcome="new"))
    await record.close(finished=True)
    assert sum((await workshop.catalog.jobs.get(kb.public_id, "j")).counts.values()) == 0
