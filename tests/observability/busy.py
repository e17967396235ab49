"""A load on a mesh that makes every panel of the dashboards show something: work, and some of each kind of failure."""

import time
from contextlib import suppress

from kbmesh_client import KbmeshError
from observability.load import ask, at_once, make, take_in
from observability.watched_mesh import WatchedMesh


def keep_busy(mesh: WatchedMesh, *, seconds: float, faults: bool = True) -> None:
    """Several callers for so long, with a reranker that dies and comes back, and callers with little time."""
    end = time.monotonic() + seconds
    with mesh.client() as client:
        make(client, "busy")
        take_in(client, "busy", 20)

    def readers(seed: int) -> None:
        number = 0
        with mesh.client(tenant="default") as client:
            while time.monotonic() < end:
                number += 1
                strategy = ("HYBRID_RERANK", "HYBRID_RERANK", "HYBRID", "VECTOR_ONLY")[number % 4]
                ask(client, "busy", 2, seed=seed + number % 40, strategy=strategy)

    def writers() -> None:
        number = 0
        with mesh.client() as client:
            while time.monotonic() < end:
                number += 1
                take_in(client, "busy", 6, seed=number, prefix=f"doc{number % 3}")
                with suppress(KbmeshError):
                    client.delete_document("busy", f"doc{number % 3}-0")

    def clumsy() -> None:
        with mesh.client(timeout_seconds=0.06) as hasty, mesh.client() as client:
            while time.monotonic() < end:
                ask(hasty, "busy", 1, seed=int(time.monotonic() * 1000))
                ask(client, "nowhere", 1)
                with suppress(KbmeshError):
                    client.retrieve(" ", "busy")
                time.sleep(0.2)

    def faulty() -> None:
        if not faults:
            return
        time.sleep(seconds / 3)
        mesh.kill("reranker")
        time.sleep(seconds / 4)
        mesh.start("reranker")

    with mesh.client() as client:
        make(client, "rebuilt")
        with suppress(KbmeshError):
            client.rebuild_knowledge_base("rebuilt")
            client.cancel_rebuild("rebuilt")
    at_once(lambda: readers(0), lambda: readers(1000), writers, clumsy, faulty)
