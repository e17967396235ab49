"""Which knowledge bases a question goes to, each with its options."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kbmesh_rpc.errors import FieldViolation, InvalidField, KbmeshError, KnowledgeBaseNotFound, PermissionDenied

from kbmesh_retriever.catalog.port import CatalogReader, KnowledgeBase
from kbmesh_retriever.retrieve.request import Question, Selector
from kbmesh_retriever.retrieve.stage import ScoreStage
from kbmesh_retriever.stores.port import PointFilter, Scope

_LIST_FACTOR = 2
"""Hits asked of each list, for each result asked for: what is dropped later must not leave the answer short."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A knowledge base that is searched, and how."""

    position: int
    """Place in the request, from 0."""
    knowledge_base: KnowledgeBase
    weight: float
    limit: int
    """Valid hits wanted of each list."""
    max_results: int | None
    thresholds: Mapping[ScoreStage, float]
    filter: PointFilter | None
    principals: frozenset[str] = frozenset()
    """Who asks. Nobody by name sees what is for everybody."""

    @property
    def scope(self) -> Scope:
        return Scope(tenant=self.knowledge_base.tenant, knowledge_base_id=self.knowledge_base.id)

    @property
    def model(self) -> tuple[str, str]:
        """Name and fingerprint of the model that made its vectors."""
        return self.knowledge_base.embedding_model, self.knowledge_base.model_fingerprint


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The knowledge bases that are searched, and those that cannot be."""

    targets: tuple[Target, ...]
    refused: Mapping[int, KbmeshError]
    """By place in the request."""


async def make_plan(
    catalog: CatalogReader, tenant: str, question: Question, *, principals: Collection[str] = ()
) -> Plan:
    """Resolves all names in one query, for a caller who is all of `principals`. Raises KnowledgeBaseNotFound where the
    tenant has none of them, and InvalidField where a name and an id mean the same one."""
    names = [selector.knowledge_base for selector in question.selectors]
    found = await catalog.resolve_knowledge_bases(tenant, names)
    targets: list[Target] = []
    refused: dict[int, KbmeshError] = {}
    for position, selector in enumerate(question.selectors):
        knowledge_base = found.get(selector.knowledge_base)
        if knowledge_base is None or knowledge_base.tenant != tenant:
            refused[position] = KnowledgeBaseNotFound(selector.knowledge_base)
        elif not knowledge_base.is_for(principals):
            refused[position] = PermissionDenied("the caller is none of the knowledge base's readers")
        else:
            targets.append(_target(position, selector, knowledge_base, question, frozenset(principals)))
    if all(isinstance(error, KnowledgeBaseNotFound) for error in refused.values()) and not targets:
        raise KnowledgeBaseNotFound(*names)
    _refuse_doubles(targets)
    return Plan(targets=tuple(targets), refused=refused)


def _target(
    position: int,
    selector: Selector,
    knowledge_base: KnowledgeBase,
    question: Question,
    principals: frozenset[str],
) -> Target:
    defaults = knowledge_base.retrieval
    thresholds = {ScoreStage.VECTOR: defaults.min_vector_score, **question.thresholds}
    if selector.min_score is not None:
        thresholds[selector.min_score_stage] = selector.min_score
    return Target(
        position=position,
        knowledge_base=knowledge_base,
        weight=defaults.weight if selector.weight is None else selector.weight,
        limit=max(defaults.vector_top_k, _LIST_FACTOR * question.top_k),
        max_results=selector.max_results,
        thresholds=thresholds,
        filter=selector.filter,
        principals=principals,
    )


def _refuse_doubles(targets: list[Target]) -> None:
    first: dict[object, int] = {}
    for target in targets:
        earlier = first.setdefault(target.knowledge_base.id, target.position)
        if earlier != target.position:
            name = f"knowledge_bases[{target.position}].knowledge_base"
            raise InvalidField.of([FieldViolation(field=name, description=f"is knowledge_bases[{earlier}] once more")])
