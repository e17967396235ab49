"""Programming languages: by what names they go, and how the language of a document is found out."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kbmesh_chunker.documents.source import TextDocument


@dataclass(frozen=True, kw_only=True)
class Language:
    """A programming language."""

    name: str
    aliases: tuple[str, ...] = ()
    """Other names that people give it, in lower case."""
    extensions: tuple[str, ...] = ()
    """Of its files, without the dot, in lower case."""
    filenames: tuple[str, ...] = ()
    """Of files that have no extension, in lower case."""
    media_types: tuple[str, ...] = ()
    interpreters: tuple[str, ...] = ()
    """Programs that a script of it names in its first line."""
    grammar: tuple[str, str] | None = field(default=None)
    """Module and function that give its grammar. None where none is known, so that its files are cut between lines."""


_PARSED = (
    Language(
        name="python",
        aliases=("py", "python3", "python2"),
        extensions=("py", "pyi", "pyw"),
        media_types=("text/x-python", "application/x-python", "text/x-python-script"),
        interpreters=("python", "pypy", "uv"),
        grammar=("tree_sitter_python", "language"),
    ),
    Language(
        name="javascript",
        aliases=("js", "jsx", "node", "ecmascript", "mjs", "cjs"),
        extensions=("js", "mjs", "cjs", "jsx"),
        media_types=("text/javascript", "application/javascript"),
        interpreters=("node", "nodejs"),
        grammar=("tree_sitter_javascript", "language"),
    ),
    Language(
        name="typescript",
        aliases=("ts", "mts", "cts"),
        extensions=("ts", "mts", "cts"),
        media_types=("text/x-typescript", "application/typescript"),
        interpreters=("deno", "ts-node", "tsx", "bun"),
        grammar=("tree_sitter_typescript", "language_typescript"),
    ),
    Language(
        name="tsx",
        aliases=("typescriptreact",),
        extensions=("tsx",),
        grammar=("tree_sitter_typescript", "language_tsx"),
    ),
    Language(
        name="go", aliases=("golang",), extensions=("go",), media_types=("text/x-go",),
        grammar=("tree_sitter_go", "language"),
    ),
    Language(
        name="java", extensions=("java",), media_types=("text/x-java", "text/x-java-source"),
        grammar=("tree_sitter_java", "language"),
    ),
    Language(
        name="rust", aliases=("rs",), extensions=("rs",), media_types=("text/x-rust",),
        grammar=("tree_sitter_rust", "language"),
    ),
    Language(
        name="c", extensions=("c", "h"), media_types=("text/x-c", "text/x-csrc", "text/x-chdr"),
        grammar=("tree_sitter_c", "language"),
    ),
    Language(
        name="cpp",
        aliases=("c++", "cxx", "cplusplus", "cuda"),
        extensions=("cc", "cpp", "cxx", "c++", "hh", "hpp", "hxx", "h++", "ipp", "tpp", "inl", "cu", "cuh", "ino"),
        media_types=("text/x-c++", "text/x-c++src", "text/x-c++hdr"),
        grammar=("tree_sitter_cpp", "language"),
    ),
    Language(
        name="csharp", aliases=("c#", "cs", "c-sharp", "c_sharp"), extensions=("cs", "csx"),
        media_types=("text/x-csharp",), grammar=("tree_sitter_c_sharp", "language"),
    ),
    Language(
        name="ruby", aliases=("rb",), extensions=("rb", "rake", "gemspec", "ru"),
        filenames=("rakefile", "gemfile", "vagrantfile", "podfile", "fastfile"), media_types=("text/x-ruby",),
        interpreters=("ruby",), grammar=("tree_sitter_ruby", "language"),
    ),
    Language(
        name="php", extensions=("php", "phtml", "php5", "inc"),
        media_types=("text/x-php", "application/x-httpd-php"), interpreters=("php",),
        grammar=("tree_sitter_php", "language_php"),
    ),
    Language(
        name="kotlin", aliases=("kt", "kts"), extensions=("kt", "kts"), media_types=("text/x-kotlin",),
        interpreters=("kotlin",), grammar=("tree_sitter_kotlin", "language"),
    ),
    Language(
        name="bash", aliases=("sh", "shell", "zsh", "ksh", "shellscript", "shell-script"),
        extensions=("sh", "bash", "zsh", "ksh", "bats"),
        filenames=(".bashrc", ".bash_profile", ".zshrc", ".profile", "apkbuild", "pkgbuild"),
        media_types=("text/x-shellscript", "application/x-sh"),
        interpreters=("sh", "bash", "zsh", "dash", "ksh", "ash"),
        grammar=("tree_sitter_bash", "language"),
    ),
)  # fmt: skip
_UNPARSED = (
    Language(name="elixir", extensions=("ex", "exs"), media_types=("text/x-elixir",), interpreters=("elixir",)),
    Language(name="swift", extensions=("swift",), media_types=("text/x-swift",), interpreters=("swift",)),
    Language(name="scala", extensions=("scala", "sc"), media_types=("text/x-scala",), interpreters=("scala",)),
    Language(name="lua", extensions=("lua",), media_types=("text/x-lua",), interpreters=("lua",)),
    Language(name="perl", extensions=("pl", "pm"), media_types=("text/x-perl",), interpreters=("perl",)),
    Language(name="r", extensions=("r",), media_types=("text/x-r",), interpreters=("rscript",)),
    Language(name="sql", extensions=("sql",), media_types=("application/sql", "text/x-sql")),
    Language(name="protobuf", extensions=("proto",), media_types=("text/x-protobuf",)),
    Language(name="css", extensions=("css",), media_types=("text/css",)),
    Language(name="scss", extensions=("scss",), media_types=("text/x-scss",)),
    Language(name="vue", extensions=("vue",), media_types=("text/x-vue",)),
    Language(name="terraform", extensions=("tf",), media_types=("text/x-terraform",)),
    Language(name="dockerfile", extensions=("dockerfile",), filenames=("dockerfile", "containerfile"),
             media_types=("text/x-dockerfile",)),
    Language(name="makefile", extensions=("mk",), filenames=("makefile", "gnumakefile"),
             media_types=("text/x-makefile",), interpreters=("make",)),
    Language(name="cmake", extensions=("cmake",), filenames=("cmakelists.txt",), media_types=("text/x-cmake",)),
    Language(name="groovy", extensions=("groovy", "gradle"), filenames=("jenkinsfile",),
             media_types=("text/x-groovy",)),
    Language(name="dart", extensions=("dart",), media_types=("text/x-dart",)),
    Language(name="haskell", extensions=("hs",), media_types=("text/x-haskell",)),
    Language(name="clojure", extensions=("clj", "cljs"), media_types=("text/x-clojure",)),
    Language(name="erlang", extensions=("erl",), media_types=("text/x-erlang",)),
    Language(name="fsharp", extensions=("fs", "fsx"), media_types=("text/x-fsharp",)),
    Language(name="ocaml", extensions=("ml", "mli"), media_types=("text/x-ocaml",)),
    Language(name="zig", extensions=("zig",), media_types=("text/x-zig",)),
    Language(name="nim", extensions=("nim",), media_types=("text/x-nim",)),
    Language(name="julia", extensions=("jl",), media_types=("text/x-julia",), interpreters=("julia",)),
    Language(name="powershell", extensions=("ps1", "psm1"), media_types=("text/x-powershell",),
             interpreters=("pwsh",)),
    Language(name="graphql", extensions=("graphql", "gql"), media_types=("application/graphql",)),
)  # fmt: skip

LANGUAGES: Mapping[str, Language] = {language.name: language for language in (*_PARSED, *_UNPARSED)}

_BY_NAME = {name: language for language in _PARSED for name in (language.name, *language.aliases)}
_BY_EXTENSION = {ending: language for language in LANGUAGES.values() for ending in language.extensions}
_BY_FILENAME = {name: language for language in LANGUAGES.values() for name in language.filenames}
_BY_MEDIA_TYPE = {media_type: language for language in LANGUAGES.values() for media_type in language.media_types}
_BY_INTERPRETER = {program: language for language in LANGUAGES.values() for program in language.interpreters}

_SHEBANG = re.compile(r"\ufeff?#![ \t]*(?:\S*/)?(?:env[ \t]+(?:-\S+[ \t]+|\w+=\S*[ \t]+){0,8})?(?:\S*/)?([A-Za-z+_-]+)")
_SIGN_OF_CPP = re.compile(
    r"^[ \t]*(?:namespace\b|template[ \t]*<|class[ \t]+\w|using[ \t]+\w|(?:public|private|protected)[ \t]*:)|\w::\w"
    r"|^[ \t]*#[ \t]*include[ \t]*<[a-z_]+>",
    re.MULTILINE,
)
_SIGN_OF_TSX = re.compile(r"</[A-Za-z]|<[A-Z]\w*(?:[ \t\n][^<>\n]{0,200})?/>|<>")
_SIGNS_WITHIN = 64 * 1024


def known_names() -> tuple[str, ...]:
    """The languages that have a grammar, by name."""
    return tuple(language.name for language in _PARSED)


def language_by_name(name: str) -> Language | None:
    """The language with a grammar that goes by a name or an alias, in any case."""
    return _BY_NAME.get(name.strip().lower())


def language_of(document: TextDocument) -> Language | None:
    """The language of a document: by what it says, its name, its type, its first line. None where nothing tells."""
    named = document.language.strip().lower()
    found = _BY_NAME.get(named) or LANGUAGES.get(named) or _by_filename(document.filename)
    found = found or _BY_MEDIA_TYPE.get(document.media_type) or _by_shebang(document.text)
    if found is None or named:
        return found
    head = document.text[:_SIGNS_WITHIN]
    if found.name == "c" and not document.filename.lower().endswith(".c") and _SIGN_OF_CPP.search(head):
        # A header says nothing of its language by its name.
        return LANGUAGES["cpp"]
    if found.name == "typescript" and not _by_filename(document.filename) and _SIGN_OF_TSX.search(head):
        return LANGUAGES["tsx"]
    return found


def _by_filename(filename: str) -> Language | None:
    name = filename.replace("\\", "/").rstrip("/").rpartition("/")[2].lower()
    return _BY_FILENAME.get(name) or _BY_EXTENSION.get(name.rpartition(".")[2] if "." in name else "")


def _by_shebang(text: str) -> Language | None:
    found = _SHEBANG.match(text[:512])
    return _BY_INTERPRETER.get(found.group(1).lower()) if found else None
