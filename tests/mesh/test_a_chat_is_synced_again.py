"""A chat is exported and taken in again and again: what came between is found, wherever in the chat it stands."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from mesh_process import Mesh

DAY = 86_400
ROOT = 1_700_000_000
Message = dict[str, object]


def export(folder: Path, messages: list[Message]) -> Path:
    """The folder of a Slack export with one channel, as Slack writes it: a file of each day."""
    (folder / "ops").mkdir(parents=True, exist_ok=True)
    (folder / "users.json").write_text(json.dumps([{"id": "U1", "name": "ada"}, {"id": "U2", "name": "bob"}]))
    (folder / "channels.json").write_text(json.dumps([{"id": "C1", "name": "ops"}]))
    days: dict[str, list[Message]] = {}
    for message in messages:
        day = datetime.fromtimestamp(float(str(message["ts"])), UTC).date().isoformat()
        days.setdefault(day, []).append({"type": "message", **message})
    for day, sent in days.items():
        (folder / "ops" / f"{day}.json").write_text(json.dumps(sent))
    return folder


def found(mesh: Mesh, knowledge_base: str, words: str) -> list[str]:
    """The texts that hold all these words."""
    answer = mesh.json("search", words, "--kb", knowledge_base, "--strategy", "hybrid", "--top-k", "20")
    return [
        result["text"]
        for result in answer["results"]
        if all(word in f"{result['context']} {result['text']}" for word in words.split())
    ]


@pytest.mark.timeout(180)
def test_ing_09_a_reply_to_an_old_thread_is_found_after_the_next_sync(shared_mesh: Mesh, tmp_path: Path) -> None:
    """ING-09. It comes two days after its thread, and other messages lie between."""
    shared_mesh.json("kb", "create", "chat-replies")
    thread = f"{ROOT}.000100"
    root: Message = {"ts": thread, "user": "U1", "text": "Does the pump in hall zinnober still leak?"}
    between: Message = {"ts": f"{ROOT + DAY}.000100", "user": "U2", "text": "The canteen serves noodles today."}
    folder = export(tmp_path / "acme", [root, between])
    assert shared_mesh.json("ingest", "chat-replies", folder)["new"] == 1
    assert not found(shared_mesh, "chat-replies", "gasket quokka")

    reply: Message = {
        "ts": f"{ROOT + 2 * DAY}.000100",
        "thread_ts": thread,
        "parent_user_id": "U1",
        "user": "U2",
        "text": "No, the gasket quokka was replaced this morning.",
    }
    # As Slack does: the root counts its replies, and the reply stands in the file of its own day.
    root |= {"thread_ts": thread, "reply_count": 1, "latest_reply": reply["ts"], "reply_users": ["U2"]}
    export(folder, [root, between, reply])
    assert shared_mesh.json("ingest", "chat-replies", folder)["changed"] == 1
    (text,) = found(shared_mesh, "chat-replies", "gasket quokka")
    assert "zinnober" in text, "the reply stands with what it answers"
    again = shared_mesh.json("ingest", "chat-replies", folder)
    assert (again["unchanged"], again["embedded"]) == (1, 0)


@pytest.mark.timeout(180)
def test_ing_10_a_message_older_than_the_newest_reply_is_not_passed_over(shared_mesh: Mesh, tmp_path: Path) -> None:
    """ING-10. The first export ended at 100 s and yet has a reply of 110 s; the message of 105 s comes with the next
    one. Content tells what is new, and no cursor."""
    shared_mesh.json("kb", "create", "chat-cursor")
    thread = f"{ROOT + 50}.000000"
    root: Message = {"ts": thread, "thread_ts": thread, "reply_count": 1, "user": "U1", "text": "Is anybody at work?"}
    reply: Message = {"ts": f"{ROOT + 110}.000000", "thread_ts": thread, "user": "U2", "text": "Yes, with the wombat."}
    folder = export(tmp_path / "acme", [root, reply])
    shared_mesh.json("ingest", "chat-cursor", folder)
    assert found(shared_mesh, "chat-cursor", "wombat")

    late: Message = {"ts": f"{ROOT + 105}.000000", "user": "U1", "text": "The narwhal valve is closed now."}
    export(folder, [root, late, reply])
    assert shared_mesh.json("ingest", "chat-cursor", folder)["changed"] == 1
    assert found(shared_mesh, "chat-cursor", "narwhal valve")
    assert found(shared_mesh, "chat-cursor", "wombat")
