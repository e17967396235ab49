"""What each model says of passages for a query, in process, kept from run to run.

Passages are read up to the model's limit, in one window. Scores are kept in a file beside the model, by its
fingerprint, so that a run that was broken off goes on.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from math import log
from pathlib import Path

import numpy as np
from kbmesh_onnx.device_settings import DeviceSettings
from kbmesh_onnx.folder import ModelCard, load_card
from kbmesh_onnx.padding import pad
from kbmesh_onnx.session import ModelSession
from kbmesh_onnx.tokenizer import ModelTokenizer, TokenizedText
from numpy.typing import NDArray

BATCH_TOKENS = 1024
SAVED_EVERY_SECONDS = 30.0
THREADS = 1

Floats = NDArray[np.float32]
Progress = Callable[[str], None]


class Kept:
    """Numbers by key, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values: dict[str, float] = {}
        if path.is_file():
            with np.load(path) as stored:
                self._values = dict(zip(stored["keys"].tolist(), stored["values"].tolist(), strict=True))
        self._saved = time.monotonic()

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __getitem__(self, key: str) -> float:
        return self._values[key]

    def update(self, values: Mapping[str, float]) -> None:
        """Adds them, and writes the file now and then."""
        self._values.update(values)
        if time.monotonic() - self._saved > SAVED_EVERY_SECONDS:
            self.save()

    def save(self) -> None:
        """Writes the file, whole or not at all."""
        if self._values:
            partial = self._path.with_suffix(".partial.npz")
            np.savez(partial, keys=np.array(list(self._values)), values=np.array(list(self._values.values())))
            partial.replace(self._path)
        self._saved = time.monotonic()


class CrossEncoder:
    """Logits of pairs."""

    def __init__(self, folder: Path, *, precision: str) -> None:
        """Raises ModelFolderError where the folder has no such model or precision."""
        self._card = load_card(folder)
        self._session = _open(folder, self._card, precision)
        self._tokenizer = ModelTokenizer.load(folder, self._card)
        self._kept = Kept(folder.parent / f"{self._card.name}.{self._card.fingerprint[:16]}.{precision}.logits.npz")

    def close(self) -> None:
        """Frees the model, and keeps what it said."""
        self._kept.save()
        self._session.close()

    def score(self, query: str, passages: Sequence[str], *, fresh: bool = False) -> list[float]:
        """Logits, in the order of the passages. `fresh` computes what is known, too."""
        keys = [_digest(query, passage) for passage in passages]
        missing = [place for place, key in enumerate(keys) if fresh or key not in self._kept]
        pairs = self._tokenizer.encode_pairs(
            query,
            [passages[place] for place in missing],
            max_tokens=self._card.max_tokens,
            windows=1,
        )
        rows = [pair.windows[0] for pair in pairs]
        for batch in _batches(rows):
            (logits,) = self._session.run(*pad([rows[row] for row in batch]), outputs=("logits",))
            self._kept.update(
                {keys[missing[row]]: float(logit) for row, logit in zip(batch, logits[:, 0], strict=True)}
            )
        return [self._kept[key] for key in keys]


class LateInteraction:
    """MaxSim by the token vectors of an embedding model, plain and weighted by the rarity of the query's tokens."""

    def __init__(self, folder: Path) -> None:
        """Raises ModelFolderError where the folder has no encoder."""
        self._card = load_card(folder)
        self._session = _open(folder, self._card, "fp32")
        self._tokenizer = ModelTokenizer.load(folder, self._card)
        kept = f"{self._card.name}.{self._card.fingerprint[:16]}"
        self._plain, self._weighted = (
            Kept(folder.parent / f"{kept}.{name}.npz") for name in ("max_sim", "weighted_max_sim")
        )
        self._vectors: dict[str, Floats] = {}
        self._rarity: dict[int, float] = {}
        self._corpus = ""

    def close(self) -> None:
        """Frees the model, and keeps what it said."""
        self._plain.save()
        self._weighted.save()
        self._session.close()

    def read(self, passages: Sequence[str]) -> None:
        """Counts in how many passages of a set each token stands: its rarity there."""
        counts: Counter[int] = Counter()
        for start in range(0, len(passages), 512):
            rows = self._tokenizer.encode(passages[start : start + 512], max_tokens=self._card.max_tokens)
            for row in rows:
                counts.update(set(row.ids.tolist()))
        total = len(passages)
        self._rarity = {token: log(1 + (total - count + 0.5) / (count + 0.5)) for token, count in counts.items()}
        self._rarest = log(1 + (total + 0.5) / 0.5)
        self._corpus = _digest(*passages)
        self._vectors.clear()

    def score(self, query: str, passages: Sequence[str], *, fresh: bool = False) -> tuple[list[float], list[float]]:
        """MaxSim, and that weighted by rarity in what was `read`, in the order of the passages."""
        keys = [_digest(query, passage) for passage in passages]
        weighted_keys = [_digest(self._corpus, key) for key in keys]
        if fresh:
            self._vectors.clear()
        if (
            fresh
            or any(key not in self._plain for key in keys)
            or any(key not in self._weighted for key in weighted_keys)
        ):
            (asked,) = self._tokenizer.encode([query], max_tokens=self._card.max_tokens)
            (of_query,) = self._token_vectors([asked])
            weights = np.array([self._rarity.get(token, self._rarest) for token in asked.ids.tolist()[1:-1]])
            unread = [passage for passage in dict.fromkeys(passages) if passage not in self._vectors]
            rows = self._tokenizer.encode(unread, max_tokens=self._card.max_tokens)
            self._vectors.update(zip(unread, self._token_vectors(rows), strict=True))
            for key, weighted_key, passage in zip(keys, weighted_keys, passages, strict=True):
                best = (of_query @ self._vectors[passage].T).max(axis=1)
                self._plain.update({key: float(best.mean())})
                self._weighted.update({weighted_key: float((best * weights).sum() / max(weights.sum(), 1e-9))})
        return [self._plain[key] for key in keys], [self._weighted[key] for key in weighted_keys]

    def _token_vectors(self, rows: Sequence[TokenizedText]) -> list[Floats]:
        """Of unit length, without the special tokens at both ends."""
        found: dict[int, Floats] = {}
        for batch in _batches(rows):
            (hidden,) = self._session.run(*pad([rows[row] for row in batch]), outputs=("token_embeddings",))
            for place, row in enumerate(batch):
                tokens = hidden[place, 1 : len(rows[row].ids) - 1]
                found[row] = tokens / np.maximum(np.linalg.norm(tokens, axis=1, keepdims=True), 1e-12)
        return [found[row] for row in range(len(rows))]


def _open(folder: Path, card: ModelCard, precision: str) -> ModelSession:
    settings = DeviceSettings(precision="int8" if precision == "int8" else "fp32")
    return ModelSession.open(folder, card, settings=settings, intra_op_threads=THREADS)


def _batches(rows: Sequence[TokenizedText]) -> list[list[int]]:
    """Places of the rows, of like length together."""
    batches: list[list[int]] = []
    for row in sorted(range(len(rows)), key=lambda place: len(rows[place].ids)):
        if not batches or (len(batches[-1]) + 1) * len(rows[row].ids) > BATCH_TOKENS:
            batches.append([])
        batches[-1].append(row)
    return batches


def _digest(*texts: str) -> str:
    digest = sha256()
    for text in texts:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:24]
