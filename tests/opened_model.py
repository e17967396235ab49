"""A model folder with its tokenizer and a session for each form."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from kbmesh_onnx.folder import ModelCard
from kbmesh_onnx.session import ModelSession, Output
from kbmesh_onnx.tokenizer import ModelTokenizer, TokenizedText
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class OpenedModel:
    """A model folder with everything opened."""

    folder: Path
    card: ModelCard
    tokenizer: ModelTokenizer
    sessions: dict[str, ModelSession]

    @classmethod
    def open(cls, folder: Path, card: ModelCard) -> "OpenedModel":
        sessions = {form: ModelSession.open(folder, card, form=form) for form in card.forms}
        return cls(folder, card, ModelTokenizer.load(folder, card), sessions)

    def run(self, rows: list[TokenizedText], output: Output, *, form: str = "plain", length: int = 0) -> Floats:
        """Run rows as one batch, padded to the longest or to `length`."""
        shape = (len(rows), max(length, *(row.tokens for row in rows)))
        ids, mask, types = (np.zeros(shape, dtype=np.int64) for _ in range(3))
        for index, row in enumerate(rows):
            ids[index, : row.tokens], types[index, : row.tokens], mask[index, : row.tokens] = row.ids, row.type_ids, 1
        return self.sessions[form].run(ids, mask, types, outputs=(output,))[0]

    def embed(self, texts: list[str], *, form: str = "plain", length: int = 0) -> Floats:
        return self.run(self.tokenizer.encode(texts, max_tokens=256), "embeddings", form=form, length=length)

    def close(self) -> None:
        for session in self.sessions.values():
            session.close()
