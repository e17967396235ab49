"""`kbmesh.load.v1`: what this process has to do."""

from collections.abc import Callable, Mapping
from typing import Protocol
from uuid import uuid4

import grpc
from kbmesh.load.v1 import load_pb2 as pb2
from kbmesh.load.v1 import load_pb2_grpc


class Load(Protocol):
    """The work of one model."""

    @property
    def queued_interactive_tokens(self) -> int: ...
    @property
    def queued_bulk_tokens(self) -> int: ...
    @property
    def running_tokens(self) -> int: ...


class LoadServicer(load_pb2_grpc.LoadServiceServicer):
    """Tells the load of each model."""

    def __init__(self, loads: Callable[[], Mapping[str, Load]], *, instance: str | None = None) -> None:
        self._loads = loads
        self._instance = instance or uuid4().hex

    async def GetLoad(self, request: pb2.GetLoadRequest, context: grpc.ServicerContext) -> pb2.GetLoadResponse:
        """The load now."""
        return pb2.GetLoadResponse(
            instance=self._instance,
            models=[
                pb2.ModelLoad(
                    model=model,
                    queued_interactive_tokens=load.queued_interactive_tokens,
                    queued_bulk_tokens=load.queued_bulk_tokens,
                    running_tokens=load.running_tokens,
                )
                for model, load in self._loads().items()
            ],
        )
