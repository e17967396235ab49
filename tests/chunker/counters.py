"""Counters of tokens for tests."""

import re
from collections.abc import Sequence

from kbmesh_chunker.token_counter import TokenCount, TokenCounts
from kbmesh_rpc.errors import ModelNotFound

MODEL = "word-pieces"
_PIECE = re.compile(r"[a-zA-Z]{1,4}|\d|[^\s]")


class WordPieceCounter:
    """A second tokenizer: words in pieces of four letters, any other sign alone, two special tokens around them."""

    def __init__(self, *, max_tokens: int = 256) -> None:
        self.max_tokens = max_tokens
        self.calls = 0

    async def count(self, texts: Sequence[str], *, model: str, offsets: bool) -> TokenCounts:
        self.calls += 1
        if model != MODEL:
            raise ModelNotFound(model, [MODEL])
        counts = []
        for text in texts:
            pieces = [piece.span() for piece in _PIECE.finditer(text)]
            starts = [start for start, _ in pieces] if offsets else []
            ends = [end for _, end in pieces] if offsets else []
            counts.append(TokenCount(tokens=len(pieces) + 2, starts=starts, ends=ends))
        return TokenCounts(counts=counts, max_tokens=self.max_tokens, model_fingerprint="word-pieces-1")


def tokens_of(text: str) -> int:
    """What WordPieceCounter counts."""
    return len(_PIECE.findall(text)) + 2
