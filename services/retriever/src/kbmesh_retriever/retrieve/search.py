"""All knowledge bases searched at once, and only what a reader may see kept of it.

A hit is valid if its version of the document was current when the search began, and the catalog says that the caller
may read it: the store is asked for no other, and may lag behind. Superseded versions stay in the store for a while,
because slower readers still need them, so a list is asked for with some hits to spare; where the spare ones do not
suffice the knowledge base is searched again with a longer list.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import gt
from typing import NamedTuple
from uuid import UUID

import numpy as np
from kbmesh_rpc.call import optional_call
from kbmesh_rpc.errors import DeadlineExceeded, InternalError, KbmeshError
from kbmesh_rpc.logs import get_logger
from numpy.typing import NDArray

from kbmesh_retriever.catalog.port import CatalogReader, Document
from kbmesh_retriever.retrieve.estimates import Estimates, Step
from kbmesh_retriever.retrieve.fragment import Fragment, check_hit
from kbmesh_retriever.retrieve.plan import Target
from kbmesh_retriever.retrieve.stage import Stage
from kbmesh_retriever.retrieve.time_budget import TimeBudget, within
from kbmesh_retriever.stores.port import Distance, Hit, Scope, SearchQuery, SparseVector, StoreReader

_SPARE_SHARE = 0.25
_GROWTH = 4
_MOST_ROUNDS = 3
_LONGEST_LIST = 2000

_log = get_logger(__name__)

Version = tuple[UUID, int]
"""A document and its generation."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One query to one knowledge base. A list whose vector is None is not searched."""

    target: Target
    query: int
    """Which query, from 0."""
    dense: NDArray[np.float32] | None
    sparse: SparseVector | None


class Found(NamedTuple):
    """A fragment in a list. A tuple, since a retrieval makes hundreds."""

    fragment: Fragment
    score: float


@dataclass(frozen=True, kw_only=True)
class Lists:
    """What one knowledge base gave to one query, best first, superseded versions left out."""

    target: Target
    query: int
    dense: tuple[Found, ...]
    keyword: tuple[Found, ...]
    keyword_served: bool = True
    """False where words were asked for and its store cannot search by them."""


@dataclass(frozen=True, kw_only=True)
class SearchOutcome:
    """What all gave."""

    lists: tuple[Lists, ...]
    documents: Mapping[Version, Document]
    """The document of every fragment."""
    failures: Mapping[int, KbmeshError]
    """Why a knowledge base gave nothing, by place in the request."""
    partial_failures: tuple[KbmeshError, ...]
    """Of single queries to knowledge bases that answered another."""
    seconds: Mapping[int, float]
    """How long each took."""


class Searcher:
    """Searches the store and checks the hits with the catalog."""

    def __init__(
        self,
        store: StoreReader,
        catalog: CatalogReader,
        *,
        concurrency: int,
        estimates: Estimates,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._concurrency = concurrency
        self._estimates = estimates
        self._clock = clock

    async def search(self, probes: Sequence[Probe], *, seconds: float, budget: TimeBudget) -> SearchOutcome:
        """Never raises for a knowledge base; raises DependencyUnavailable or DeadlineExceeded for the catalog."""
        until = self._clock() + seconds
        as_of = {probe.target.knowledge_base.id: probe.target.knowledge_base.generation for probe in probes}
        principals = {probe.target.knowledge_base.id: probe.target.principals for probe in probes}
        documents: dict[Version, Document] = {}
        checked: set[Version] = set()
        answers: dict[int, Lists | KbmeshError] = {}
        took: dict[int, float] = {}
        wanted = {number: _with_spare(probe.target.limit) for number, probe in enumerate(probes)}
        for _ in range(_MOST_ROUNDS):
            answers |= await self._search_once(probes, wanted, until - self._clock(), took)
            unchecked = {
                found.fragment.version
                for number in wanted
                if isinstance(lists := answers[number], Lists)
                for found in (*lists.dense, *lists.keyword)
            } - checked
            if unchecked:
                with self._estimates.timing(Step.VALIDATE):
                    checking = self._catalog.valid_documents(as_of, unchecked)
                    valid = await within(budget.seconds(), Stage.SEARCH, checking)
                documents |= _readable(valid, principals)
                checked |= unchecked
            current = checked.issubset(documents)  # as nearly always
            longer: dict[int, int] = {}
            for number, asked in wanted.items():
                lists = answers[number]
                if isinstance(lists, Lists):
                    answers[number] = kept = _without_superseded(lists, None if current else documents)
                    if _is_short(lists, kept, asked) and asked < _LONGEST_LIST:
                        longer[number] = min(asked * _GROWTH, _LONGEST_LIST)
            if not longer or self._clock() >= until:
                break
            wanted = longer
        return _outcome(probes, answers, documents, took)

    async def _search_once(
        self, probes: Sequence[Probe], wanted: Mapping[int, int], seconds: float, took: dict[int, float]
    ) -> dict[int, Lists | KbmeshError]:
        slots = asyncio.Semaphore(self._concurrency)
        async with asyncio.TaskGroup() as group:
            tasks = {
                number: group.create_task(self._probe(probes[number], limit, seconds, slots, took))
                for number, limit in wanted.items()
            }
        return {number: task.result() for number, task in tasks.items()}

    async def _probe(
        self, probe: Probe, limit: int, seconds: float, slots: asyncio.Semaphore, took: dict[int, float]
    ) -> Lists | KbmeshError:
        started = self._clock()
        try:
            async with asyncio.timeout(seconds), slots:
                with self._estimates.timing(Step.SEARCH):
                    return await self._search_one(probe, limit)
        except TimeoutError:
            return DeadlineExceeded(Stage.SEARCH.value)
        except KbmeshError as error:
            return error
        except Exception:
            # A fault in one knowledge base's search must not cost the others their answer.
            call = optional_call()
            _log.exception("search_failed", knowledge_base=str(probe.target.knowledge_base.id))
            return InternalError(call.request_id if call else "")
        finally:
            position = probe.target.position
            took[position] = took.get(position, 0.0) + self._clock() - started

    async def _search_one(self, probe: Probe, limit: int) -> Lists:
        target = probe.target
        scope = target.scope
        result = await self._store.search(
            SearchQuery(
                collection=target.knowledge_base.collection,
                scope=scope,
                dense=probe.dense,
                sparse=probe.sparse,
                limit=limit,
                filter=target.filter,
                principals=target.principals,
                distance=Distance(target.knowledge_base.distance),
            )
        )
        fragments: dict[UUID, Fragment] = {}
        return Lists(
            target=target,
            query=probe.query,
            dense=_read(result.dense, scope, fragments),
            keyword=tuple(found for found in _read(result.keyword, scope, fragments) if found.score > 0),
            keyword_served=result.keyword_served,
        )


def _read(hits: Sequence[Hit], scope: Scope, fragments: dict[UUID, Fragment]) -> tuple[Found, ...]:
    """Each point once, best first; equal scores in the order of their ids, whatever order the store gave. `fragments`
    has those that another list held, and gets these."""
    read: list[Fragment] = []
    for hit in hits:
        check_hit(hit)
        fragment = fragments.get(hit.id)
        if fragment is None:
            fragment = fragments[hit.id] = Fragment.from_checked_hit(hit, scope)
        read.append(fragment)
    scores = [hit.score for hit in hits]
    if all(map(gt, scores, scores[1:])) and len(set(map(id, read))) == len(read):
        return tuple(map(Found, read, scores))  # as stores give them, where no two scores are equal
    distinct: dict[UUID, Found] = {}
    for fragment, score in zip(read, scores, strict=True):
        distinct.setdefault(fragment.chunk_id, Found(fragment, score))
    return tuple(sorted(distinct.values(), key=lambda found: (-found.score, found.fragment.chunk_id)))


def _with_spare(limit: int) -> int:
    return limit + max(5, int(limit * _SPARE_SHARE))


def _readable(
    valid: Mapping[Version, Document], principals: Mapping[UUID, frozenset[str]]
) -> Mapping[Version, Document]:
    """Those that the caller may read: as a rule all, which are then not looked up one by one."""
    hidden = {
        version
        for version, document in valid.items()
        if (document.principals or document.narrowed_to) and not document.is_for(principals[document.knowledge_base_id])
    }
    if not hidden:
        return valid
    return {version: document for version, document in valid.items() if version not in hidden}


def _without_superseded(lists: Lists, documents: Mapping[Version, Document] | None) -> Lists:
    """`documents` are the current ones; None where all are."""

    def valid(found: Sequence[Found]) -> tuple[Found, ...]:
        current = found if documents is None else [one for one in found if one.fragment.version in documents]
        return tuple(current[: lists.target.limit])

    return replace(lists, dense=valid(lists.dense), keyword=valid(lists.keyword))


def _is_short(before: Lists, after: Lists, asked: int) -> bool:
    """Whether a list came back full and superseded versions took more of it than there was to spare."""
    limit = after.target.limit
    return (len(before.dense) >= asked and len(after.dense) < limit) or (
        len(before.keyword) >= asked and len(after.keyword) < limit
    )


def _outcome(
    probes: Sequence[Probe],
    answers: Mapping[int, Lists | KbmeshError],
    documents: Mapping[Version, Document],
    took: Mapping[int, float],
) -> SearchOutcome:
    lists = tuple(answer for _, answer in sorted(answers.items()) if isinstance(answer, Lists))
    answered = {one.target.position for one in lists}
    failures: dict[int, KbmeshError] = {}
    partial: list[KbmeshError] = []
    for number, probe in enumerate(probes):
        answer = answers[number]
        if isinstance(answer, KbmeshError):
            if probe.target.position in answered:
                partial.append(answer)
            else:
                failures.setdefault(probe.target.position, answer)
    return SearchOutcome(
        lists=lists,
        documents=documents,
        failures=failures,
        partial_failures=tuple(partial),
        seconds=took,
    )
