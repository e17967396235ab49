"""What a retriever's process is killed at: scenes of a life with documents, and a process that acts them out.

Run as a program, it forks a child for each line it reads, and writes how the child ended. A child kills itself with
SIGKILL when it reaches the step that the line names. Steps are where what is kept has changed or is about to: each
commit of a transaction, before it and after the call that it belongs to, and each write to the vector store, after it.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbmesh_retriever.catalog.sql import SqlCatalog
from kbmesh_retriever.stores.qdrant import QdrantStore
from kbmesh_rpc.errors import DocumentNotFound, KnowledgeBaseAlreadyExists, KnowledgeBaseNotFound, RebuildNotFound
from retriever.mesh_fakes import Faulty, ParagraphChunker, WordEmbedder
from retriever.workshop import Clock, Workshop
from sqlalchemy import event
from sqlalchemy.engine import Engine

TESTS = Path(__file__).parent.parent


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Where a scene plays."""

    catalog_url: str
    edge_url: str
    fingerprint: str
    """Of the model."""
    name: str
    """Of the knowledge base."""
    seconds: float = 0
    """What the clock shows."""

    async def open(self, watch: Callable[[str], None] | None = None) -> Workshop:
        """Everything that a retriever has, in this process. `watch` is told of the steps."""
        clock = Clock()
        clock.advance(self.seconds)
        catalog, store = SqlCatalog(self.catalog_url, now=clock), QdrantStore.connect(self.edge_url)
        words, paragraphs = WordEmbedder(fingerprint=self.fingerprint), ParagraphChunker()
        workshop = Workshop(
            catalog=Faulty(catalog) if watch is None else Watched(catalog, watch),
            store=Faulty(store) if watch is None else Watched(store, watch),
            chunker=Faulty(paragraphs),
            embedder=Faulty(words),
            words=words,
            paragraphs=paragraphs,
            clock=clock,
        )
        await workshop.catalog.open()
        return workshop


class Watched(Faulty):
    """Tells of each call of a port that may write: of its beginning by an empty name, and of its end by "after …"."""

    WRITES = frozenset(
        {
            *("prepare_knowledge_base", "create_knowledge_base", "abandon_knowledge_base", "delete_knowledge_base"),
            *("forget_knowledge_base", "create_rebuild", "finish_rebuild", "cancel_rebuild", "reserve_generation"),
            *("publish", "redescribe", "narrow", "abandon", "delete_document", "forget"),
            *("ensure_collection", "upsert", "delete_generations"),
        }
    )

    def __init__(self, port: Any, watch: Callable[[str], None]) -> None:
        super().__init__(port)
        self._watch = watch

    def __getattr__(self, method: str) -> Any:
        original = super().__getattr__(method)
        if method not in self.WRITES:
            return original

        async def call(*arguments: Any, **named: Any) -> Any:
            self._watch("")
            answer = await original(*arguments, **named)
            self._watch(f"after {method}")
            return answer

        return call


async def closed(workshop: Workshop) -> None:
    await workshop.store.close()
    await workshop.catalog.close()


# What a reader may see: the texts of each document's chunks.
View = dict[str, list[str]]

START: View = {"a": ["everlasting a0"], "b": ["everlasting b0", "everlasting b1"]}


async def set_up(workshop: Workshop, name: str) -> None:
    kb = await workshop.make(name, placement="shared")
    for external_id, texts in START.items():
        await workshop.ingest(kb, external_id, "\n\n".join(texts))


async def ingest(workshop: Workshop, name: str) -> None:
    """A document is replaced by a longer version, and another one comes."""
    kb = await workshop.catalog.get_knowledge_base("default", name)
    await workshop.ingest(kb, "a", "everlasting a1\n\neverlasting a2")


async def describe(workshop: Workshop, name: str) -> None:
    """A document's metadata changes, and nothing else of it."""
    kb = await workshop.catalog.get_knowledge_base("default", name)
    await workshop.ingest(kb, "b", "\n\n".join(START["b"]), metadata={"team": "search"})


async def take_away(workshop: Workshop, name: str) -> None:
    """A document is for somebody else than the reader from now on."""
    kb = await workshop.catalog.get_knowledge_base("default", name)
    await workshop.ingest(kb, "b", "\n\n".join(START["b"]), principals=("ann",))


async def delete(workshop: Workshop, name: str) -> None:
    """A document goes, and its chunks after the grace."""
    kb = await workshop.catalog.get_knowledge_base("default", name)
    with suppress(DocumentNotFound):
        await workshop.catalog.delete_document(kb.id, "b")
    await workshop.sweep()


async def come_and_go(workshop: Workshop, name: str) -> None:
    """A knowledge base is made, filled and deleted, and its collection goes after the grace."""
    with suppress(KnowledgeBaseAlreadyExists):
        await workshop.make(f"{name}-other")
    other = await workshop.catalog.get_knowledge_base("default", f"{name}-other")
    await workshop.ingest(other, "c", "everlasting c0")
    with suppress(KnowledgeBaseNotFound):
        await workshop.knowledge_bases.delete("default", f"{name}-other")
    await workshop.sweep()


async def rebuild(workshop: Workshop, name: str) -> None:
    """The whole knowledge base is taken in anew for other settings, and the old collection goes after the grace."""
    kb = await workshop.catalog.get_knowledge_base("default", name)
    successor = await workshop.rebuilds.start(kb, chunking={"size": 700}, placement="dedicated")
    for external_id, texts in START.items():
        await workshop.ingest(successor, external_id, "\n\n".join(texts))
    with suppress(RebuildNotFound):
        await workshop.catalog.finish_rebuild(kb, drop_outstanding=False)
    await workshop.sweep()


async def change_of_mind(workshop: Workshop, name: str) -> None:
    """A rebuild begins, and is given up."""
    kb = await workshop.catalog.get_knowledge_base("default", name)
    successor = await workshop.rebuilds.start(kb, chunking={"size": 800})
    await workshop.ingest(successor, "a", "everlasting a0")
    await workshop.catalog.cancel_rebuild(kb)
    await workshop.sweep()


async def deletions(workshop: Workshop, name: str) -> None:
    """A document, a rebuild and two more knowledge bases go."""
    kb = await workshop.catalog.get_knowledge_base("default", name)
    await workshop.catalog.cancel_rebuild(kb)
    await workshop.catalog.delete_document(kb.id, "a")
    await workshop.knowledge_bases.delete("default", "dedicated")
    await workshop.knowledge_bases.delete("default", "shared")


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What happens, and what a reader sees in the end. Until some step he sees START."""

    act: Callable[[Workshop, str], Any]
    end: View


SCENES = {
    "ingest": Scene(act=ingest, end=START | {"a": ["everlasting a1", "everlasting a2"]}),
    "describe": Scene(act=describe, end=START),
    "take away": Scene(act=take_away, end={"a": START["a"]}),
    "delete": Scene(act=delete, end={"a": START["a"]}),
    "come and go": Scene(act=come_and_go, end=START),
    "rebuild": Scene(act=rebuild, end=START),
    "change of mind": Scene(act=change_of_mind, end=START),
}
"""Each begins at START and may be acted again where it broke off."""


class Stage:
    """A process that acts scenes out, each time in a child of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def act(self, scene: str, setting: Setting, *, die_at: int) -> str:
        """The step before which the process died, or empty where the scene came to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"scene": scene, "die_at": die_at, "setting": vars(setting)}) + "\n")
        self._process.stdin.flush()
        ended: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert ended["signal"] in (0, signal.SIGKILL), ended
        assert ended["code"] == 0, ended
        step: str = ended["step"]
        assert bool(step) == (ended["signal"] == signal.SIGKILL), ended
        return step


@contextmanager
def stage() -> Iterator[Stage]:
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-W", "ignore", "-m", "retriever.kill_scenes"]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Stage(process)
        assert process.stdin is not None
        process.stdin.close()


def _main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _act(order["scene"], Setting(**order["setting"]), order["die_at"], writing)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            step = pipe.read()
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        sys.stdout.write(json.dumps({"step": step, "signal": max(0, -code), "code": max(0, code)}) + "\n")
        sys.stdout.flush()


def _act(scene: str, setting: Setting, die_at: int, pipe: int) -> None:
    reached, writes = 0, False

    def step(name: str) -> None:
        nonlocal reached, writes
        writes = not name
        if writes:
            return
        if reached == die_at:
            os.write(pipe, name.encode())
            os.kill(os.getpid(), signal.SIGKILL)
        reached += 1

    async def act() -> None:
        workshop = await setting.open(step)
        # Commits of nothing, such as those of a sweeper that finds nothing due, are no steps.
        event.listen(Engine, "commit", lambda _: step("before a commit") if writes else None)
        await (deletions if scene == "deletions" else SCENES[scene].act)(workshop, setting.name)
        await closed(workshop)

    asyncio.run(act())


if __name__ == "__main__":
    _main()
