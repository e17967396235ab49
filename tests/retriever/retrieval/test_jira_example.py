"""Somebody asks for the permanent fix of a ticket and gets it, first in both lists."""

import pytest
from kbmesh_retriever.retrieve.stage import Status, Strategy
from retrieval_world import World, statuses_of, texts_of

OUTAGE = "JIRA-4815: checkout was down for 40 minutes on Monday. Customers saw HTTP 503 from the payment gateway."
WORKAROUND = "As a workaround for JIRA-4815, restart the payment pods whenever their connection pool is exhausted."
FIX = "The permanent fix for JIRA-4815 is to close idle database connections in the payment service, shipped in 2.14.1."
OTHER_TICKET = "JIRA-4816: the export button is grey on Safari. Not reproduced on other browsers yet."
NOTE = "Lunch on Friday moves to the small kitchen because the large one is being painted."
QUESTION = "What is the permanent fix for JIRA-4815?"


@pytest.fixture
async def tickets(minilm_world: World) -> World:
    await minilm_world.make("tickets", OUTAGE, WORKAROUND, FIX, OTHER_TICKET, NOTE)
    return minilm_world


async def test_the_fix_is_first_in_both_lists(tickets: World) -> None:
    answer = await tickets.ask(QUESTION, "tickets", strategy=Strategy.HYBRID)
    first = answer.results[0].place.candidate
    assert first.fragment.text == FIX
    assert (first.ranks.vector, first.ranks.keyword, first.ranks.fused) == (1, 1, 1)
    assert first.scores.fused == pytest.approx(1), "the best of both lists"
    assert first.scores.final == first.scores.fused
    assert first.scores.vector is not None
    assert 0.5 < first.scores.vector <= 1
    assert (first.scores.rerank_logit, first.scores.rerank_probability, first.scores.max_sim) == (None, None, None)
    assert texts_of(answer).index(WORKAROUND) < texts_of(answer).index(OTHER_TICKET)
    assert NOTE not in texts_of(answer), "below the vector threshold and without a word of the question"
    assert statuses_of(answer) == {"tickets": Status.OK}
    assert answer.degradations == ()


async def test_the_answer_can_be_cited_and_pasted(tickets: World) -> None:
    answer = await tickets.ask(QUESTION, "tickets")
    assert answer.context is not None
    assert answer.context.text.startswith(f"[1] Doc-3 (tickets) https://docs.example/doc-3\n{FIX}\n\n[2] ")
    assert not answer.context.estimated
    (counted,) = await tickets.embedder.count_tokens([answer.context.text], model="")
    assert answer.context.tokens == counted
    assert [result.citation for result in answer.results] == [1, 2, 3, 4][: len(answer.results)]
    first = answer.results[0]
    assert first.place.document.external_id == "doc-3"
    assert first.preview == FIX[: len(first.preview) - 1].rstrip() + "…" or first.preview == FIX


async def test_the_same_question_has_the_same_answer(tickets: World) -> None:
    one, other = [await tickets.ask(QUESTION, "tickets") for _ in range(2)]
    assert one.results == other.results
    assert one.context == other.context


@pytest.mark.parametrize("query", ["JIRA-4815", "jira 4815", "4815"])
async def test_ret_11_the_ticket_number_alone_finds_its_ticket(tickets: World, query: str) -> None:
    """RET-11."""
    answer = await tickets.ask(query, "tickets")
    texts = texts_of(answer)
    assert all("4815" in text for text in texts[:3])


async def test_vectors_alone_know_nothing_of_words(tickets: World) -> None:
    answer = await tickets.ask(QUESTION, "tickets", strategy=Strategy.VECTOR_ONLY)
    assert texts_of(answer)[0] == FIX
    assert answer.results[0].place.candidate.scores.keyword is None
    assert answer.results[0].place.candidate.scores.fused == pytest.approx(1)
