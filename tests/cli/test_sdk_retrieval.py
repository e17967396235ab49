"""Every option of a question leaves as it was meant, and everything of an answer arrives."""

import asyncio
from datetime import UTC, datetime

from cli.scripted_mesh import Script
from google.protobuf.timestamp_pb2 import Timestamp
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh.retriever.v1 import retriever_pb2
from kbmesh_client import (
    AsyncKbmeshClient,
    CacheState,
    DisplayKind,
    FusionMethod,
    FusionOptions,
    KbmeshClient,
    RetrievalOptions,
    Span,
)

OPTIONS: RetrievalOptions = {
    "strategy": "hybrid",
    "top_k": 7,
    "filter": {"author": "ann"},
    "context_budget_tokens": 0,
    "rerank_top_n": 9,
    "fusion": FusionOptions(method="rrf", vector_weight=0.5, keyword_weight=0, rrf_k=10),
    "thresholds": {"vector": 0.3, "final": 0.1},
    "max_results_per_document": 1,
    "diversity": 0.5,
    "expand": 2,
    "hypothetical_answer": True,
    "context_tokenizer": "gpt",
}
SPAN = chunker_pb2.Span(start=3, end=9, start_byte=3, end_byte=9)


async def test_both_clients_send_every_option_of_every_call(script: Script, endpoint: str) -> None:
    async with AsyncKbmeshClient(endpoint) as client:
        await client.retrieve("who?", "handbook", explain=True, skip_cache=True, **OPTIONS)
        async for _ in client.retrieve_stream("who?", "handbook", explain=True, skip_cache=True, **OPTIONS):
            pass
        with KbmeshClient(endpoint) as in_step:
            await asyncio.to_thread(in_step.retrieve, "who?", "handbook", explain=True, skip_cache=True, **OPTIONS)
            await asyncio.to_thread(
                lambda: list(in_step.retrieve_stream("who?", "handbook", explain=True, skip_cache=True, **OPTIONS))
            )
    first, streamed, second, second_streamed = script.requests
    assert first == streamed.request == second == second_streamed.request
    unsaid = {field.name for field in first.DESCRIPTOR.fields} - {field.name for field, _ in first.ListFields()}
    assert unsaid == {"profile"}
    assert (first.fusion.method, first.fusion.rrf_k) == (retriever_pb2.FUSION_METHOD_RRF, 10)
    assert first.fusion.HasField("keyword_weight")
    assert {one.stage: one.min_score for one in first.thresholds} == {
        retriever_pb2.SCORE_STAGE_VECTOR: 0.3,
        retriever_pb2.SCORE_STAGE_FINAL: 0.1,
    }


async def test_what_is_not_said_is_not_sent(script: Script, endpoint: str) -> None:
    """Else a profile's word would never hold."""
    async with AsyncKbmeshClient(endpoint) as client:
        await client.retrieve("who?", "handbook")
    (request,) = script.requests
    assert {field.name for field, _ in request.ListFields()} == {"query", "knowledge_bases"}


async def test_everything_of_an_answer_arrives(script: Script, endpoint: str) -> None:
    expires = datetime(2026, 12, 1, tzinfo=UTC)
    until = Timestamp()
    until.FromDatetime(expires)
    script.retrieval = retriever_pb2.RetrieveResponse(
        results=[
            retriever_pb2.RetrieveResult(
                rank=1,
                display_kind=retriever_pb2.DISPLAY_KIND_PDF,
                link="https://there/",
                link_expires_at=until,
                expanded_text="before, it, after",
                expanded_span=SPAN,
                duplicates=[retriever_pb2.FurtherCitation(link="https://elsewhere/")],
            ),
            retriever_pb2.RetrieveResult(rank=2, display_kind=99),  # type: ignore[arg-type]  # a newer server's
        ],
        context=retriever_pb2.ContextBlock(citations=[retriever_pb2.Citation(number=1, cut=True)]),
        explanation=[
            retriever_pb2.StageTrace(
                stage=retriever_pb2.STAGE_FUSE,
                started_milliseconds=12.5,
                note="keyword trusted 0.4",
                candidates=[retriever_pb2.CandidateTrace(chunk_id="c1", external_id="a.md")],
            )
        ],
        fusion=retriever_pb2.FUSION_METHOD_ADAPTIVE,
        cache=retriever_pb2.CACHE_STATE_SHARED,
    )
    async with AsyncKbmeshClient(endpoint) as client:
        answer = await client.retrieve("who?", "handbook")
    first, second = answer.results
    assert (first.display_kind, first.link, first.link_expires_at) == (DisplayKind.PDF, "https://there/", expires)
    assert first.expanded_text == "before, it, after"
    assert first.expanded_span == Span(start=3, end=9, start_byte=3, end_byte=9)
    assert first.duplicates[0].link == "https://elsewhere/"
    assert (second.display_kind, second.expanded_span, second.link_expires_at) == (DisplayKind.UNKNOWN, None, None)
    assert answer.context is not None
    assert answer.context.citations[0].cut
    (trace,) = answer.explanation
    assert (trace.started_milliseconds, trace.note) == (12.5, "keyword trusted 0.4")
    assert trace.candidates[0].external_id == "a.md"
    assert (answer.fusion, answer.cache) == (FusionMethod.ADAPTIVE, CacheState.SHARED)


async def test_an_answer_that_says_neither_fusion_nor_cache_has_none(script: Script, endpoint: str) -> None:
    async with AsyncKbmeshClient(endpoint) as client:
        answer = await client.retrieve("who?", "handbook")
    assert (answer.fusion, answer.cache) == (None, CacheState.UNASKED)
