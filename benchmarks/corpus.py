"""The files that splitters are measured on."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
SHIPPED = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs",
    "examples",
    "tests/data",
    "libs",
    "services",
    "clients",
)
DATA = REPOSITORY / "benchmarks" / "data"

_LANGUAGES = {
    ".py": "python",
    ".js": "javascript",
    ".jsx": "javascript",
    ".mjs": "javascript",
    ".ts": "typescript",
    ".tsx": "tsx",
    ".go": "go",
    ".java": "java",
    ".rs": "rust",
    ".c": "c",
    ".h": "cpp",
    ".cc": "cpp",
    ".cpp": "cpp",
    ".hpp": "cpp",
    ".cs": "csharp",
    ".rb": "ruby",
    ".php": "php",
    ".kt": "kotlin",
    ".sh": "bash",
}
_LEFT_OUT = {".venv", "node_modules", "__pycache__", "kbmesh-protos", "third_party"}
_ASCII_SHARE = 0.95
_LETTER = re.compile(r"[^\W\d_]")


class Kind(StrEnum):
    """What kind of text a file is."""

    PROSE = "prose"
    MARKDOWN = "markdown"
    CODE = "code"


@dataclass(frozen=True, kw_only=True)
class CorpusFile:
    """A file of the corpus."""

    name: str
    """Its path within the corpus."""
    text: str
    kind: Kind
    language: str = ""
    """Of source code, such as "python"."""

    @property
    def size_bytes(self) -> int:
        """In UTF-8."""
        return len(self.text.encode())

    @property
    def english(self) -> bool:
        """Whether it is prose in a language of ASCII letters, which is English in every corpus known here."""
        letters = _LETTER.findall(self.text[:20_000])
        ascii_letters = sum(letter.isascii() for letter in letters)
        return self.kind is not Kind.CODE and bool(letters) and ascii_letters / len(letters) >= _ASCII_SHARE


def read_corpus(folder: Path | None, *, max_megabytes: float | None) -> list[CorpusFile]:
    """The text files of a folder, or those that ship with the repository. Where they have more than `max_megabytes`
    (1,000,000 bytes of UTF-8 each), the largest files are left out first. Ordered by name."""
    if folder is not None:
        files = list(_read(folder, [folder]))
    else:
        files = list(_read(REPOSITORY, [*(REPOSITORY / name for name in SHIPPED), DATA]))
    return sorted(_within(files, max_megabytes), key=lambda file: file.name)


def _read(root: Path, places: Iterable[Path]) -> Iterator[CorpusFile]:
    for place in places:
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            name = path.relative_to(root)
            if not path.is_file() or _LEFT_OUT & set(name.parts):
                continue
            kind = _kind(path)
            if kind is None:
                continue
            try:
                text = path.read_bytes().decode("utf-8")
            except UnicodeDecodeError:
                print(f"{name} is not UTF-8 and was left out", file=sys.stderr)
                continue
            if text.strip():
                yield CorpusFile(name=str(name), text=text, kind=kind, language=_LANGUAGES.get(path.suffix, ""))


def _kind(path: Path) -> Kind | None:
    if path.suffix == ".md":
        return Kind.MARKDOWN
    if path.suffix == ".txt":
        return Kind.PROSE
    return Kind.CODE if path.suffix in _LANGUAGES else None


def _within(files: Sequence[CorpusFile], max_megabytes: float | None) -> list[CorpusFile]:
    if max_megabytes is None:
        return list(files)
    kept = []
    left = max_megabytes * 1e6
    for file in sorted(files, key=lambda file: file.size_bytes):
        left -= file.size_bytes
        if left < 0:
            break
        kept.append(file)
    return kept
