"""CODE: what a programmer would call one thing is one chunk."""

import ast
import textwrap

import pytest
from chunker.conftest import Chunk
from chunker.laws import check_laws
from kbmesh_chunker.chunking import ChunkedDocument
from kbmesh_chunker.config import Strategy
from kbmesh_rpc.errors import InvalidField, Reason


async def code(chunk: Chunk, text: str | bytes, filename: str = "main.py", **config: object) -> ChunkedDocument:
    chunked = await chunk(text, filename=filename, strategy=Strategy.CODE, **config)
    check_laws(chunked)
    return chunked


def texts(chunked: ChunkedDocument) -> list[str]:
    return [chunk.text for chunk in chunked.chunks]


def symbols(chunked: ChunkedDocument) -> list[str]:
    listed = (name for chunk in chunked.chunks for name in chunk.piece.metadata.get("symbols", "").split(", "))
    return list(dict.fromkeys(name for name in listed if name))


PENDING = "# café — naïve notes 🚀\nimport os\n\ndef pending(value):\n    raise NotImplementedError\n"


async def test_cod_01_a_definition_starts_where_it_starts(chunk: Chunk) -> None:
    for text in (PENDING, "\ufeff" + PENDING, PENDING.replace("\n", "\r\n")):
        chunked = await code(chunk, text)
        found = next(each for each in chunked.chunks if each.piece.metadata.get("symbol") == "pending")
        assert found.text.startswith("def pending(value):")
        assert (found.piece.metadata["start_line"], found.piece.metadata["end_line"]) == ("4", "5")
        assert found.piece.type == "definition"


DECORATED = """import functools

@functools.cache
def health():
    return 1

class A:
    @property
    def size(self):
        return 2

    @staticmethod
    async def load():
        return 3
"""


async def test_cod_02_decorated_functions_are_symbols_with_their_decorators(chunk: Chunk) -> None:
    for config in ({}, {"size": 60}):
        chunked = await code(chunk, DECORATED, **config)
        assert symbols(chunked) == ["health", "A", "A.size", "A.load"]
        for decorator, line in (
            ("@functools.cache", "def health"),
            ("@property", "def size"),
            ("@staticmethod", "async def load"),
        ):
            assert any(decorator in text and line in text for text in texts(chunked))


GHOSTS = '''def outer():
    """Example:
    def fake():
        pass
    class Ghost: ...
    """
    # don't break on it's apostrophe
    s = 'def also_fake(): pass'
    return s

def second():
    return '}'
'''


async def test_cod_05_what_looks_like_code_in_a_string_defines_nothing(chunk: Chunk) -> None:
    chunked = await code(chunk, GHOSTS)
    assert symbols(chunked) == ["outer", "second"]
    assert len(chunked.chunks) == 2


async def test_cod_06_docstrings_stay_and_every_definition_parses(chunk: Chunk) -> None:
    text = (
        'class DiskFull(Exception):\n    """Raised when the volume has no space left."""\n\n'
        "def todo():\n    '''Not yet.'''\n"
    )
    chunked = await code(chunk, text)
    assert len(chunked.chunks) == 2
    for found in texts(chunked):
        ast.parse(textwrap.dedent(found))
    assert "no space left" in texts(chunked)[0]
    assert "Not yet." in texts(chunked)[1]


async def test_cod_08_a_file_with_a_syntax_error_is_cut_and_says_so(chunk: Chunk) -> None:
    chunked = await code(chunk, "def ok():\n    return 1\n\nprint 'py2 style'\ndef broken(:\n")
    assert texts(chunked)[0] == "def ok():\n    return 1"
    assert chunked.chunks[-1].piece.metadata["fallback"] == "lines"
    assert [warning.reason for warning in chunked.warnings] == [Reason.DOCUMENT_UNREADABLE]


async def test_an_unknown_language_is_refused_and_a_known_one_goes_by_its_aliases(chunk: Chunk) -> None:
    with pytest.raises(InvalidField) as refused:
        await code(chunk, "x", options={"language": "klingon"}, options_of=Strategy.CODE)
    assert refused.value.field_violations[0].field == "config.code.language"
    for alias in ("py", "Python", "python3"):
        chunked = await code(chunk, PENDING, "", options={"language": alias}, options_of=Strategy.CODE)
        assert symbols(chunked) == ["pending"]
