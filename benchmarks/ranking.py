"""Ranking passages as a knowledge base would: by vectors, by words and by both."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from math import log
from pathlib import Path
from uuid import UUID

import numpy as np
from kbmesh_chunker.token_counter import TokenCount, TokenCounts
from kbmesh_onnx.padding import pad
from kbmesh_onnx.pull import pull_model
from kbmesh_onnx.session import ModelSession
from kbmesh_onnx.tokenizer import ModelTokenizer
from kbmesh_retriever.keywords.analyser import encode_document, encode_query
from kbmesh_retriever.retrieve.fusion import Entry, reciprocal_rank_fusion
from numpy.typing import NDArray

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
LIST_LENGTH = 20
"""Hits that a knowledge base is asked for in each list."""
_BATCH_TEXTS = 32

Floats = NDArray[np.float32]
Ranking = list[int]
"""Places of the passages, best first, LIST_LENGTH at most."""
Scored = list[tuple[int, float]]
"""Places of the passages with their scores, best first."""


class Encoder:
    """An embedding model in process. Counts tokens for the chunker, as the embedder does."""

    def __init__(self, models_folder: Path, *, model: str = MODEL) -> None:
        """Exports the model into `models_folder` unless it is there. Raises PullError or ExportError."""
        self.card = pull_model(model, models_folder)
        folder = models_folder / self.card.name
        self._tokenizer = ModelTokenizer.load(folder, self.card)
        self._session = ModelSession.open(folder, self.card)
        self._kept = models_folder / f"{self.card.name}.{self.card.fingerprint[:16]}.embeddings.npz"
        self._known = _read_vectors(self._kept)

    def close(self) -> None:
        """Frees the model."""
        self._session.close()

    async def count(self, texts: Sequence[str], *, model: str, offsets: bool) -> TokenCounts:
        """What TokenCounter asks for. There is one model, whatever `model` is."""
        counts = []
        for text, tokens in zip(texts, self._tokenizer.count(texts, self.card.document_prefix), strict=True):
            starts, ends = self._tokenizer.offsets(text) if offsets else (np.array([]), np.array([]))
            counts.append(TokenCount(tokens=tokens, starts=starts.tolist(), ends=ends.tolist()))
        return TokenCounts(counts=counts, max_tokens=self.card.max_tokens, model_fingerprint=self.card.fingerprint)

    def embed(self, texts: Sequence[str], *, query: bool, progress: Callable[[str], None]) -> Floats:
        """(n, dimension) float32, unit length. What was embedded before, be it in another run, is not embedded again:
        vectors are kept beside the model."""
        prefix = self.card.query_prefix if query else self.card.document_prefix
        wanted = {_digest(prefix + text): prefix + text for text in texts}
        fresh = sorted(wanted.keys() - self._known.keys(), key=lambda key: (len(wanted[key]), key))
        for start in range(0, len(fresh), _BATCH_TEXTS):
            batch = fresh[start : start + _BATCH_TEXTS]
            rows = self._tokenizer.encode([wanted[key] for key in batch], max_tokens=self.card.max_tokens)
            vectors = self._session.run(*pad(rows), outputs=("embeddings",))[0]
            self._known.update(zip(batch, vectors, strict=True))
            if start // _BATCH_TEXTS % 20 == 0:
                progress(f"embedding {start} of {len(fresh)} texts")
                _write_vectors(self._kept, self._known)
        if fresh:
            _write_vectors(self._kept, self._known)
        return np.stack([self._known[_digest(prefix + text)] for text in texts])

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text as the model reads them."""
        return self._tokenizer.count(texts, self.card.document_prefix)


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _read_vectors(path: Path) -> dict[str, Floats]:
    if not path.is_file():
        return {}
    with np.load(path) as kept:
        return dict(zip(kept["keys"].tolist(), kept["vectors"], strict=True))


def _write_vectors(path: Path, vectors: Mapping[str, Floats]) -> None:
    if vectors:
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, keys=np.array(list(vectors)), vectors=np.stack(list(vectors.values())))
        partial.replace(path)


def rank_by_vectors(passages: Floats, queries: Floats) -> list[Ranking]:
    """By cosine. Passages whose vector is zero are not embedded and not found."""
    return _places(score_by_vectors(passages, queries))


def score_by_vectors(passages: Floats, queries: Floats, *, length: int = LIST_LENGTH) -> list[Scored]:
    """As `rank_by_vectors`, with the cosines."""
    embedded = np.flatnonzero(passages.any(axis=1))
    scores = queries @ passages[embedded].T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :length]
    return [
        [(int(embedded[place]), float(of_query[place])) for place in row]
        for row, of_query in zip(order, scores, strict=True)
    ]


def rank_by_words(passages: Sequence[str], queries: Sequence[str]) -> list[Ranking]:
    """By BM25, with the retriever's analyser and the store's inverse document frequency."""
    return _places(score_by_words(passages, queries))


def score_by_words(passages: Sequence[str], queries: Sequence[str], *, length: int = LIST_LENGTH) -> list[Scored]:
    """As `rank_by_words`, with the scores."""
    postings: dict[int, list[tuple[int, float]]] = {}
    for place, passage in enumerate(passages):
        vector = encode_document(passage)
        for term, value in zip(vector.indices, vector.values, strict=True):
            postings.setdefault(term, []).append((place, value))
    rankings = []
    for query in queries:
        scores: dict[int, float] = defaultdict(float)
        vector = encode_query(query)
        for term, weight in zip(vector.indices, vector.values, strict=True):
            holding = postings.get(term, [])
            rarity = log(1 + (len(passages) - len(holding) + 0.5) / (len(holding) + 0.5))
            for place, value in holding:
                scores[place] += weight * value * rarity
        best = sorted(scores, key=lambda place: (-scores[place], place))[:length]
        rankings.append([(place, scores[place]) for place in best])
    return rankings


def _places(rankings: Sequence[Scored]) -> list[Ranking]:
    return [[place for place, _ in ranking] for ranking in rankings]


def fuse(by_words: Sequence[Ranking], by_vectors: Sequence[Ranking]) -> list[Ranking]:
    """Both lists of each query by reciprocal rank fusion, one of the retriever's methods."""
    return [
        [fused.key.int for fused in reciprocal_rank_fusion([_entries(words), _entries(vectors)])][:LIST_LENGTH]
        for words, vectors in zip(by_words, by_vectors, strict=True)
    ]


def _entries(ranking: Ranking) -> list[Entry[UUID]]:
    return [Entry(key=UUID(int=place), score=-rank) for rank, place in enumerate(ranking)]
