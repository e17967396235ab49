"""Models of this machine side by side: how fast they are here, and how good on a judged set.

An encoder ranks all documents by cosine, exactly and without keywords, so that nothing but the model is compared; a
cross-encoder reorders the first encoder's best. A document is read up to the model's limit. Nothing of the mesh runs.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kbmesh_cli.bootstrap import Bootstrap, Interval, mean
from kbmesh_cli.errors import CliError
from kbmesh_cli.relevance import ndcg_at, percentile, recall_at

if TYPE_CHECKING:
    import numpy as np
    from kbmesh_onnx.folder import ModelCard
    from kbmesh_onnx.session import ModelSession, Output
    from kbmesh_onnx.tokenizer import ModelTokenizer, TokenizedText
    from numpy.typing import NDArray

BATCH_TOKENS = 512
RANKED = 50
"""Documents of an encoder's ranking that are kept."""
RERANKED = 20
"""Of those, the ones that a cross-encoder reads: what a search gives it by default."""
PRECISIONS = ("fp32", "int8")

Advance = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A model folder in one precision."""

    name: str
    precision: str

    def __str__(self) -> str:
        return self.name if self.precision == "fp32" else f"{self.name}:{self.precision}"


@dataclass(frozen=True, kw_only=True)
class Questions:
    """A judged set, or as much of it as is asked for."""

    documents: Mapping[str, str]
    """Text by id."""
    queries: Mapping[str, str]
    judgements: Mapping[str, Mapping[str, int]]


@dataclass(kw_only=True)
class Measured:
    """What was found of a model."""

    contender: Contender
    kind: str
    dimension: int
    max_tokens: int
    fingerprint: str
    disk_megabytes: float
    """Of the files that it is run from."""
    texts_per_second: float
    """Passages that were embedded, or pairs that were scored."""
    query_ms: float
    """Median: of one query's vector, or of reordering one query's documents."""
    ndcg: dict[str, float] = field(default_factory=dict)
    """nDCG@10 of each query."""
    recall: dict[str, float] = field(default_factory=dict)
    """Recall@20 of each query. Empty for a cross-encoder, which finds nothing."""
    rankings: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Quality:
    """How good a model is on a set, and how far from the first that was named."""

    ndcg: Interval
    """nDCG@10, with its 95 % interval."""
    recall: float | None
    """Recall@20. None for a cross-encoder."""
    difference: Interval | None
    """Of nDCG@10 to the first model's, query by query. None for the first."""


def qualities(measured: Sequence[Measured], *, seed: int) -> list[Quality]:
    """Of each model, by a paired bootstrap over the queries."""
    bootstrap = Bootstrap(len(measured[0].ndcg), seed=seed)
    sampled = [bootstrap.sample([each.ndcg[query] for query in measured[0].ndcg], mean) for each in measured]
    return [
        Quality(
            ndcg=values.interval(),
            recall=mean(list(each.recall.values())) if each.recall else None,
            difference=values.above(sampled[0]) if place else None,
        )
        for place, (each, values) in enumerate(zip(measured, sampled, strict=True))
    ]


def sample(questions: Questions, *, queries: int | None, documents: int | None, seed: int) -> Questions:
    """So many queries, and so many documents: those that are judged relevant to them, and others."""
    chance = random.Random(seed)
    chosen = sorted(questions.queries)
    if queries is not None and queries < len(chosen):
        chosen = sorted(chance.sample(chosen, queries))
    kept = set(questions.documents)
    if documents is not None and documents < len(kept):
        relevant = {name for query in chosen for name, grade in questions.judgements[query].items() if grade > 0}
        others = sorted(kept - relevant)
        kept = relevant | set(chance.sample(others, max(0, min(len(others), documents - len(relevant)))))
    return Questions(
        documents={name: text for name, text in questions.documents.items() if name in kept},
        queries={query: questions.queries[query] for query in questions.queries if query in set(chosen)},
        judgements=questions.judgements,
    )


def parse_contenders(names: Sequence[str]) -> list[Contender]:
    """NAME or NAME:int8. Raises CliError."""
    found = []
    for name in names:
        folder, _, precision = name.partition(":")
        if precision not in ("", *PRECISIONS):
            raise CliError("USAGE", f"{name}: {precision} is no precision", hint=f"there are {', '.join(PRECISIONS)}")
        found.append(Contender(name=folder, precision=precision or "fp32"))
    if len(set(found)) < len(found):
        raise CliError("USAGE", "a model is named twice")
    return found


def compare(
    contenders: Sequence[Contender],
    models_folder: Path,
    questions: Questions | None,
    *,
    threads: int = 0,
    advance: Advance = lambda: None,
) -> list[Measured]:
    """Measures each in turn. `advance` is called after each batch of documents and each query.

    Raises CliError for a model that is not there or cannot be run, and for a cross-encoder without an encoder before it
    where there are questions.
    """
    from kbmesh_onnx.errors import OnnxError

    measured: list[Measured] = []
    for contender in contenders:
        try:
            with_model = _Opened.open(contender, models_folder, threads)
            try:
                if with_model.card.kind == "encoder":
                    measured.append(_measure_encoder(with_model, questions, advance))
                else:
                    first = next((each for each in measured if each.kind == "encoder"), None)
                    measured.append(_measure_cross_encoder(with_model, first, questions, advance))
            finally:
                with_model.session.close()
        except OnnxError as error:
            raise CliError("MODEL_BROKEN", f"{contender}: {error}") from error
    return measured


@dataclass(frozen=True, kw_only=True)
class _Opened:
    contender: Contender
    folder: Path
    card: "ModelCard"
    tokenizer: "ModelTokenizer"
    session: "ModelSession"

    @classmethod
    def open(cls, contender: Contender, models_folder: Path, threads: int) -> "_Opened":
        from kbmesh_onnx.device_settings import DeviceSettings
        from kbmesh_onnx.folder import load_card
        from kbmesh_onnx.session import ModelSession
        from kbmesh_onnx.tokenizer import ModelTokenizer

        folder = models_folder / contender.name
        if not folder.is_dir():
            raise CliError(
                "MODEL_NOT_FOUND", f"there is no {folder}", hint="`kbmesh models list` shows those there are"
            )
        card = load_card(folder)
        settings = DeviceSettings(precision="int8" if contender.precision == "int8" else "fp32")
        session = ModelSession.open(folder, card, device="cpu", intra_op_threads=threads, settings=settings)
        return cls(
            contender=contender,
            folder=folder,
            card=card,
            tokenizer=ModelTokenizer.load(folder, card),
            session=session,
        )

    def measured(self, *, texts_per_second: float, query_ms: float) -> Measured:
        from kbmesh_onnx.folder import FORM_FILES, INT8_FILE, WEIGHTS_FILE

        # int8 reads its word vectors from the same weights.
        graphs = {INT8_FILE} if self.contender.precision == "int8" else set(FORM_FILES.values())
        size = sum(path.stat().st_size for path in self.folder.iterdir() if path.name in graphs | {WEIGHTS_FILE})
        return Measured(
            contender=self.contender,
            kind=self.card.kind,
            dimension=self.card.dimension,
            max_tokens=self.card.max_tokens,
            fingerprint=self.card.fingerprint_in(self.contender.precision),
            disk_megabytes=round(size / 1e6, 1),
            texts_per_second=round(texts_per_second, 2),
            query_ms=round(query_ms, 2),
        )

    def run(self, rows: Sequence["TokenizedText"]) -> "NDArray[np.float32]":
        """Outputs in the order of the rows, run in batches of like length."""
        import numpy as np
        from kbmesh_onnx.padding import pad

        width = self.card.dimension if self.card.kind == "encoder" else 1
        found = np.zeros((len(rows), width), dtype=np.float32)
        for batch in _batches(rows):
            output: Output = "embeddings" if self.card.kind == "encoder" else "logits"
            (values,) = self.session.run(*pad([rows[place] for place in batch]), outputs=(output,))
            found[batch] = values
        return found

    def embed(self, texts: Sequence[str], prefix: str) -> "NDArray[np.float32]":
        """Vectors of unit length."""
        import numpy as np

        rows = self.tokenizer.encode(texts, prefix=prefix, max_tokens=self.card.max_tokens)
        vectors = self.run(rows)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.divide(vectors, np.where(lengths == 0, 1, lengths), dtype=np.float32)


def _batches(rows: Sequence["TokenizedText"]) -> list[list[int]]:
    batches: list[list[int]] = []
    for place in sorted(range(len(rows)), key=lambda place: rows[place].tokens):
        if batches and (len(batches[-1]) + 1) * rows[place].tokens <= BATCH_TOKENS:
            batches[-1].append(place)
        else:
            batches.append([place])
    return batches


def _measure_encoder(model: _Opened, questions: Questions | None, advance: Advance) -> Measured:
    import numpy as np

    texts = _passages() if questions is None else list(questions.documents.values())
    model.embed(texts[:4], model.card.document_prefix)  # the first run allocates
    parts, began = [], time.perf_counter()
    for start in range(0, len(texts), 64):
        parts.append(model.embed(texts[start : start + 64], model.card.document_prefix))
        advance()
    seconds = time.perf_counter() - began
    asked = {f"{number}": text[:60] for number, text in enumerate(texts)} if questions is None else questions.queries
    documents, names = np.concatenate(parts), [] if questions is None else list(questions.documents)
    took: list[float] = []
    rankings: dict[str, list[str]] = {}
    for query, text in asked.items():
        before = time.perf_counter()
        (vector,) = model.embed([text], model.card.query_prefix)
        took.append(time.perf_counter() - before)
        if questions is not None:
            # Equal cosines in the order of the documents, so that a second call ranks alike.
            best = np.argsort(-(documents @ vector), kind="stable")[:RANKED]
            rankings[query] = [names[place] for place in best.tolist()]
            advance()
    measured = model.measured(texts_per_second=len(texts) / seconds, query_ms=percentile(took, 0.5) * 1000)
    if questions is not None:
        measured.rankings = rankings
        judged = questions.judgements
        measured.ndcg = {query: ndcg_at(10, ranking, judged[query]) for query, ranking in rankings.items()}
        measured.recall = {query: recall_at(20, ranking, judged[query]) for query, ranking in rankings.items()}
    return measured


def _measure_cross_encoder(
    model: _Opened, encoder: Measured | None, questions: Questions | None, advance: Advance
) -> Measured:
    passages = _passages()
    if questions is None:
        work = {text[:60]: passages for text in passages}
    elif encoder is None:
        raise CliError(
            "USAGE", f"{model.contender} is a cross-encoder", hint="name an encoder before it, whose hits it reorders"
        )
    else:
        work = {query: encoder.rankings[query][:RERANKED] for query in questions.queries}
    took: list[float] = []
    pairs = 0
    rankings: dict[str, list[str]] = {}
    for query, found in work.items():
        text = query if questions is None else questions.queries[query]
        texts = found if questions is None else [questions.documents[name] for name in found]
        before = time.perf_counter()
        logits = _score(model, text, texts)
        took.append(time.perf_counter() - before)
        pairs += len(texts)
        if encoder is not None and questions is not None:
            order = sorted(range(len(found)), key=lambda place: (-logits[place], place))
            rankings[query] = [found[place] for place in order] + encoder.rankings[query][RERANKED:]
            advance()
    measured = model.measured(texts_per_second=pairs / sum(took), query_ms=percentile(took, 0.5) * 1000)
    if questions is not None:
        measured.rankings = rankings
        measured.ndcg = {q: ndcg_at(10, ranking, questions.judgements[q]) for q, ranking in rankings.items()}
    return measured


def _score(model: _Opened, query: str, texts: Sequence[str]) -> list[float]:
    """The largest logit of each text's windows, as the reranker has it."""
    pairs = model.tokenizer.encode_pairs(query, texts, max_tokens=model.card.max_tokens)
    windows = [window for pair in pairs for window in pair.windows]
    logits = iter(model.run(windows)[:, 0].tolist())
    return [max(next(logits) for _ in pair.windows) for pair in pairs]


def _passages() -> list[str]:
    from kbmesh_onnx.proof_passages import PASSAGES

    return list(PASSAGES)
