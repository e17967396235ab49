"""Every real file of the repository, by every strategy that needs no model, at sizes from small to large."""

import itertools
from concurrent.futures import Executor
from pathlib import Path

import pytest
from chunker.laws import check_context, check_laws
from kbmesh_chunker.chunking import Chunker
from kbmesh_chunker.config import ConfigRequest, Strategy
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import SourceDocument
from kbmesh_rpc.errors import DocumentEmpty

ROOT = Path(__file__).parent.parent.parent
DATA = ROOT / "tests" / "data"
FILES = sorted(
    path.relative_to(ROOT)
    for folder in (DATA, ROOT / "examples" / "documents", ROOT / "docs")
    for path in folder.rglob("*")
    if path.is_file() and not path.name.startswith("all-MiniLM")
)
STRATEGIES = [Strategy.AUTO, Strategy.FIXED, Strategy.SEMANTIC, Strategy.DOCUMENT]
SIZES = [(12, 3, 4), (120, 0, 0), (400, 60, 400), (1500, 150, 500)]
SAME_SIZE = 400


@pytest.mark.parametrize("path", FILES, ids=str)
async def test_every_strategy_keeps_the_laws(path: Path, executor: Executor) -> None:
    chunker = Chunker(limits=ReadingLimits(), counter=None, executor=executor)
    content = (ROOT / path).read_bytes()
    source = SourceDocument(content=content, filename=path.name)
    for strategy, (size, overlap, minimum) in itertools.product(STRATEGIES, SIZES):
        config = ConfigRequest(strategy=strategy, size=size, overlap=overlap, minimum=minimum)
        try:
            chunked = await chunker.chunk(source, config, deadline=None)
        except DocumentEmpty:
            # A day on which people only came and went.
            assert path.suffix == ".json"
            continue
        check_laws(chunked)
        check_context(chunked)
        if size == SAME_SIZE:
            again = await chunker.chunk(source, config, deadline=None)
            assert chunked.chunks == again.chunks, "the same document gives the same chunks"
