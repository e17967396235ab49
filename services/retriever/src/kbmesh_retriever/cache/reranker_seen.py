"""Which model reranks, as its answers tell."""

from collections.abc import Sequence

from kbmesh_retriever.mesh.port import Reranked, RerankerPort


class RerankerSeen:
    """A `RerankerPort` that remembers who answered last. Asking would cost a call for each kept answer, and a reranker
    that is down would make them useless."""

    def __init__(self, inner: RerankerPort) -> None:
        self._inner = inner
        self.model: str | None = None
        """Name and fingerprint of the model that reranked last; None before."""

    async def rerank(self, query: str, documents: Sequence[str]) -> Reranked:
        reranked = await self._inner.rerank(query, documents)
        self.model = f"{reranked.model} {reranked.fingerprint}"
        return reranked
