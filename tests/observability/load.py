"""What callers do with a mesh: documents go in, questions are asked, some of both are wrong."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

from kbmesh_client import ChunkingConfig, IngestDocument, KbmeshClient, KbmeshError, KnowledgeBaseAlreadyExists

SEED = 99
_WORDS = (
    "backup restore customer engineer on-call runbook cluster probe latency revision rollback node disk quota",
    "certificate queue token batch model index vector keyword ticket incident release pipeline",
)
_VOCABULARY = " ".join(_WORDS).split()


def sentence(chance: random.Random) -> str:
    return " ".join(chance.choice(_VOCABULARY) for _ in range(12)).capitalize() + "."


def documents(count: int, *, seed: int = SEED, prefix: str = "doc") -> Iterator[IngestDocument]:
    """Documents of several chunks, no two alike."""
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        text = "\n\n".join(" ".join(sentence(chance) for _ in range(12)) for _ in range(4))
        yield IngestDocument(external_id=f"{prefix}-{number}", content=f"# {prefix} {number}\n\n{text}")


def make(client: KbmeshClient, name: str, chunking: ChunkingConfig | None = None) -> None:
    with suppress(KnowledgeBaseAlreadyExists):
        client.create_knowledge_base(name, chunking=chunking)


def take_in(client: KbmeshClient, name: str, count: int, *, seed: int = SEED, prefix: str = "doc") -> list[str]:
    """Their outcomes, with one among them that cannot be read."""
    broken = IngestDocument(external_id=f"{prefix}-broken", content=b"%PDF-1.4 broken", media_type="application/pdf")
    given = [*documents(count, seed=seed, prefix=prefix), broken]
    return [str(result.outcome.value) for result in client.ingest(name, given)]


def ask(client: KbmeshClient, name: str, count: int, *, seed: int = SEED, **options: object) -> int:
    """How many of so many questions were answered."""
    chance, answered = random.Random(f"questions {seed}"), 0
    for _ in range(count):
        with suppress(KbmeshError):
            client.retrieve(sentence(chance), name, **options)  # type: ignore[arg-type]  # names are the SDK's own
            answered += 1
    return answered


def at_once(*works: Callable[[], object]) -> None:
    """Does all of them in threads and waits for the last."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
