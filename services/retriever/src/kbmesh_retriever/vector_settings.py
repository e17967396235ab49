"""What decides the vectors of a knowledge base, its model and its way of chunking, checked by who serves them."""

from collections.abc import Mapping
from typing import Any

from kbmesh_rpc.errors import FeatureUnsupported, InvalidField

from kbmesh_retriever.mesh.port import ChunkerPort, EmbedderPort, ModelInfo, SourceDocument

_CHUNKING = "knowledge_base.chunking"


class VectorSettings:
    """Asks chunker and embedder."""

    def __init__(self, chunker: ChunkerPort, embedder: EmbedderPort) -> None:
        self._chunker = chunker
        self._embedder = embedder

    async def check(self, chunking: Mapping[str, Any], embedding_model: str) -> ModelInfo:
        """The model, where documents can be cut and embedded by these settings; the embedder's default for an empty
        name. Raises InvalidField, ModelNotFound or FeatureUnsupported, and the errors of both services."""
        await self._check_strategy(chunking)
        model = await self._embedder.find_model(embedding_model)
        token_limit_of = chunking.get("embedding_model", "")
        if token_limit_of not in ("", model.name):
            raise InvalidField(f"{_CHUNKING}.embedding_model", f"must be the knowledge base's own, {model.name!r}")
        if chunking:
            await self._check_chunking(chunking, model.name)
        return model

    async def _check_strategy(self, chunking: Mapping[str, Any]) -> None:
        strategy = chunking.get("strategy", "STRATEGY_AUTO")
        if strategy != "STRATEGY_AUTO" and strategy not in await self._chunker.strategies():
            raise FeatureUnsupported(f"chunking strategy {strategy.removeprefix('STRATEGY_')}")

    async def _check_chunking(self, chunking: Mapping[str, Any], embedding_model: str) -> None:
        """Has the chunker cut a word by these settings: it alone knows what is left out of them, and what it serves.
        Raises InvalidField for settings by which no document could be cut."""
        probe = SourceDocument(content="kbmesh", media_type="text/plain")
        try:
            await self._chunker.chunk(probe, chunking=chunking, embedding_model=embedding_model)
        except InvalidField as error:
            field = error.metadata.get("field", "")
            said = next((violation.description for violation in error.field_violations), error.message)
            raise InvalidField(f"{_CHUNKING}.{field.removeprefix('config.')}", said) from error
