"""Slack documents that were read and hold nothing, or nothing any more: what was said before is to go."""

import json

import pytest
from chunker.conftest import Chunk
from chunker.counters import MODEL
from chunker.slack_files import reading, said, zipped
from kbmesh.chunker.v1 import chunker_pb2 as pb
from kbmesh.chunker.v1 import chunker_pb2_grpc
from kbmesh.errors.v1 import errors_pb2
from kbmesh_chunker.config import SizeUnit, Strategy
from kbmesh_chunker.documents.source import SlackLayout
from kbmesh_rpc.errors import DocumentEmpty, Reason

SAID = said("10.000100", "the password is blue")
DELETED = {
    "type": "message",
    "subtype": "message_deleted",
    "ts": "20.000100",
    "deleted_ts": "10.000100",
    "previous_message": SAID,
}
JOINED = said("1.1", "<@U1> has joined the channel", subtype="channel_join")
GONE = {
    "a deleted message": [SAID, DELETED],
    "the news of a deletion": [DELETED],
    "a deletion that says nothing": [{"subtype": "message_deleted", "ts": "20.0001", "deleted_ts": "10.0001"}],
    "who came": [JOINED],
    "what Slack hides": [{**SAID, "hidden": True}],
    "a file that is gone": [said("1.1", "", files=[{"mode": "tombstone"}])],
}


@pytest.mark.parametrize("messages", GONE.values(), ids=GONE)
@pytest.mark.parametrize("shape", ["day", "answer", "export"])
async def test_what_holds_no_messages_gives_no_chunks_and_says_why(chunk: Chunk, messages: object, shape: str) -> None:
    content: str | bytes = json.dumps(messages)
    if shape == "answer":
        content = json.dumps({"channel": {"id": "C1", "name": "ops"}, "messages": messages})
    elif shape == "export":
        content = zipped({"channels.json": [{"id": "C1", "name": "ops"}], "ops/2016-01-14.json": messages})
    chunked = await chunk(content, filename="export.zip" if shape == "export" else "ops/2016-01-14.json")
    assert (chunked.chunks, chunked.document.text) == ([], "")
    assert chunked.document.title == "#ops"
    (warning,) = chunked.warnings
    assert warning.reason is Reason.CONTENT_LEFT_OUT
    assert set(warning.metadata.values()) == {"1"}


@pytest.mark.parametrize("strategy", sorted(set(Strategy) - {Strategy.PROPOSITION, Strategy.SIMILARITY}))
async def test_by_every_strategy_and_unit(chunk: Chunk, strategy: Strategy) -> None:
    content = json.dumps([SAID, DELETED])
    assert (await chunk(content, filename="ops/2016-01-14.json", strategy=strategy)).chunks == []
    counted = await chunk(
        content, filename="x.json", strategy=strategy, unit=SizeUnit.TOKENS, size=64, embedding_model=MODEL
    )
    assert counted.chunks == []


@pytest.mark.parametrize("content", ["[]", '{"messages": []}', '{"ok": true, "messages": [], "channel": "C1"}'])
async def test_an_answer_without_messages_where_the_caller_says_that_it_is_of_slack(chunk: Chunk, content: str) -> None:
    chunked = await chunk(content, media_type="application/json", strategy=Strategy.SLACK)
    assert chunked.chunks == []
    assert chunked.config.strategy is Strategy.SLACK
    assert [warning.reason for warning in chunked.warnings] == [Reason.CONTENT_LEFT_OUT]


async def test_over_the_wire(stub: chunker_pb2_grpc.ChunkerServiceStub) -> None:
    """What `kbmesh ingest` gets for the second sync of a channel: an answer, and not an error."""
    for messages, chunks in ([SAID], 1), ([DELETED], 0):
        document = pb.Document(data=json.dumps(messages).encode(), filename="ops/2016-01-14.json")
        response = await stub.Chunk(pb.ChunkRequest(document=document, return_text=True))
        assert len(response.chunks) == response.summary.total == chunks
        assert response.summary.source_type == pb.SOURCE_TYPE_SLACK
        assert response.summary.strategy == pb.STRATEGY_SLACK
    (warning,) = response.summary.warnings
    assert warning.reason == errors_pb2.ERROR_REASON_CONTENT_LEFT_OUT
    assert warning.metadata["deleted_messages"] == "1"


def test_blank_files_of_other_kinds_are_errors_still() -> None:
    for content, name in ((b" \n", "a.txt"), (b"", "ops/2016-01-14.json"), (b"\n", "a.md")):
        with pytest.raises(DocumentEmpty):
            reading(content, filename=name)


def test_an_empty_channel_in_a_mail_leaves_the_mail() -> None:
    mail = (
        "From: ada@example.com\nSubject: export\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n"
        "--b\nContent-Type: text/plain\n\nSee the channel.\n"
        "--b\nContent-Type: application/json\nContent-Disposition: attachment; filename=ops.json\n\n"
        f"{json.dumps([JOINED])}\n--b--\n"
    )
    document = reading(mail.encode(), media_type="message/rfc822")
    assert document.text == "See the channel."
    assert not any(isinstance(part.document.layout, SlackLayout) for part in document.parts)
    assert Reason.CONTENT_LEFT_OUT in {warning.reason for warning in document.warnings}
