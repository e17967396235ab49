"""The vectors of a question: one call to the embedder for each model, whatever the number of knowledge bases."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from kbmesh_rpc.errors import DependencyInvalidResponse, KbmeshError, ModelMismatch, ModelNotFound
from numpy.typing import NDArray

from kbmesh_retriever.mesh.port import EmbedderPort
from kbmesh_retriever.retrieve.plan import Target
from kbmesh_retriever.retrieve.stage import Stage
from kbmesh_retriever.retrieve.time_budget import within

Model = tuple[str, str]
"""Name and fingerprint."""


@dataclass(frozen=True, kw_only=True)
class QueryVectors:
    """The queries' vectors by one model."""

    vectors: tuple[NDArray[np.float32] | None, ...]
    """(dimension,) each, in the order of the queries. None for a rephrasing that could not be embedded."""
    tokens_cut: int
    """Tokens of the caller's own query that the model did not read."""


async def embed_queries(
    embedder: EmbedderPort,
    targets: Sequence[Target],
    queries: Sequence[str],
    *,
    seconds: float,
    input_type: Literal["query", "document"] = "query",
) -> Mapping[Model, QueryVectors | KbmeshError]:
    """For each model of the targets its vectors, or why there are none. Models fail apart from each other. One that
    goes by several names is asked once: by its fingerprint it is the same."""
    dimensions = {target.model: target.knowledge_base.dimension for target in targets}
    names: dict[str, list[Model]] = {}
    for model in dimensions:
        names.setdefault(model[1], []).append(model)
    async with asyncio.TaskGroup() as group:
        tasks = {
            fingerprint: group.create_task(
                _embed_by_any(embedder, models, dimensions[models[0]], queries, seconds, input_type)
            )
            for fingerprint, models in names.items()
        }
    return {model: tasks[model[1]].result() for model in dimensions}


async def _embed_by_any(
    embedder: EmbedderPort,
    models: Sequence[Model],
    dimension: int,
    queries: Sequence[str],
    seconds: float,
    input_type: Literal["query", "document"],
) -> QueryVectors | KbmeshError:
    """By the first of a model's names under which the embedder has it. Gives the error of the first name where it has
    it under none."""
    answers: list[QueryVectors | KbmeshError] = []
    for model in models:
        answer = await _embed(embedder, model, dimension, queries, seconds, input_type)
        if isinstance(answer, QueryVectors) or not is_mismatch(answer):
            return answer
        answers.append(answer)
    return answers[0]


def is_mismatch(error: KbmeshError) -> bool:
    """Whether the embedder has another model than the one the vectors were made with, or none of that name. Then
    nothing of the knowledge base is used, its keyword hits neither: it has to be taken in again, and half its
    relevance would hide that."""
    return isinstance(error, ModelMismatch | ModelNotFound)


async def _embed(
    embedder: EmbedderPort,
    model: Model,
    dimension: int,
    queries: Sequence[str],
    seconds: float,
    input_type: Literal["query", "document"],
) -> QueryVectors | KbmeshError:
    name, fingerprint = model
    try:
        embedded = await within(
            seconds,
            Stage.EMBED,
            embedder.embed(
                queries, model=name, expected_fingerprint=fingerprint, input_type=input_type, priority="interactive"
            ),
        )
    except KbmeshError as error:
        return error
    if embedded.fingerprint != fingerprint:
        return ModelMismatch(name, expected=fingerprint, actual=embedded.fingerprint)
    if embedded.vectors.shape != (len(queries), dimension):
        return DependencyInvalidResponse(
            "embedder", f"vectors of shape {embedded.vectors.shape}, expected {(len(queries), dimension)}"
        )
    if embedded.errors and embedded.errors[0] is not None:
        return embedded.errors[0]
    usable = [error is None for error in embedded.errors] or [True] * len(queries)
    return QueryVectors(
        vectors=tuple(row if use else None for row, use in zip(embedded.vectors, usable, strict=True)),
        tokens_cut=embedded.tokens_cut[0] if embedded.tokens_cut else 0,
    )
