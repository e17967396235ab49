"""Pairs of a question and a passage as ids, as the served model reads them."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

MAX_TOKENS = 112
"""Of a pair in training. Served, it may be longer; here it is short for the sake of time."""
QUERY_TOKENS = 48


class Pairs:
    """Tokenises as the served model does: [CLS] query [SEP] passage [SEP], the passage cut."""

    def __init__(self, path: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(path))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        vocabulary = self._tokenizer.get_vocab()
        self._first, self._between = vocabulary["[CLS]"], vocabulary["[SEP]"]

    def encode(self, query: str, passages: Sequence[str]) -> tuple[list[list[int]], list[list[int]]]:
        """Ids and types."""
        asked = self._tokenizer.encode(query, add_special_tokens=False).ids[:QUERY_TOKENS]
        head = [self._first, *asked, self._between]
        ids, types = [], []
        for encoded in self._tokenizer.encode_batch(list(passages), add_special_tokens=False):
            tail = [*encoded.ids[: MAX_TOKENS - len(head) - 1], self._between]
            ids.append(head + tail)
            types.append([0] * len(head) + [1] * len(tail))
        return ids, types
