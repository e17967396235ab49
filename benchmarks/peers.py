"""The splitters of other libraries, each configured as well as it can be for the job of a strategy.

Sizes are in characters and the same for all. What a library cannot do without a network (recipes and grammars that
chonkie fetches) is written here or left out with its reason.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from kbmesh_chunker.config import Strategy

from benchmarks.corpus import CorpusFile
from benchmarks.splitters import Cut, Sizes, Splitter
from benchmarks.units import parser

LIBRARIES = ("chonkie", "langchain-text-splitters", "llama-index-core", "semchunk")

_HEADINGS = [f"\n{'#' * level} " for level in range(1, 7)]
_SENTENCE = r"(?<=[.!?])\s+"
_BY_PATTERN = "finds headings by a pattern, also in fences, and tells no heading path"
_LANGCHAIN_LANGUAGES = {
    "python": "python",
    "javascript": "js",
    "typescript": "ts",
    "tsx": "ts",
    "go": "go",
    "java": "java",
    "rust": "rust",
    "c": "c",
    "cpp": "cpp",
    "csharp": "csharp",
    "ruby": "ruby",
    "php": "php",
    "kotlin": "kotlin",
}


class Peers:
    """The splitters of the libraries that are installed."""

    def __init__(self) -> None:
        self.versions: dict[str, str] = {}
        self.missing: dict[str, str] = {}
        """What is not measured, and why: a library, or one splitter of it."""
        for library in LIBRARIES:
            try:
                self.versions[library] = version(library)
            except PackageNotFoundError:
                self.missing[library] = "is not installed"

    def splitters(self, strategy: Strategy, sizes: Sizes, files: Sequence[CorpusFile]) -> list[Splitter]:
        """Those that compete with a strategy."""
        build: dict[str, Callable[[Strategy, Sizes, Sequence[CorpusFile]], Iterator[Splitter]]] = {
            "chonkie": self._chonkie,
            "langchain-text-splitters": _langchain,
            "llama-index-core": _llama_index,
            "semchunk": _semchunk,
        }
        found: list[Splitter] = []
        for library in self.versions:
            try:
                found.extend(build[library](strategy, sizes, files))
            except ImportError as error:
                self.missing[library] = f"cannot be imported: {error}"
        return found

    def _chonkie(self, strategy: Strategy, sizes: Sizes, files: Sequence[CorpusFile]) -> Iterator[Splitter]:
        chonkie = import_module("chonkie")

        def splitter(chunker: Any, settings: str, other_job: str = "") -> Splitter:
            return Splitter(
                name=f"chonkie.{type(chunker).__name__}",
                settings=settings,
                split=lambda file: chunker.chunk(file.text),
                cuts=_chonkie_cuts,
                other_job=other_job,
            )

        size = sizes.size
        sized = f'tokenizer="character", chunk_size={size}'
        if strategy is Strategy.FIXED:
            overlapping = f"{sized}, chunk_overlap={sizes.overlap}"
            options: dict[str, Any] = {"tokenizer": "character", "chunk_size": size, "chunk_overlap": sizes.overlap}
            yield splitter(chonkie.TokenChunker(**options), overlapping)
            yield splitter(chonkie.SentenceChunker(**options), overlapping)
            fast = chonkie.FastChunker(chunk_size=size)
            yield splitter(fast, f"chunk_size={size} bytes", "counts bytes, and knows no overlap")
        elif strategy is Strategy.SEMANTIC:
            yield splitter(chonkie.RecursiveChunker(tokenizer="character", chunk_size=size), sized)
            sentences = chonkie.SentenceChunker(tokenizer="character", chunk_size=size, chunk_overlap=0)
            yield splitter(sentences, f"{sized}, chunk_overlap=0")
            fast = chonkie.FastChunker(chunk_size=size, pattern="\n\n")
            yield splitter(fast, f'chunk_size={size} bytes, pattern="\\n\\n"', "counts bytes")
        elif strategy is Strategy.DOCUMENT:
            rules = _markdown_rules(chonkie)
            chunker = chonkie.RecursiveChunker(tokenizer="character", chunk_size=size, rules=rules)
            yield splitter(chunker, f"{sized}, rules=headings, paragraphs, lines, sentences, words", _BY_PATTERN)
        elif strategy is Strategy.CODE:
            yield from self._chonkie_code(chonkie, size, files)

    def _chonkie_code(self, chonkie: Any, size: int, files: Sequence[CorpusFile]) -> Iterator[Splitter]:
        name = "chonkie.CodeChunker"
        try:
            pack: Any = import_module("tree_sitter_language_pack")
        except ImportError:
            self.missing[name] = "tree-sitter-language-pack is not installed"
            return
        languages = sorted({file.language for file in files})
        absent = sorted(set(languages) - set(pack.downloaded_languages()))
        for language in absent:
            # It is fetched from a network where there is one.
            with suppress(Exception):
                pack.download([language])
        absent = sorted(set(languages) - set(pack.downloaded_languages()))
        if absent:
            self.missing[name] = f"tree-sitter-language-pack cannot fetch its grammars of {', '.join(absent)}"
            return
        pack.download_all = lambda *_: None  # CodeChunker fetches all grammars unless it finds 20 of them.
        chunkers = {language: chonkie.CodeChunker(chunk_size=size, language=language) for language in languages}
        yield Splitter(
            name=name,
            settings=f'tokenizer="character", chunk_size={size}, language=that of the file',
            split=lambda file: chunkers[file.language].chunk(file.text),
            cuts=_chonkie_cuts,
        )


def _chonkie_cuts(chunks: Sequence[Any]) -> list[Cut]:
    return [Cut(start=chunk.start_index, end=chunk.end_index, text=chunk.text) for chunk in chunks]


def _markdown_rules(chonkie: Any) -> Any:
    """What chonkie's own recipe for Markdown follows, which it fetches from a hub."""
    types = import_module("chonkie.types")
    return types.RecursiveRules(
        levels=[
            types.RecursiveLevel(delimiters=_HEADINGS, include_delim="next"),
            types.RecursiveLevel(delimiters=["\n\n", "\r\n\r\n"]),
            types.RecursiveLevel(delimiters=["\n", "\r\n"]),
            types.RecursiveLevel(delimiters=[". ", "! ", "? "]),
            types.RecursiveLevel(whitespace=True),
            types.RecursiveLevel(),
        ]
    )


def _langchain(strategy: Strategy, sizes: Sizes, _files: Sequence[CorpusFile]) -> Iterator[Splitter]:
    langchain = import_module("langchain_text_splitters")
    options = {"chunk_size": sizes.size, "chunk_overlap": sizes.overlap, "add_start_index": True}
    settings = ", ".join(f"{name}={value}" for name, value in options.items())

    def splitter(chunker: Any, other_job: str = "") -> Splitter:
        return Splitter(
            name=f"langchain.{type(chunker).__name__}",
            settings=settings,
            split=lambda file: chunker.create_documents([file.text]),
            cuts=_langchain_cuts,
            other_job=other_job,
        )

    if strategy in (Strategy.FIXED, Strategy.SEMANTIC):
        recursive = langchain.RecursiveCharacterTextSplitter
        yield splitter(recursive(**options), "cuts at lines and words, and knows no sentences")
        separators = [_SENTENCE, r"\s+", ""]
        if strategy is Strategy.SEMANTIC:
            separators.insert(0, r"\n\s*\n")
        sentences = recursive(**options, separators=separators, is_separator_regex=True)
        yield Splitter(
            name="langchain.RecursiveCharacterTextSplitter, sentences",
            settings=f"{settings}, is_separator_regex=True, separators={separators}",
            split=lambda file: sentences.create_documents([file.text]),
            cuts=_langchain_cuts,
        )
    elif strategy is Strategy.DOCUMENT:
        yield splitter(langchain.MarkdownTextSplitter(**options), _BY_PATTERN)
        headers = langchain.MarkdownHeaderTextSplitter(
            [("#" * level, f"h{level}") for level in range(1, 7)], strip_headers=False
        )
        yield Splitter(
            name="langchain.MarkdownHeaderTextSplitter",
            settings="headers_to_split_on=all six levels, strip_headers=False",
            split=lambda file: headers.split_text(file.text),
            cuts=_header_cuts,
            other_job="knows no size",
        )
    elif strategy is Strategy.CODE:
        recursive = langchain.RecursiveCharacterTextSplitter
        plain = recursive(**options)
        chunkers = {
            language: recursive.from_language(langchain.Language(name), **options)
            for language, name in _LANGCHAIN_LANGUAGES.items()
        }
        yield Splitter(
            name="langchain.RecursiveCharacterTextSplitter.from_language",
            settings=settings,
            split=lambda file: chunkers.get(file.language, plain).create_documents([file.text]),
            cuts=_langchain_cuts,
            other_job="follows keywords, not a syntax tree",
        )


def _langchain_cuts(documents: Sequence[Any]) -> list[Cut]:
    cuts = []
    for document in documents:
        start = document.metadata["start_index"]
        cuts.append(Cut(start=start, end=start + len(document.page_content), text=document.page_content))
    return cuts


def _header_cuts(documents: Sequence[Any]) -> list[Cut]:
    return [
        Cut(start=None, end=None, text=document.page_content, context=" ".join(document.metadata.values()))
        for document in documents
    ]


def _semchunk(strategy: Strategy, sizes: Sizes, _files: Sequence[CorpusFile]) -> Iterator[Splitter]:
    if strategy not in (Strategy.FIXED, Strategy.SEMANTIC):
        return
    chunker = import_module("semchunk").chunkerify(len, sizes.size, memoize=False)
    overlap = sizes.overlap or None
    yield Splitter(
        name="semchunk.chunkerify",
        settings=f"token_counter=len, chunk_size={sizes.size}, overlap={overlap}, offsets=True, memoize=False",
        split=lambda file: chunker(file.text, offsets=True, overlap=overlap),
        cuts=_semchunk_cuts,
    )


def _semchunk_cuts(result: tuple[Sequence[str], Sequence[tuple[int, int]]]) -> list[Cut]:
    return [Cut(start=start, end=end, text=text) for text, (start, end) in zip(*result, strict=True)]


def _llama_index(strategy: Strategy, sizes: Sizes, files: Sequence[CorpusFile]) -> Iterator[Splitter]:
    parsers = import_module("llama_index.core.node_parser")
    document = import_module("llama_index.core").Document
    plain = {"include_metadata": False, "include_prev_next_rel": False}

    def split(chunker: Any) -> Callable[[CorpusFile], Any]:
        return lambda file: chunker.get_nodes_from_documents([document(text=file.text)])

    if strategy in (Strategy.FIXED, Strategy.SEMANTIC):
        chunker = parsers.SentenceSplitter(
            chunk_size=sizes.size, chunk_overlap=sizes.overlap, tokenizer=list, paragraph_separator="\n\n", **plain
        )
        yield Splitter(
            name="llama_index.SentenceSplitter",
            settings=f"chunk_size={sizes.size}, chunk_overlap={sizes.overlap}, tokenizer=list, "
            'paragraph_separator="\\n\\n"',
            split=split(chunker),
            cuts=_llama_index_cuts,
        )
    elif strategy is Strategy.DOCUMENT:
        yield Splitter(
            name="llama_index.MarkdownNodeParser",
            settings="as it is",
            split=split(parsers.MarkdownNodeParser(include_prev_next_rel=False)),
            cuts=_llama_index_cuts,
        )
        headings = parsers.MarkdownNodeParser(include_prev_next_rel=False)
        sizes_of = parsers.SentenceSplitter(chunk_size=sizes.size, chunk_overlap=0, tokenizer=list, **plain)
        yield Splitter(
            name="llama_index.MarkdownNodeParser, SentenceSplitter",
            settings=f"chunk_size={sizes.size}, chunk_overlap=0, tokenizer=list",
            split=lambda file: sizes_of.get_nodes_from_documents(
                headings.get_nodes_from_documents([document(text=file.text)])
            ),
            cuts=_llama_index_cuts,
        )
    elif strategy is Strategy.CODE:
        parsing = {file.language: parser(file.language) for file in files}
        if None in parsing.values():
            return
        chunkers = {
            language: parsers.CodeSplitter(language, max_chars=sizes.size, parser=tree, tokenizer=list, **plain)
            for language, tree in parsing.items()
        }
        yield Splitter(
            name="llama_index.CodeSplitter",
            settings=f"max_chars={sizes.size}, parser=from the wheel of the grammar",
            split=lambda file: split(chunkers[file.language])(file),
            cuts=_llama_index_cuts,
        )


def _llama_index_cuts(nodes: Sequence[Any]) -> list[Cut]:
    return [
        Cut(
            start=node.start_char_idx,
            end=node.end_char_idx,
            text=node.text,
            context=node.metadata.get("header_path", ""),
        )
        for node in nodes
    ]
