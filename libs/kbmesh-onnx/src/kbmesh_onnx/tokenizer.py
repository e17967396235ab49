"""Texts to token ids, with every cut counted.

Truncation is done here and not by `tokenizers`, because what is cut must be reported, a query of a pair must stay, and
a prefix must survive truncation from the start.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from kbmesh_onnx.errors import ModelFolderError, TextError, TextTooLong
from kbmesh_onnx.folder import TOKENIZER_FILE, ModelCard

Truncation = Literal["end", "start", "none"]
PairTruncation = Literal["windows", "end", "start", "none"]

Item = TypeVar("Item")

OFFSETS_PIECE = 4096
"""Tokens whose places are copied at once, with Python's lock held: about 20 ms."""


@dataclass(frozen=True, kw_only=True)
class TokenizedText:
    """One row of a model's input, not padded."""

    ids: NDArray[np.int64]
    """(tokens,) token ids, special ones included."""
    type_ids: NDArray[np.int64]
    """(tokens,) segment of each token."""
    tokens: int
    """Tokens that the model reads, special ones and prefix included."""
    tokens_cut: int
    """Tokens of the text that were cut off."""


@dataclass(frozen=True, kw_only=True)
class TokenizedPair:
    """A query with one document, in as many windows as the document needs."""

    windows: tuple[TokenizedText, ...]
    """Model inputs, each query and a piece of the document, each closed by the separator. At least one. Only the last
    one has a `tokens_cut`."""
    tokens: int
    """Tokens of the document that the model reads; one that stands in two windows counts once."""
    tokens_cut: int
    """Tokens of the document that stand in no window."""
    query_tokens: int
    """Tokens of the query in every window."""
    query_tokens_cut: int
    """Tokens that were cut off the query."""


@dataclass(frozen=True)
class _Specials:
    """Special tokens at one place of the template, with their segments."""

    ids: NDArray[np.int64]
    type_ids: NDArray[np.int64]


@dataclass(frozen=True)
class _Template:
    """Where a model puts its special tokens: head A tail, and head A middle B tail."""

    single: tuple[_Specials, _Specials]
    pair: tuple[_Specials, _Specials, _Specials]
    pair_types: tuple[int, int]

    @property
    def single_size(self) -> int:
        return sum(len(special.ids) for special in self.single)

    @property
    def pair_size(self) -> int:
        return sum(len(special.ids) for special in self.pair)


class ModelTokenizer:
    """A model's tokenizer. May be used from several threads at once; encoding releases the GIL."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        # A tokenizer.json often carries the padding and truncation of its last training run.
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self._template = _read_template(tokenizer)

    @classmethod
    def load(cls, folder: Path, card: ModelCard) -> "ModelTokenizer":
        """Read the tokenizer of a model folder. Raises ModelFolderError."""
        path = Path(folder) / TOKENIZER_FILE
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises a bare Exception
            raise ModelFolderError(f"{card.name}: {path} cannot be read: {error}") from error
        return cls(tokenizer)

    @property
    def library_tokenizer(self) -> Tokenizer:
        """The tokenizer itself, without padding and truncation, for those who want more of it than a model's input."""
        return self._tokenizer

    @property
    def special_tokens(self) -> int:
        """Special tokens around one text."""
        return self._template.single_size

    @property
    def pair_special_tokens(self) -> int:
        """Special tokens around and between the two texts of a pair."""
        return self._template.pair_size

    def count(self, texts: Sequence[str], prefix: str = "") -> list[int]:
        """Count the tokens of each text without truncation, special ones and prefix included.

        Raises TextError for the first text that cannot be encoded.
        """
        encodings = self._encode_batch(texts, prefix)
        return [len(_whole(encoding)) for encoding in encodings]

    def encode(
        self, texts: Sequence[str], *, prefix: str = "", max_tokens: int, truncation: Truncation = "end"
    ) -> list[TokenizedText]:
        """Encode texts, each to at most `max_tokens` tokens, special ones and prefix included.

        "end" cuts off the end, "start" the start of the text (never the prefix), "none" refuses. Raises the first
        text's TextError or, with "none", TextTooLong. `try_encode` keeps the other texts.
        """
        items = self.try_encode(texts, prefix=prefix, max_tokens=max_tokens, truncation=truncation)
        return [_or_raise(item) for item in items]

    def try_encode(
        self, texts: Sequence[str], *, prefix: str = "", max_tokens: int, truncation: Truncation = "end"
    ) -> list[TokenizedText | TextError]:
        """Do as `encode`, but give a text's error in its place instead of raising it."""
        if max_tokens <= self._template.single_size:
            raise ValueError(f"max_tokens is {max_tokens}; the special tokens alone are {self._template.single_size}")
        prefix_ids = self._content_ids(prefix) if prefix and truncation == "start" else ()
        return [
            encoding
            if isinstance(encoding, TextError)
            else self._fit(index, encoding, max_tokens=max_tokens, truncation=truncation, prefix_ids=prefix_ids)
            for index, encoding in enumerate(self._try_encode_batch(texts, prefix))
        ]

    def offsets(self, text: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Give where each token of `text` starts and ends, in code points; special tokens are left out.

        Two (tokens,) arrays. Characters that no token reads (blanks, control characters) lie between. Raises
        TextError.
        """
        _check_text(0, text)
        # A batch of one: `encode` keeps Python's lock, and with it the whole process, until the text is read.
        (encoding,) = self._tokenizer.encode_batch([text], add_special_tokens=False)
        offsets = encoding.offsets
        spans = np.empty((len(offsets), 2), dtype=np.int64)
        # In pieces, so that others have the lock in between.
        for start in range(0, len(offsets), OFFSETS_PIECE):
            spans[start : start + OFFSETS_PIECE] = offsets[start : start + OFFSETS_PIECE]
        return spans[:, 0], spans[:, 1]

    def encode_pairs(
        self,
        query: str,
        documents: Sequence[str],
        *,
        max_tokens: int,
        min_query_share: float = 0.5,
        windows: int = 32,
        overlap_share: float = 0.25,
    ) -> list[TokenizedPair]:
        """Encode a query with each document, a long document in overlapping windows.

        The query keeps at least `min_query_share` of `max_tokens`, and is cut only beyond that. A document that does
        not fit beside it is split into at most `windows` windows, neighbours sharing `overlap_share` of a window; what
        is left is cut and counted. Raises the first TextError; its index is None for the query. `try_encode_pairs`
        keeps the other documents.
        """
        pairs = self.try_encode_pairs(
            query,
            documents,
            max_tokens=max_tokens,
            min_query_share=min_query_share,
            windows=windows,
            overlap_share=overlap_share,
        )
        return [_or_raise(pair) for pair in pairs]

    def try_encode_pairs(
        self,
        query: str,
        documents: Sequence[str],
        *,
        max_tokens: int,
        min_query_share: float = 0.5,
        windows: int = 32,
        overlap_share: float = 0.25,
        truncation: PairTruncation = "windows",
    ) -> list[TokenizedPair | TextError]:
        """Do as `encode_pairs`, but give a document's error in its place. The query's own error is raised.

        With any `truncation` but "windows" there is one window: "end" and "start" cut off that end of the longer of
        the two texts until the pair fits, "none" gives TextTooLong for a pair that does not fit.
        """
        if not 0 < min_query_share < 1:
            raise ValueError(f"min_query_share is {min_query_share}, not between 0 and 1")
        if not 0 <= overlap_share < 1:
            raise ValueError(f"overlap_share is {overlap_share}, not from 0 up to 1")
        if windows < 1:
            raise ValueError(f"windows is {windows}; one is the least")
        room = max_tokens - self._template.pair_size
        if room < 2:
            specials = self._template.pair_size
            raise ValueError(f"max_tokens is {max_tokens}; the special tokens of a pair alone are {specials}")
        _check_text(None, query)
        query_ids = np.array(self._content_ids(query), dtype=np.int64)
        query_kept = query_ids[: max(1, min(room - 1, int(min_query_share * max_tokens)))]
        pairs: list[TokenizedPair | TextError] = []
        for index, encoding in enumerate(self._try_encode_batch(documents, "")):
            if isinstance(encoding, TextError):
                pairs.append(encoding)
                continue
            document = self._content_of(encoding)
            tokens = self._template.pair_size + len(query_ids) + len(document)
            if truncation == "none" and tokens > max_tokens:
                pairs.append(TextTooLong(index, tokens=tokens, limit=max_tokens))
            elif truncation in {"end", "start"}:
                pairs.append(self._cut_pair(query_ids, document, room=room, end=truncation == "end"))
            else:
                kept = query_ids if truncation == "none" else query_kept
                pairs.append(
                    self._split(
                        kept,
                        len(query_ids) - len(kept),
                        document,
                        room=max(1, room - len(kept)),
                        windows=windows,
                        overlap_share=overlap_share,
                    )
                )
        return pairs

    def _fit(
        self, index: int, encoding: Encoding, *, max_tokens: int, truncation: Truncation, prefix_ids: Sequence[int]
    ) -> TokenizedText | TextError:
        ids = _whole(encoding)
        cut = len(ids) - max_tokens
        if cut <= 0:
            types = np.array(encoding.type_ids, dtype=np.int64)
            return TokenizedText(ids=ids, type_ids=types, tokens=len(ids), tokens_cut=0)
        if truncation == "none":
            return TextTooLong(index, tokens=len(ids), limit=max_tokens)
        content = self._content_of(encoding)
        if truncation == "end":
            content = content[:-cut]
        else:
            kept = min(_common_start(content, prefix_ids), len(content) - cut)
            content = np.concatenate([content[:kept], content[kept + cut :]])
        head, tail = self._template.single
        ids = np.concatenate([head.ids, content, tail.ids])
        # A single text is one segment, the one that its head has.
        types = np.concatenate([head.type_ids, np.full(len(content), encoding.type_ids[len(head.ids)]), tail.type_ids])
        return TokenizedText(ids=ids, type_ids=types.astype(np.int64), tokens=len(ids), tokens_cut=cut)

    def _split(
        self,
        query: NDArray[np.int64],
        query_cut: int,
        document: NDArray[np.int64],
        *,
        room: int,
        windows: int,
        overlap_share: float,
    ) -> TokenizedPair:
        step = max(1, room - int(room * overlap_share))
        starts = list(range(0, max(1, len(document) - room + step), step))[:windows]
        # The last window that is needed is drawn back to the end, so that it is not a short rest without context.
        if starts[-1] + room > len(document):
            starts[-1] = max(0, len(document) - room)
        read = min(len(document), starts[-1] + room)
        cut = len(document) - read
        rows = [
            self._pair_row(query, document[start : start + room], cut if start == starts[-1] else 0) for start in starts
        ]
        return TokenizedPair(
            windows=tuple(rows), tokens=read, tokens_cut=cut, query_tokens=len(query), query_tokens_cut=query_cut
        )

    def _cut_pair(
        self, query: NDArray[np.int64], document: NDArray[np.int64], *, room: int, end: bool
    ) -> TokenizedPair:
        query_room, document_room = longest_first(len(query), len(document), room)
        kept_query = query[:query_room] if end else query[len(query) - query_room :]
        kept = document[:document_room] if end else document[len(document) - document_room :]
        cut = len(document) - len(kept)
        return TokenizedPair(
            windows=(self._pair_row(kept_query, kept, cut),),
            tokens=len(kept),
            tokens_cut=cut,
            query_tokens=len(kept_query),
            query_tokens_cut=len(query) - len(kept_query),
        )

    def _pair_row(self, query: NDArray[np.int64], piece: NDArray[np.int64], cut: int) -> TokenizedText:
        head, middle, tail = self._template.pair
        query_type, document_type = self._template.pair_types
        ids = np.concatenate([head.ids, query, middle.ids, piece, tail.ids])
        types = np.concatenate(
            [
                head.type_ids,
                np.full(len(query), query_type, dtype=np.int64),
                middle.type_ids,
                np.full(len(piece), document_type, dtype=np.int64),
                tail.type_ids,
            ]
        )
        return TokenizedText(ids=ids, type_ids=types, tokens=len(ids), tokens_cut=cut)

    def _content_of(self, encoding: Encoding) -> NDArray[np.int64]:
        head, tail = self._template.single
        ids = _whole(encoding)
        return ids[len(head.ids) : len(ids) - len(tail.ids)]

    def _content_ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids)

    def _encode_batch(self, texts: Sequence[str], prefix: str) -> list[Encoding]:
        return [_or_raise(encoding) for encoding in self._try_encode_batch(texts, prefix)]

    def _try_encode_batch(self, texts: Sequence[str], prefix: str) -> list[Encoding | TextError]:
        """Encode with special tokens. A text that is not valid Unicode is set apart before the batch sees it."""
        errors = {index: error for index, text in enumerate(texts) if (error := _text_error(index, text)) is not None}
        if not errors:
            return list(self._tokenizer.encode_batch_fast([prefix + text for text in texts]))
        good = [prefix + text for index, text in enumerate(texts) if index not in errors]
        encodings = iter(self._tokenizer.encode_batch_fast(good))
        return [errors[index] if index in errors else next(encodings) for index in range(len(texts))]


def _whole(encoding: Encoding) -> NDArray[np.int64]:
    return np.array(encoding.ids, dtype=np.int64)


def _or_raise(item: Item | TextError) -> Item:
    if isinstance(item, TextError):
        raise item
    return item


def _check_text(index: int | None, text: object) -> None:
    error = _text_error(index, text)
    if error is not None:
        raise error


def _text_error(index: int | None, text: object) -> TextError | None:
    if not isinstance(text, str):
        return TextError(index, f"is a {type(text).__name__}, not text")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return TextError(index, f"character {error.start} is half of a surrogate pair, which no encoding has")
    return None


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """Tokens that two texts of so many keep, where the longer one is cut first, as `tokenizers` does it.

    A text that takes at most half of the room stays whole; where both take more, each gets half, and an odd token goes
    to the longer one.
    """
    if first + second <= room:
        return first, second
    shorter = min(first, second, room // 2)
    return (shorter, room - shorter) if first <= second else (room - shorter, shorter)


def _common_start(ids: NDArray[np.int64], start: Sequence[int]) -> int:
    """Count the tokens in which `ids` begins as `start` does. A prefix's last token may have merged with the text."""
    size = min(len(ids), len(start))
    differs = np.flatnonzero(ids[:size] != np.array(start[:size], dtype=np.int64))
    return int(differs[0]) if len(differs) else size


def _read_template(tokenizer: Tokenizer) -> _Template:
    """Learn where the special tokens go, from what the tokenizer itself does with a letter."""
    single = tokenizer.encode("a")
    pair = tokenizer.encode("a", "a")
    first, last = _content_runs(single, 1)[0]
    (query_start, query_end), (document_start, document_end) = _content_runs(pair, 2)
    return _Template(
        single=(_specials(single, 0, first), _specials(single, last, None)),
        pair=(
            _specials(pair, 0, query_start),
            _specials(pair, query_end, document_start),
            _specials(pair, document_end, None),
        ),
        pair_types=(pair.type_ids[query_start], pair.type_ids[document_start]),
    )


def _content_runs(encoding: Encoding, runs: int) -> list[tuple[int, int]]:
    """Find where each sequence of an encoding begins and ends, special tokens left out."""
    places: list[list[int]] = [
        [place for place, sequence in enumerate(encoding.sequence_ids) if sequence == run] for run in range(runs)
    ]
    if not all(places):
        raise ModelFolderError("the tokenizer gives no token for the letter a")
    return [(run[0], run[-1] + 1) for run in places]


def _specials(encoding: Encoding, start: int, end: int | None) -> _Specials:
    return _Specials(
        ids=np.array(encoding.ids[start:end], dtype=np.int64),
        type_ids=np.array(encoding.type_ids[start:end], dtype=np.int64),
    )
