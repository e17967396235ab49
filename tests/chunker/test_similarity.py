"""SIMILARITY cuts where neighbouring sentences drift apart, and nowhere else."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import grpc
import pytest
from chunker.counters import MODEL, WordPieceCounter
from chunker.embedders import CountingEmbedder, ToldEmbedder, planned_text, planned_vectors
from chunker.laws import check_laws
from chunker.test_service import reason_of
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh.chunker.v1 import chunker_pb2 as pb
from kbmesh.chunker.v1 import chunker_pb2_grpc
from kbmesh.embedder.v1 import embedder_pb2
from kbmesh_chunker.application import ChunkerApplication
from kbmesh_chunker.blank import is_visible
from kbmesh_chunker.chunking import ChunkedDocument, Chunker
from kbmesh_chunker.config import ConfigRequest, Strategy
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import SourceDocument
from kbmesh_chunker.sentence_embedder import MAX_CALLS, MAX_TEXTS, SentenceEmbedder, SentenceVectors
from kbmesh_chunker.settings import ChunkerSettings
from kbmesh_chunker.strategies.port import Models
from kbmesh_embedder.application import make_application
from kbmesh_embedder.settings import EmbedderSettings
from kbmesh_onnx.pull import pull_model
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import DeadlineExceeded, DependencyInvalidResponse, InvalidField
from kbmesh_rpc.server import running

LIMITS = ReadingLimits(max_document_bytes=4_000_000)
THREE_TOPICS = [
    "Sourdough bread begins with a starter of flour and water.",
    "Wild yeast in the starter makes the dough rise slowly.",
    "Bakers fold the dough several times before it rests overnight.",
    "A hot oven and steam give the loaf a crisp crust.",
    "The James Webb telescope observes the universe in infrared light.",
    "Its mirror is made of eighteen gold-coated segments.",
    "Astronomers use it to study the first galaxies.",
    "The telescope orbits the Sun far beyond the Moon.",
    "Central banks raise interest rates to slow inflation.",
    "Higher rates make loans more expensive for companies.",
    "Borrowers then spend less, and prices rise more slowly.",
    "Investors watch each announcement of the bank closely.",
]

Cut = Callable[..., Awaitable[ChunkedDocument]]


@pytest.fixture
def cut(executor: Executor) -> Cut:
    """cut(embedder, text, threshold=..., size=...) -> ChunkedDocument"""

    async def call(
        embedder: SentenceEmbedder,
        text: str,
        *,
        media_type: str = "",
        deadline: Deadline | None = None,
        embedding_model: str = "",
        sizes: dict[str, int] | None = None,
        **options: float,
    ) -> ChunkedDocument:
        counter = WordPieceCounter() if embedding_model else None
        chunker = Chunker(limits=LIMITS, counter=counter, executor=executor, models=Models(embedder=embedder))
        request = ConfigRequest(
            strategy=Strategy.SIMILARITY,
            options_of=Strategy.SIMILARITY,
            options=options,
            embedding_model=embedding_model,
            **(sizes or {}),
        )
        source = SourceDocument(content=text, media_type=media_type)
        chunked = await chunker.chunk(source, request, deadline=deadline)
        check_laws(chunked)
        return chunked

    return call


@pytest.fixture(scope="session")
def models_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    pull_model("all-MiniLM-L6-v2", folder)
    return folder


@asynccontextmanager
async def chunker_with(embedder_address: str) -> AsyncIterator["chunker_pb2_grpc.ChunkerServiceAsyncStub"]:
    settings = ChunkerSettings(port=0, embedder_address=embedder_address)
    async with running(ChunkerApplication(settings), settings) as address, open_channel(address) as channel:
        yield chunker_pb2_grpc.ChunkerServiceStub(channel)


def request_for(text: str, **options: float) -> pb.ChunkRequest:
    config = pb.ChunkingConfig(strategy=pb.STRATEGY_SIMILARITY, similarity=pb.SimilarityOptions(**options))
    return pb.ChunkRequest(document=pb.Document(text=text), config=config)


def words(text: str) -> Sequence[float]:
    """A vector that texts with the same words share."""
    vector = [0.01] * 16
    for word in text.lower().split():
        vector[hashlib.sha256(word.encode()).digest()[0] % 16] += 1
    return vector


# The real model


async def test_three_subjects_are_three_chunks_by_the_real_model(models_folder: Path) -> None:
    settings = EmbedderSettings(port=0, metrics_port=0, models=models_folder, device="cpu")
    async with running(await make_application(settings), settings) as embedder, chunker_with(embedder) as stub:
        for options in ({"threshold": 0.45}, {}, {"percentile": 20}):
            response = await stub.Chunk(request_for(" ".join(THREE_TOPICS), **options))
            texts = [chunk.text for chunk in response.chunks]
            assert texts == [" ".join(THREE_TOPICS[first : first + 4]) for first in (0, 4, 8)]
            assert {chunk.type for chunk in response.chunks} == {"similarity"}
            assert response.summary.strategy == pb.STRATEGY_SIMILARITY


# Where it cuts


@pytest.mark.parametrize("buffer", [0, 1])
async def test_sem_06_a_threshold_is_a_similarity(cut: Cut, buffer: int) -> None:
    embedder = CountingEmbedder(planned_vectors([0.9, 0.6, 0.9]))
    chunked = await cut(embedder, planned_text(4), threshold=0.7, buffer=buffer)
    assert [chunk.text.count("Sentence") for chunk in chunked.chunks] == [2, 2]


@given(
    cosines=st.lists(st.floats(-1, 1), max_size=30),
    numbers=st.lists(st.floats(-1, 1), min_size=2, max_size=4),
    buffer=st.integers(0, 5),
    size=st.integers(40, 300),
    minimum=st.integers(0, 100),
)
@settings(max_examples=60, deadline=None)
def test_sem_06_a_higher_number_gives_more_chunks(
    cosines: list[float], numbers: list[float], buffer: int, size: int, minimum: int, executor: Executor
) -> None:
    chunker = Chunker(
        limits=LIMITS,
        counter=None,
        executor=executor,
        models=Models(embedder=CountingEmbedder(planned_vectors(cosines))),
    )

    async def count(**options: float) -> set[int]:
        request = ConfigRequest(
            strategy=Strategy.SIMILARITY,
            options_of=Strategy.SIMILARITY,
            options={"buffer": buffer, **options},
            size=size,
            minimum=min(minimum, size),
        )
        chunked = await chunker.chunk(SourceDocument(content=planned_text(len(cosines) + 1)), request, deadline=None)
        check_laws(chunked)
        return {chunk.piece.start for chunk in chunked.chunks}

    async def check() -> None:
        for lower, higher in pairwise(sorted(numbers)):
            assert await count(threshold=lower) <= await count(threshold=higher)
            low, high = (max(1.0, 50 + 50 * number) for number in (lower, higher))
            assert await count(percentile=low) <= await count(percentile=high)

    asyncio.run(check())


@pytest.mark.parametrize("text", ["Backups run nightly.", "Backups run nightly. Restores are manual.", "x", "🙂"])
@pytest.mark.parametrize("option", [{"threshold": 1.0}, {"threshold": -1.0}, {"percentile": 95}, {"percentile": 0}])
async def test_sem_01_a_sentence_or_two(cut: Cut, text: str, option: dict[str, float]) -> None:
    chunked = await cut(CountingEmbedder(words), text, **option)
    assert len(chunked.chunks) <= 2
    assert " ".join(chunk.text for chunk in chunked.chunks) == text


@pytest.mark.parametrize("option", [{"percentile": 5}, {"percentile": 99}, {"threshold": 0.99}])
async def test_sem_07_sentences_that_are_alike_stay_together(cut: Cut, option: dict[str, float]) -> None:
    chunked = await cut(CountingEmbedder(words), "All about backups. " * 40, **option)
    assert len(chunked.chunks) == 1


async def test_a_percentile_cuts_the_lowest(cut: Cut) -> None:
    cosines = [0.9, 0.3, 0.9, 0.9, 0.1, 0.9, 0.9, 0.5, 0.9, 0.9]
    embedder = CountingEmbedder(planned_vectors(cosines))
    for percentile, sentences in ((0, [11]), (10, [5, 6]), (20, [2, 3, 6]), (30, [2, 3, 3, 3])):
        chunked = await cut(embedder, planned_text(11), percentile=percentile, buffer=0)
        assert [chunk.text.count("Sentence") for chunk in chunked.chunks] == sentences


async def test_with_a_buffer_a_single_sentence_goes_with_the_neighbour_it_is_more_like(cut: Cut) -> None:
    embedder = CountingEmbedder(planned_vectors([0.95, 0.95, 0.6, 0.2, 0.95, 0.95]))
    apart = await cut(embedder, planned_text(7), threshold=0.7, buffer=0)
    assert [chunk.text.count("Sentence") for chunk in apart.chunks] == [3, 1, 3]
    gathered = await cut(embedder, planned_text(7), threshold=0.7)
    assert [chunk.text.count("Sentence") for chunk in gathered.chunks] == [4, 3]


async def test_what_is_below_the_minimum_is_merged(cut: Cut) -> None:
    embedder = CountingEmbedder(planned_vectors([0.6, 0.2] * 5))
    chunked = await cut(embedder, planned_text(11), threshold=0.9, buffer=0, sizes={"minimum": 50})
    assert [chunk.text.count("Sentence") for chunk in chunked.chunks] == [2, 2, 2, 2, 3]


async def test_a_run_over_the_size_is_cut_where_it_is_least_alike(cut: Cut) -> None:
    cosines = [0.99] * 11
    cosines[4] = 0.98
    embedder = CountingEmbedder(planned_vectors(cosines))
    # Twelve sentences of 30 characters: a fixed window would hold nine or ten of them.
    chunked = await cut(embedder, planned_text(12), buffer=0, sizes={"size": 300})
    assert [chunk.text.count("Sentence") for chunk in chunked.chunks] == [5, 7]


async def test_overlap_repeats_whole_sentences(cut: Cut) -> None:
    embedder = CountingEmbedder(planned_vectors([0.9, 0.1, 0.9, 0.1, 0.9]))
    chunked = await cut(embedder, planned_text(6), buffer=0, sizes={"overlap": 40})
    numbers = [[int(word) for word in chunk.text.split() if word.isdigit()] for chunk in chunked.chunks]
    assert numbers == [[0, 1], [1, 2, 3], [3, 4, 5]]


# What it takes for sentences


async def test_sem_08_stray_punctuation_is_never_a_chunk(cut: Cut) -> None:
    text = "First point.  . Second point.   \n\n . \n\nThird point."
    for buffer in (0, 1):
        embedder = CountingEmbedder(words)
        chunked = await cut(embedder, text, threshold=1.0, buffer=buffer)
        assert all(any(map(str.isalpha, chunk.text)) for chunk in chunked.chunks)
        assert all(any(map(str.isalpha, sentence)) for sentence in embedder.texts)


async def test_sem_10_chunks_are_slices_of_the_source(cut: Cut) -> None:
    text = "First.\nSecond.\tThird.\n\nFourth."
    embedder = CountingEmbedder(words)
    whole = await cut(embedder, text, threshold=-1.0)
    assert [chunk.text for chunk in whole.chunks] == [text]
    assert embedder.texts == ["First.", "Second.", "Third.", "Fourth."]


async def test_tables_and_code_stay_whole_and_headings_with_their_text(cut: Cut) -> None:
    table = "| Port. | Use. |\n|---|---|\n" + "| 7401. | Chunker. |\n" * 5
    code = "```python\nfirst. second.\n\nthird.\n```\n"
    text = f"# Guide\n\nRead it. Then act.\n\n## Ports\n\n{table}\n## Code\n\n{code}\n- One item.\n- Two items.\n"
    embedder = CountingEmbedder(words)
    chunked = await cut(embedder, text, media_type="text/markdown", threshold=1.0, buffer=0)
    assert embedder.texts == [
        "# Guide\n\nRead it.",
        "Then act.",
        f"## Ports\n\n{table}".strip(),
        f"## Code\n\n{code}".strip(),
        "- One item.",
        "- Two items.",
    ]
    assert [(chunk.piece.heading_path, chunk.piece.context) for chunk in chunked.chunks[1:4]] == [
        (("Guide",), "Guide"),
        (("Guide", "Ports"), "Guide"),
        (("Guide", "Code"), "Guide"),
    ]


async def test_a_sentence_longer_than_the_size_is_embedded_in_pieces(cut: Cut) -> None:
    embedder = CountingEmbedder(words)
    await cut(embedder, "word " * 500, sizes={"size": 200})
    assert len(embedder.texts) == 13
    assert max(map(len, embedder.texts)) <= 200


@given(
    parts=st.lists(
        st.sampled_from(
            [
                *"ab. !?\n\r\t#*|-。中\u0301\u200d",
                "\r\n",
                "\n\n",
                "## ",
                "```\n",
                "| a |\n|---|\n",
                "- ",
                "A sentence. ",
                "한 문장. ",
                "ไทย ไทย",
            ]
        ),
        max_size=80,
    ),
    markdown=st.booleans(),
    threshold=st.floats(-1, 1),
    buffer=st.integers(0, 5),
    size=st.integers(1, 60),
    overlap=st.integers(0, 59),
    minimum=st.integers(0, 60),
)
@settings(max_examples=80, deadline=None)
def test_any_text_by_any_settings(
    parts: list[str],
    markdown: bool,
    threshold: float,
    buffer: int,
    size: int,
    overlap: int,
    minimum: int,
    executor: Executor,
) -> None:
    text = "".join(parts)
    if not is_visible(text):
        return
    models = Models(embedder=CountingEmbedder(words))
    chunker = Chunker(limits=LIMITS, counter=None, executor=executor, models=models)
    request = ConfigRequest(
        strategy=Strategy.SIMILARITY,
        options_of=Strategy.SIMILARITY,
        options={"threshold": threshold, "buffer": buffer},
        size=size,
        overlap=min(overlap, size - 1),
        minimum=min(minimum, size),
    )
    source = SourceDocument(content=text, media_type="text/markdown" if markdown else "text/plain")
    chunked = asyncio.run(chunker.chunk(source, request, deadline=None))
    check_laws(chunked)


async def test_chunks_are_within_the_models_limit(cut: Cut) -> None:
    text = "# A title of words\n\n" + "Some sentence with a few words in it. " * 200
    chunked = await cut(CountingEmbedder(words), text, media_type="text/markdown", embedding_model=MODEL)
    assert all(chunk.token_count is not None and chunk.token_count <= 256 for chunk in chunked.chunks)


# What it asks of the embedder


async def test_each_sentence_is_embedded_once_in_bounded_calls(cut: Cut) -> None:
    class Slow(CountingEmbedder):
        async def pause(self) -> None:
            await asyncio.sleep(0)

    for buffer in (0, 5):
        embedder = Slow(words)
        await cut(embedder, planned_text(3_000), buffer=buffer)
        assert embedder.texts == [f"Sentence {number} has been planned." for number in range(3_000)]
        assert max(map(len, embedder.calls)) <= MAX_TEXTS
        assert 1 < embedder.most_in_flight <= MAX_CALLS


async def test_the_model_that_was_asked_for_embeds_and_is_part_of_the_fingerprint(cut: Cut) -> None:
    first, second = CountingEmbedder(words), CountingEmbedder(words, fingerprint="planned-2")
    text = planned_text(3)
    prints = [(await cut(embedder, text)).fingerprint for embedder in (first, first, second)]
    assert prints[0] == prints[1] != prints[2]
    await cut(second, text, embedding_model=MODEL)
    assert (first.models[0], second.models[-1]) == ("", MODEL)


async def test_the_service_asks_for_documents_in_bulk() -> None:
    told = ToldEmbedder(lambda texts: [words(text) for text in texts])
    async with told.serving() as embedder, chunker_with(embedder) as stub:
        response = await stub.Chunk(request_for("One thing. Another thing.", threshold=1.0, buffer=0))
        listed = (await stub.ListStrategies(pb.ListStrategiesRequest())).strategies
    assert [chunk.text for chunk in response.chunks] == ["One thing.", "Another thing."]
    [request] = told.requests
    assert list(request.texts) == ["One thing.", "Another thing."]
    assert (request.input_type, request.priority, request.truncation) == (
        embedder_pb2.INPUT_TYPE_DOCUMENT,
        embedder_pb2.PRIORITY_BULK,
        embedder_pb2.TRUNCATION_END,
    )
    [info] = [info for info in listed if info.strategy == pb.STRATEGY_SIMILARITY]
    assert info.needs_embedder
    assert (info.defaults.similarity.threshold, info.defaults.similarity.buffer) == (0.5, 1)


# What goes wrong


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"percentile": 0.95}, "config.similarity.percentile"),
        ({"percentile": 101}, "config.similarity.percentile"),
        ({"percentile": -1}, "config.similarity.percentile"),
        ({"percentile": float("nan")}, "config.similarity.percentile"),
        ({"threshold": 1.01}, "config.similarity.threshold"),
        ({"threshold": -1.01}, "config.similarity.threshold"),
        ({"threshold": float("nan")}, "config.similarity.threshold"),
        ({"buffer": 6}, "config.similarity.buffer"),
    ],
)
async def test_sem_07_numbers_out_of_their_unit_are_refused(cut: Cut, options: dict[str, float], field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        await cut(CountingEmbedder(words), "One. Two.", **options)
    assert refused.value.metadata["field"] == field


async def test_without_an_embedder_it_is_refused_and_not_listed(
    stub: "chunker_pb2_grpc.ChunkerServiceAsyncStub",
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.Chunk(request_for("One. Two."))
    assert reason_of(refused.value) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_FIELD",
        {"field": "config.strategy"},
    )
    listed = (await stub.ListStrategies(pb.ListStrategiesRequest())).strategies
    assert pb.STRATEGY_SIMILARITY not in [info.strategy for info in listed]


async def test_sem_03_missing_vectors_are_told_by_number(cut: Cut) -> None:
    told = ToldEmbedder(lambda texts: [words(text) for text in texts][:3])
    async with told.serving() as embedder, chunker_with(embedder) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await stub.Chunk(request_for("One. Two. Three. Four."))
    code, reason, metadata = reason_of(failed.value)
    assert (code, reason) == (grpc.StatusCode.INTERNAL, "DEPENDENCY_INVALID_RESPONSE")
    assert metadata == {"dependency": "embedder"}
    message = failed.value.details() or ""
    assert "3" in message
    assert "4" in message


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 0.0])
async def test_vectors_without_a_direction_are_an_error(number: float) -> None:
    told = ToldEmbedder(lambda texts: [[number, number], *([1.0, 0.0] for _ in texts[1:])])
    async with told.serving() as embedder, chunker_with(embedder) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await stub.Chunk(request_for("One. Two. Three."))
    assert reason_of(failed.value)[1] == "DEPENDENCY_INVALID_RESPONSE"


async def test_a_model_that_changes_meanwhile_is_an_error(cut: Cut) -> None:
    class Changing(CountingEmbedder):
        async def embed(self, texts: Sequence[str], *, model: str) -> SentenceVectors:
            self.fingerprint = f"planned-{len(self.calls)}"
            return await super().embed(texts, model=model)

    with pytest.raises(DependencyInvalidResponse):
        await cut(Changing(words), planned_text(MAX_TEXTS + 1))

    class Growing(CountingEmbedder):
        async def embed(self, texts: Sequence[str], *, model: str) -> SentenceVectors:
            self.calls.append(list(texts))
            return SentenceVectors(vectors=[[1.0] * len(self.calls)] * len(texts), model_fingerprint="planned-1")

    with pytest.raises(DependencyInvalidResponse):
        await cut(Growing(words), planned_text(MAX_TEXTS + 1))


async def test_an_embedder_that_is_down_is_told_as_such(free_port: int) -> None:
    async with chunker_with(f"127.0.0.1:{free_port}") as stub:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await stub.Chunk(request_for("One. Two."))
    code, reason, metadata = reason_of(failed.value)
    assert (code, reason) == (grpc.StatusCode.UNAVAILABLE, "DEPENDENCY_UNAVAILABLE")
    assert metadata == {"dependency": "embedder"}


async def test_a_caller_that_leaves_ends_the_calls(cut: Cut) -> None:
    class Waiting(CountingEmbedder):
        def __init__(self) -> None:
            super().__init__(words)
            self.asked = asyncio.Event()

        async def pause(self) -> None:
            if len(self.calls) == MAX_CALLS:
                self.asked.set()
            await asyncio.Event().wait()

    embedder = Waiting()
    call = asyncio.create_task(cut(embedder, planned_text(3_000)))
    await embedder.asked.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert embedder.in_flight == 0
    assert len(embedder.calls) == MAX_CALLS


async def test_a_deadline_that_passes_ends_the_calls(cut: Cut) -> None:
    now = [0.0]

    class Late(CountingEmbedder):
        async def pause(self) -> None:
            now[0] = 11.0

    embedder = Late(words)
    with pytest.raises(DeadlineExceeded):
        await cut(embedder, planned_text(3_000), deadline=Deadline.after(10.0, lambda: now[0]))
    assert len(embedder.calls) <= MAX_CALLS
