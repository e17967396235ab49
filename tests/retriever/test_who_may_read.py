"""Documents that are not for everybody: who sees them, who does not, and from when on."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from kbmesh.errors.v1 import errors_pb2
from kbmesh.retriever.v1 import ingestion_pb2, knowledge_base_pb2, retriever_pb2
from kbmesh_retriever.retrieve.pipeline import Retrieval
from kbmesh_retriever.retrieve.request import RetrievalLimits, RetrievalRequest, Selector
from kbmesh_retriever.retrieve.stage import Strategy
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import DependencyUnavailable
from retriever.caller import Caller, documents_of, statuses_of, text
from retriever.mesh_fakes import always
from retriever.workshop import Workshop

QUERY = "salary of turbines"
DOWN = always(DependencyUnavailable("qdrant", "down"))
NEW, CHANGED, UNCHANGED, FAILED = (
    ingestion_pb2.INGEST_OUTCOME_NEW,
    ingestion_pb2.INGEST_OUTCOME_CHANGED,
    ingestion_pb2.INGEST_OUTCOME_UNCHANGED,
    ingestion_pb2.INGEST_OUTCOME_FAILED,
)
LETTER = "The salary of turbines.\n\nPaid by the salary office.\n\nNo salary for turbines that stand still."
"""Three chunks."""


@pytest.fixture
async def caller(retriever_address: str) -> AsyncIterator[Caller]:
    async with open_channel(retriever_address) as channel:
        yield Caller(channel)


@pytest.mark.parametrize("placement", [knowledge_base_pb2.PLACEMENT_SHARED, knowledge_base_pb2.PLACEMENT_DEDICATED])
async def test_each_sees_what_names_them_in_their_own_tenant(
    caller: Caller, placement: knowledge_base_pb2.Placement.ValueType
) -> None:
    """Two tenants with the same names for people, groups, knowledge bases and documents."""
    tenants = [Caller(caller.channel, tenant) for tenant in ("acme", "rival")]
    acl: dict[str, list[str]] = {"open": [], "hr": ["group:hr"], "ann": ["ann"], "both": ["ann", "group:hr"]}
    for tenant in tenants:
        await tenant.create("letters", placement=placement)
        await tenant.send(
            "letters",
            *(text(f"{tenant.tenant}-{name}", f"{QUERY} {name}", principals=who) for name, who in acl.items()),
        )
    expected = {
        (): {"open"},
        ("ann",): {"open", "ann", "both"},
        ("bob", "group:hr"): {"open", "hr", "both"},
        ("ann", "group:hr"): {"open", "hr", "ann", "both"},
        ("Ann",): {"open"},
        ("an",): {"open"},
        ("*",): {"open"},
    }
    for tenant in tenants:
        for principals, names in expected.items():
            seen = await tenant.known_as(*principals).sees(QUERY, "letters")
            assert seen == {f"{tenant.tenant}-{name}" for name in names}, principals


async def test_every_way_of_asking_keeps_to_it(caller: Caller) -> None:
    await caller.create("letters")
    await caller.send("letters", text("open", f"{QUERY} one"), text("secret", f"{QUERY} two", principals=["ann"]))
    for strategy in retriever_pb2.RetrievalStrategy.values()[1:]:
        assert await caller.sees(QUERY, "letters", strategy=strategy) == {"open"}
        assert await caller.known_as("ann").sees(QUERY, "letters", strategy=strategy) == {"open", "secret"}
    for who, names in ((caller, {"open"}), (caller.known_as("ann"), {"open", "secret"})):
        for answer in await who.streamed(QUERY, "letters"):
            assert documents_of(answer) == names
    explained = await caller.retrieve(QUERY, "letters", explain=True)
    traced = {candidate.chunk_id for trace in explained.explanation for candidate in trace.candidates}
    assert traced == {result.chunk_id for result in explained.results}
    assert "two" not in explained.context.text
    assert explained.knowledge_bases[0].hits == 1


async def test_ret_22_equal_texts_give_nobody_away(caller: Caller) -> None:
    """RET-22: the copy in a knowledge base or a document that is not the caller's is no further citation."""
    policy = "Holiday policy: 25 days"
    await caller.create("a")
    await caller.create("b", readers=["group:hr"])
    await caller.send("a", text("open", policy), text("draft", policy, principals=["ann"]))
    await caller.send("b", text("internal", policy))
    assert await caller.sees("holiday policy", "a", "b") == {"open"}
    assert await caller.known_as("ann").sees("holiday policy", "a", "b") == {"open", "draft"}
    assert await caller.known_as("group:hr").sees("holiday policy", "a", "b") == {"open", "internal"}


async def test_other_principals_cost_no_embedding_and_hold_at_once(caller: Caller, workshop: Workshop) -> None:
    await caller.create("letters")
    await caller.send("letters", text("a", LETTER, principals=["ann", "bob"]))
    cut, embedded = workshop.paragraphs.cut, len(workshop.words.texts)

    changed = (await caller.send("letters", text("a", LETTER, principals=["ann"])))["a"]
    assert (changed.outcome, changed.chunks, changed.embedded) == (CHANGED, 3, 0)
    opened = (await caller.send("letters", text("a", LETTER)))["a"]
    closed = (await caller.send("letters", text("a", LETTER, principals=["eve", "ann"])))["a"]
    same = (await caller.send("letters", text("a", LETTER, principals=["ann", "eve", "ann"])))["a"]
    assert [each.outcome for each in (opened, closed, same)] == [CHANGED, CHANGED, UNCHANGED]
    assert (workshop.paragraphs.cut, len(workshop.words.texts)) == (cut, embedded)

    for who, seen in (("ann", {"a"}), ("eve", {"a"}), ("bob", set())):
        assert await caller.known_as(who).sees(QUERY, "letters") == seen
    assert list((await caller.document("letters", "a")).principals) == ["eve", "ann"]
    # Old versions are still in the store; they are for nobody.
    await workshop.sweep()
    assert await workshop.points(await workshop.catalog.get_knowledge_base("default", "letters")) == 3


async def test_tags_author_and_time_change_in_the_same_way(caller: Caller, workshop: Workshop) -> None:
    await caller.create("letters")
    await caller.send("letters", text("a", LETTER, tags=["old"]))
    cut, embedded = workshop.paragraphs.cut, len(workshop.words.texts)
    sent = text("a", LETTER, tags=["new", "ops"], author="Ada")
    sent.created_at.FromSeconds(1_790_000_000)
    assert (await caller.send("letters", sent))["a"].outcome == CHANGED
    assert (workshop.paragraphs.cut, len(workshop.words.texts)) == (cut, embedded)
    known = await caller.document("letters", "a")
    assert (list(known.tags), known.author, known.created_at.seconds) == (["new", "ops"], "Ada", 1_790_000_000)
    answer = await caller.retrieve(QUERY, "letters")
    assert {tuple(result.tags) for result in answer.results} == {("new", "ops")}


async def test_a_principal_that_is_taken_away_is_out_although_the_store_is_down(
    caller: Caller, workshop: Workshop
) -> None:
    """The store still says what it said: nobody believes it."""
    await caller.create("letters")
    await caller.send("letters", text("a", LETTER, principals=["ann", "bob"]), text("open", LETTER))
    for method in ("upsert", "read_generation", "update_payload", "delete_generations"):
        workshop.store.before(method, DOWN)
    workshop.store.after("upsert", DOWN)

    results = await caller.send(
        "letters", text("a", LETTER, principals=["ann"]), text("open", LETTER, principals=["ann"])
    )

    assert {result.outcome for result in results.values()} == {FAILED}
    assert {result.error.reason for result in results.values()} == {errors_pb2.ERROR_REASON_DEPENDENCY_UNAVAILABLE}
    assert await caller.known_as("bob").sees(QUERY, "letters") == set()
    assert await caller.sees(QUERY, "letters") == set()
    assert await caller.known_as("ann").sees(QUERY, "letters") == {"a", "open"}
    assert list((await caller.document("letters", "open")).principals) == ["ann"]

    workshop.store.heal()
    results = await caller.send(
        "letters", text("a", LETTER, principals=["ann"]), text("open", LETTER, principals=["ann"])
    )
    assert {(result.outcome, result.embedded) for result in results.values()} == {(CHANGED, 0)}
    assert await caller.known_as("bob").sees(QUERY, "letters") == set()
    assert await caller.known_as("ann").sees(QUERY, "letters") == {"a", "open"}


async def test_what_is_given_while_the_store_is_down_is_not_given(caller: Caller, workshop: Workshop) -> None:
    """One is taken away and one is added: the former is out, the latter comes in with the next try."""
    await caller.create("letters")
    await caller.send("letters", text("a", LETTER, principals=["ann", "bob"]))
    workshop.store.before("upsert", DOWN)
    await caller.send("letters", text("a", LETTER, principals=["ann", "eve"]))
    for who, seen in (("ann", {"a"}), ("bob", set()), ("eve", set())):
        assert await caller.known_as(who).sees(QUERY, "letters") == seen
    # The caller thinks better of it: what was taken away is given back, without a word to the store.
    assert (await caller.send("letters", text("a", LETTER, principals=["ann", "bob"])))["a"].outcome == CHANGED
    assert await caller.known_as("bob").sees(QUERY, "letters") == {"a"}
    workshop.store.heal()
    await caller.send("letters", text("a", LETTER, principals=["eve"]))
    for who, seen in (("ann", set()), ("bob", set()), ("eve", {"a"})):
        assert await caller.known_as(who).sees(QUERY, "letters") == seen


@pytest.mark.parametrize("failing", ["embed", "chunk"])
async def test_one_who_lost_a_document_does_not_see_its_old_version(
    caller: Caller, workshop: Workshop, failing: str
) -> None:
    """Content and principals change together, and the new content does not get in."""
    await caller.create("letters")
    await caller.send("letters", text("a", LETTER, principals=["ann", "bob"]))
    service = workshop.embedder if failing == "embed" else workshop.chunker
    service.before(failing, always(DependencyUnavailable(failing, "down")))
    failed = (await caller.send("letters", text("a", f"{LETTER} More.", principals=["ann", "eve"])))["a"]
    assert failed.outcome == FAILED
    service.heal()
    for who, seen in (("ann", {"a"}), ("bob", set()), ("eve", set())):
        assert await caller.known_as(who).sees(QUERY, "letters") == seen


@pytest.mark.parametrize("wrong", ["metadata", "tags", "author", "created_at", "content", "large"])
async def test_one_who_lost_a_document_that_is_refused_unread_does_not_see_it(
    caller: Caller, workshop: Workshop, wrong: str
) -> None:
    await caller.create("letters")
    await caller.send("letters", text("a", LETTER, principals=["ann", "bob"]))
    sent = text("a", LETTER, principals=["ann"])
    match wrong:
        case "metadata":
            sent.document.metadata.update({f"name {number}": "x" for number in range(65)})
        case "tags":
            sent.tags.append("")
        case "author":
            sent.author = "x" * 5000
        case "created_at":
            sent.created_at.seconds = 2**60
        case "content":
            sent.document.ClearField("text")
        case "large":
            sent.document.text = "x" * (16 * 1024 * 1024 + 1)
    assert (await caller.send("letters", sent))["a"].outcome == FAILED
    assert await caller.known_as("bob").sees(QUERY, "letters") == set()
    assert await caller.known_as("ann").sees(QUERY, "letters") == {"a"}
    fine = text("a", LETTER, principals=["ann", "bob"])
    assert (await caller.send("letters", fine))["a"].outcome == CHANGED
    assert await caller.known_as("bob").sees(QUERY, "letters") == {"a"}


async def test_a_failed_read_opens_nothing(caller: Caller) -> None:
    """A source that could not be read has lost its text and its access list."""
    await caller.create("letters")
    await caller.send("letters", text("a", LETTER, principals=["ann"]))
    refused = (await caller.send("letters", text("a", "")))["a"]
    assert refused.error.reason == errors_pb2.ERROR_REASON_DOCUMENT_SHRUNK
    assert await caller.sees(QUERY, "letters") == set()
    assert await caller.known_as("ann").sees(QUERY, "letters") == {"a"}


async def test_a_search_that_began_before_gives_no_revoked_document(workshop: Workshop) -> None:
    """The store has answered already; then the document is taken away; then the hits are looked up."""
    kb = await workshop.make("letters")
    await workshop.ingest(kb, "a", LETTER, principals=("ann", "bob"))
    retrieval = Retrieval(
        catalog=workshop.catalog,
        store=workshop.store,
        embedder=workshop.embedder,
        reranker=None,
        rephraser=None,
        limits=RetrievalLimits(),
    )
    searched, revoked = asyncio.Event(), asyncio.Event()

    async def wait(_: int) -> None:
        searched.set()
        await revoked.wait()

    async def ask(who: str) -> int:
        request = RetrievalRequest(
            query=QUERY, selectors=(Selector(knowledge_base="letters"),), strategy=Strategy.HYBRID
        )
        answer = await retrieval.answer(request, tenant="default", principals=(who,), deadline=None)
        return len(answer.results)

    assert [await ask("ann"), await ask("bob")] == [3, 3]
    workshop.store.after("search", wait)
    asking = [asyncio.create_task(ask(who)) for who in ("ann", "bob")]
    await searched.wait()
    await workshop.ingest(kb, "a", LETTER, principals=("ann",))
    revoked.set()
    assert [await each for each in asking] == [3, 0]


async def test_a_rebuild_gives_nothing_back(caller: Caller, workshop: Workshop) -> None:
    """The document went into the rebuild before somebody was taken off it."""
    await caller.create("letters", readers=["ann", "bob"])
    before = text("a", LETTER, principals=["ann", "bob"])
    await caller.send("letters", before)
    await caller.update("letters", rebuild=True)
    await caller.send("letters", before, into_rebuild=True)
    await caller.send("letters", text("a", LETTER, principals=["ann"]))
    with pytest.raises(grpc.aio.AioRpcError):
        await caller.finish_rebuild("letters")
    await caller.finish_rebuild("letters", drop_outstanding=True)
    assert await caller.known_as("bob").sees(QUERY, "letters") == set()
    assert await caller.known_as("ann").sees(QUERY, "letters") == {"a"}
    assert await caller.retrieve(QUERY, "letters")
    assert statuses_of(await caller.known_as("eve").retrieve(QUERY, "letters")) == {"letters": "DENIED"}
    # And once it is sent again, as it is.
    assert (await caller.send("letters", text("a", LETTER, principals=["ann"])))["a"].outcome == CHANGED
    assert await caller.known_as("bob").sees(QUERY, "letters") == set()


async def test_names_beyond_the_limits_fail_their_document_alone(caller: Caller) -> None:
    await caller.create("letters")
    wrong = {
        "many": {"principals": [f"user-{number}" for number in range(1001)]},
        "long": {"principals": ["x" * 257]},
        "blank": {"principals": ["ann", " "]},
        "empty": {"principals": [""]},
        "nul": {"principals": ["a\0b"]},
        # Nobody can ask under these names.
        "comma": {"principals": ["ann", "a,b"]},
        "within": {"principals": ["ann smith"]},
        "around": {"principals": [" ann "]},
        "letters": {"principals": ["группа"]},
        "tags": {"tags": [f"tag-{number}" for number in range(101)]},
        "tag": {"tags": ["x" * 129]},
        "empty-tag": {"tags": [""]},
    }
    most = {"principals": [f"user-{number}" + "e" * 240 for number in range(1000)], "tags": ["x" * 128, "", "y"][:1]}
    documents = [text(name, f"{QUERY} {name}", **said) for name, said in wrong.items()]
    results = await caller.send("letters", *documents, text("most", QUERY, **most), text("fine", QUERY))
    assert {name for name, result in results.items() if result.outcome == NEW} == {"most", "fine"}
    for name in wrong:
        assert results[name].error.reason == errors_pb2.ERROR_REASON_INVALID_FIELD
        field = "document.tags" if "tag" in name else "document.principals"
        assert results[name].error.metadata["field"] == field
    assert await caller.sees(QUERY, "letters") == {"fine"}


async def test_administration_is_open_to_the_tenant(caller: Caller) -> None:
    """Reading what a document is called is no retrieval; what is in it is not told there."""
    await caller.create("letters", readers=["ann"])
    await caller.send("letters", text("a", LETTER, principals=["ann"]))
    assert list((await caller.document("letters", "a")).principals) == ["ann"]
    assert list((await caller.show("letters")).readers) == ["ann"]
