"""What kind of document it is, from what the caller says, the filename and the content."""

import json
import re
from dataclasses import dataclass
from email.message import Message

from kbmesh_chunker.documents.source import SourceType

MARKDOWN = "text/markdown"
PLAIN = "text/plain"
HTML = "text/html"
MAIL = "message/rfc822"
MBOX = "application/mbox"
JSON = "application/json"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
JSON_LINES = "application/x-ndjson"
NOTEBOOK = "application/x-ipynb+json"
SOURCE_CODE = "text/x-source-code"

_BY_EXTENSION = {
    ".md": MARKDOWN, ".markdown": MARKDOWN, ".mdown": MARKDOWN, ".mkd": MARKDOWN, ".mdx": MARKDOWN,
    ".txt": PLAIN, ".text": PLAIN, ".log": PLAIN, ".rst": "text/x-rst", ".adoc": "text/asciidoc",
    ".htm": HTML, ".html": HTML, ".xhtml": HTML,
    ".eml": MAIL, ".mbox": MBOX, ".mbx": MBOX, ".mboxrd": MBOX,
    ".ipynb": NOTEBOOK, ".json": JSON, ".jsonl": JSON_LINES, ".ndjson": JSON_LINES,
    ".yaml": "application/yaml", ".yml": "application/yaml", ".toml": "application/toml", ".xml": "application/xml",
    ".csv": "text/csv", ".tsv": "text/tab-separated-values", ".ini": PLAIN, ".cfg": PLAIN, ".conf": PLAIN,
    ".pdf": "application/pdf",
    ".docx": DOCX,
    ".doc": "application/msword",
}  # fmt: skip
_CODE_BY_EXTENSION = {
    ".py": "text/x-python", ".pyi": "text/x-python", ".js": "text/javascript", ".mjs": "text/javascript",
    ".cjs": "text/javascript", ".jsx": "text/javascript", ".ts": "text/x-typescript", ".tsx": "text/x-typescript",
    ".go": "text/x-go", ".java": "text/x-java", ".rs": "text/x-rust", ".c": "text/x-c", ".h": "text/x-c",
    ".cc": "text/x-c++", ".cpp": "text/x-c++", ".cxx": "text/x-c++", ".hh": "text/x-c++", ".hpp": "text/x-c++",
    ".cs": "text/x-csharp", ".rb": "text/x-ruby", ".php": "text/x-php", ".kt": "text/x-kotlin",
    ".kts": "text/x-kotlin", ".sh": "text/x-shellscript", ".bash": "text/x-shellscript", ".ex": "text/x-elixir",
    ".exs": "text/x-elixir", ".swift": "text/x-swift", ".scala": "text/x-scala", ".lua": "text/x-lua",
    ".pl": "text/x-perl", ".r": "text/x-r", ".sql": "application/sql", ".proto": "text/x-protobuf",
    ".css": "text/css", ".scss": "text/x-scss", ".vue": "text/x-vue", ".tf": "text/x-terraform",
    ".pyw": "text/x-python", ".mts": "text/x-typescript", ".cts": "text/x-typescript", ".hxx": "text/x-c++",
    ".ipp": "text/x-c++", ".tpp": "text/x-c++", ".inl": "text/x-c++", ".cu": "text/x-c++", ".cuh": "text/x-c++",
    ".ino": "text/x-c++", ".csx": "text/x-csharp", ".rake": "text/x-ruby", ".gemspec": "text/x-ruby",
    ".ru": "text/x-ruby", ".phtml": "text/x-php", ".zsh": "text/x-shellscript", ".ksh": "text/x-shellscript",
    ".bats": "text/x-shellscript", ".pm": "text/x-perl", ".dockerfile": "text/x-dockerfile", ".mk": "text/x-makefile",
    ".cmake": "text/x-cmake", ".groovy": "text/x-groovy", ".gradle": "text/x-groovy", ".dart": "text/x-dart",
    ".hs": "text/x-haskell", ".clj": "text/x-clojure", ".cljs": "text/x-clojure", ".erl": "text/x-erlang",
    ".fs": "text/x-fsharp", ".fsx": "text/x-fsharp", ".ml": "text/x-ocaml", ".mli": "text/x-ocaml",
    ".zig": "text/x-zig", ".nim": "text/x-nim", ".jl": "text/x-julia", ".ps1": "text/x-powershell",
    ".psm1": "text/x-powershell", ".graphql": "application/graphql", ".gql": "application/graphql",
}  # fmt: skip
_CODE_BY_NAME = {
    "dockerfile": "text/x-dockerfile", "containerfile": "text/x-dockerfile", "makefile": "text/x-makefile",
    "gnumakefile": "text/x-makefile", "cmakelists.txt": "text/x-cmake", "jenkinsfile": "text/x-groovy",
    "rakefile": "text/x-ruby", "gemfile": "text/x-ruby", "vagrantfile": "text/x-ruby", "podfile": "text/x-ruby",
    "fastfile": "text/x-ruby", ".bashrc": "text/x-shellscript", ".bash_profile": "text/x-shellscript",
    ".zshrc": "text/x-shellscript", ".profile": "text/x-shellscript", "pkgbuild": "text/x-shellscript",
    "apkbuild": "text/x-shellscript",
}  # fmt: skip
_CODE_TYPES = frozenset(_CODE_BY_EXTENSION.values()) | frozenset(_CODE_BY_NAME.values()) | {
    SOURCE_CODE, "application/javascript", "application/x-python", "application/x-sh", "application/typescript",
    "text/x-python-script", "application/x-httpd-php", "text/x-csrc", "text/x-c++src", "text/x-java-source",
    "text/x-chdr", "text/x-c++hdr", "text/x-sql",
}  # fmt: skip
_KNOWN_TYPES = frozenset(_BY_EXTENSION.values()) | _CODE_TYPES
_SAYS_NOTHING = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/unknown", "*/*"})
_OTHER_NAMES = {
    "application/jsonl": JSON_LINES, "application/jsonlines": JSON_LINES, "application/x-jsonlines": JSON_LINES,
    "application/x-mbox": MBOX, "message/global": MAIL, "message/news": MAIL, "text/x-mail": MAIL,
    "text/x-markdown": MARKDOWN, "text/x-web-markdown": MARKDOWN, "text/x-log": PLAIN, "text/json": JSON,
    "application/x-ipynb": NOTEBOOK, "application/ipynb+json": NOTEBOOK, "application/vnd.jupyter": NOTEBOOK,
    "text/xml": "application/xml", "text/yaml": "application/yaml", "application/x-yaml": "application/yaml",
}  # fmt: skip
_TEXT_SUBTYPES = """
    json xml yaml x-yaml toml javascript typescript sql x-sh x-python x-httpd-php xhtml+xml x-ndjson jsonl graphql
    x-tex x-latex mbox x-subrip
"""
_TEXT_APPLICATIONS = frozenset(_TEXT_SUBTYPES.split())
_MAGIC = (
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"PK\x05\x06", "application/zip"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage"),
    (b"{\\rtf", "application/rtf"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"\x1f\x8b", "application/gzip"),
    (b"BZh", "application/x-bzip2"),
    (b"\xfd7zXZ\x00", "application/x-xz"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"Rar!\x1a\x07", "application/vnd.rar"),
    (b"\x7fELF", "application/x-elf"),
    (b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (b"\x00asm", "application/wasm"),
    (b"ID3", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
)
_OFFICE = (
    (b"word/", DOCX),
    (b"xl/", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    (b"ppt/", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    (b"mimetypeapplication/epub+zip", "application/epub+zip"),
    (b"mimetypeapplication/vnd.oasis.opendocument.text", "application/vnd.oasis.opendocument.text"),
)
_SNIFFED = 4096
_HEADING_LINE = re.compile(r"^#{1,6}[ \t]+\S", re.MULTILINE)
_MARKDOWN_SIGN = re.compile(r"^(?:```|~~~|\|[ \t]*:?-{3,}|(?:[-*+]|\d+\.)[ \t]+\S)|\[[^\]\n]{1,80}\]\(", re.MULTILINE)
_NOTEBOOK_START = re.compile(r'\{\s{0,8}"(?:cells|metadata|nbformat|nbformat_minor|worksheets)"\s{0,8}:')
_NOTEBOOK_CELL = re.compile(r'"cell_type"\s{0,8}:\s{0,8}"(?:code|markdown|raw|heading)"')
_TITLED = re.compile(r"#{1,6}[ \t]+[^\s#][^\n]*\n(?:[ \t\r]*\n)+(?P<paragraph>[^\W\d_][^\n]*(?:\n[ \t]*[^\s#][^\n]*)*)")
_SENTENCE_END = re.compile(r"[.!?:。！？：][\"'”’»)\]*_]*$")
# Keys and values, and lines that end as those of code do.
_SETTING = re.compile(r"^[ \t]*[\w.\[\]\"'-]+[ \t]*(?:[:+]?=|:(?=[ \t\r]|$))|[;{}\\][ \t\r]*$", re.MULTILINE)
_FEWEST_WORDS = 8
_FEWEST_CHARACTERS = 24
_POSTMARK = re.compile(r"From [^\r\n]{1,300}\d:\d\d[^\r\n]{0,100}\r?\n")
_FIELD = re.compile(r"([!-9;-~]{1,80})[ \t]{0,4}:")
_SENT_BY = frozenset({"from", "received", "return-path", "message-id", "delivered-to"})
_MAIL_FIELDS = _SENT_BY | {
    "to", "cc", "subject", "date", "mime-version", "content-type", "reply-to", "sender", "in-reply-to", "references",
}  # fmt: skip
_MAX_HEADER_LINES = 200


@dataclass(frozen=True, kw_only=True)
class DeclaredType:
    """A media type as the caller wrote it, taken apart."""

    media_type: str
    """In lower case, by its registered name, without parameters; empty where it says nothing."""
    charset: str
    """Empty where none is named."""


def parse_media_type(declared: str) -> DeclaredType:
    """Takes `text/plain; charset=utf-8` apart (RFC 2045)."""
    if not declared.strip():
        return DeclaredType(media_type="", charset="")
    message = Message()
    message["Content-Type"] = " ".join(declared.split())
    media_type = declared.partition(";")[0].strip().lower()
    charset = message.get_content_charset("") if ";" in declared else ""
    media_type = "" if media_type in _SAYS_NOTHING else _OTHER_NAMES.get(media_type, media_type)
    return DeclaredType(media_type=media_type, charset=charset)


def binary_type(head: bytes) -> str:
    """The media type of a file that is not text, from its first bytes. Empty where they are no kind that is known."""
    for magic, media_type in _MAGIC:
        if head.startswith(magic):
            if media_type == "application/zip":
                return next((office for sign, office in _OFFICE if sign in head[:_SNIFFED]), media_type)
            return media_type
    if head[4:8] == b"ftyp":
        return "video/mp4"
    if head[:4] == b"RIFF" and head[8:12] in {b"WAVE", b"AVI ", b"WEBP"}:
        return {b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo", b"WEBP": "image/webp"}[head[8:12]]
    return ""


def is_text_type(media_type: str) -> bool:
    """Whether documents of this type are read as text. A type that is unknown altogether may be."""
    kind, _, subtype = media_type.partition("/")
    if kind in {"text", "message"}:
        return True
    if kind == "application":
        return (
            subtype in _TEXT_APPLICATIONS
            or subtype.endswith(("+json", "+xml", "+yaml"))
            or (
                subtype.startswith("x-")
                and not subtype.startswith(
                    ("x-7z", "x-bzip", "x-xz", "x-tar", "x-elf", "x-ole", "x-msdownload", "x-rar")
                )
            )
        )
    return kind not in {"image", "audio", "video", "font", "model", "multipart"}


def is_known_type(media_type: str) -> bool:
    """Whether it is known how documents of this type are written. What is not may be said by mistake."""
    subtype = media_type.rpartition("/")[2]
    return (
        not is_text_type(media_type)
        or media_type in _KNOWN_TYPES
        or subtype in _TEXT_APPLICATIONS
        or subtype.endswith(("+json", "+xml", "+yaml"))
    )


def settled_type(declared: str, filename: str, head: str) -> str:
    """The media type of a document of which one is declared, named or shown by its first characters; empty where none
    is. A declared one of which nothing is known gives way to the name, and to what can be nothing else."""
    named = type_by_name(filename)
    if declared == JSON and named == NOTEBOOK:
        # It is JSON too, and servers of files know no more of it.
        return named
    if declared and is_known_type(declared):
        return declared
    if named or not declared:
        return named
    shown = type_by_content(head)
    return declared if shown in {PLAIN, MARKDOWN} else shown


def type_by_name(filename: str) -> str:
    """The media type that a filename or its extension stands for. Empty where it is unknown."""
    name = filename.replace("\\", "/").rstrip("/").rpartition("/")[2].lower()
    if name in _CODE_BY_NAME:
        return _CODE_BY_NAME[name]
    stem, _, extension = name.rpartition(".")
    # A dot that begins a name or ends it begins no extension.
    extension = f".{extension}" if stem and extension else ""
    return _BY_EXTENSION.get(extension) or _CODE_BY_EXTENSION.get(extension, "")


def type_by_content(text: str) -> str:
    """The media type of a text of which nothing else is known. Never empty: text/plain at last."""
    head = text[: 16 * _SNIFFED].lstrip("\ufeff\r\n\t ")
    start = head[:256].lower()
    if start.startswith(("<!doctype html", "<html")):
        return HTML
    if _NOTEBOOK_START.match(head) and _NOTEBOOK_CELL.search(head):
        return NOTEBOOK
    if head[:1] in "[{" and (is_slack_export(text) or _is_json(text)):
        return JSON
    if (mail := _mail_type(head)) != "":
        return mail
    headings = len(_HEADING_LINE.findall(head))
    if headings >= 2 or (headings and (_MARKDOWN_SIGN.search(head) or _is_titled_prose(head))):
        return MARKDOWN
    return PLAIN


def _is_titled_prose(head: str) -> bool:
    """Whether a text begins with a heading and sentences below it, rather than with a comment of settings or code."""
    titled = _TITLED.match(head)
    if titled is None or _SETTING.search(head):
        return False
    paragraph = titled["paragraph"].rstrip()
    words = len(paragraph.split())
    # Scripts without spaces have few words.
    long = words >= _FEWEST_WORDS or (not paragraph.isascii() and len(paragraph) >= _FEWEST_CHARACTERS)
    return long and _SENTENCE_END.search(paragraph) is not None


def _mail_type(head: str) -> str:
    """The type of a text that begins with the header of a mail; empty where it does not."""
    postmark = _POSTMARK.match(head)
    start = postmark.end() if postmark else 0
    known: set[str] = set()
    # Line ends that were converted twice have a CR too many.
    for line in head[start : start + 4 * _SNIFFED].replace("\r\r\n", "\n").splitlines()[:_MAX_HEADER_LINES]:
        if not line.strip():
            break
        found = _FIELD.match(line)
        if found is not None:
            known.add(found.group(1).lower())
        elif not known or line[0] not in " \t":
            return ""
    known &= _MAIL_FIELDS
    if len(known) < 2 or not known & _SENT_BY:
        return ""
    return MBOX if postmark else MAIL


def is_code(media_type: str) -> bool:
    """Whether it is a type of source code."""
    return media_type in _CODE_TYPES


def source_type_of(media_type: str, filename: str, text: str) -> SourceType:
    """The kind of place that a document of this type comes from."""
    if media_type in {MAIL, "application/mbox"}:
        return SourceType.EMAIL
    if media_type in {HTML, "application/xhtml+xml"}:
        return SourceType.WEB_PAGE
    if is_code(media_type):
        return SourceType.CODE
    return SourceType.FILE if filename else SourceType.GENERIC


# A list may begin with what is no message.
_SLACK_START = re.compile(r'\s*(?:\[\s*(?:\{|(?:null|\d{1,20}|"[^"\n]{0,200}"|\[\s{0,8}\])\s*,)|\{\s*")')
_SLACK_LIST = re.compile(r'"(?:messages|channels)"\s{0,8}:\s{0,8}\[|\}[ \t]*\r?\n\s*\{')
_SLACK_SIGNS = (
    re.compile(r'"ts"\s{0,8}:\s{0,8}"?\d{1,12}[".,\s}]'),
    re.compile(r'"(?:text|blocks|attachments|files|deleted_ts)"\s{0,8}:'),
)
_SLACK_MESSAGE = re.compile(
    r'"(?:user|bot_id|username|subtype)"\s{0,8}:\s{0,8}"|"(?:thread_ts|deleted_ts)"\s{0,8}:|"messages"\s{0,8}:\s{0,8}\['
    r'|"type"\s{0,8}:\s{0,8}"message"'
)
_SLACK_DAY = re.compile(r"[/\\]\d{4}-\d{2}-\d{2}\.json", re.IGNORECASE)


def is_slack_export(text: str, filename: str = "") -> bool:
    """Whether a text looks like JSON of Slack's messages: a list, an object that has one, or one message a line. In a
    file that is named as a day of a channel messages need say less.

    Parsing it has the last word.
    """
    start = _SLACK_START.match(text.lstrip("\ufeff"))
    if start is None or not all(sign.search(text) for sign in _SLACK_SIGNS):
        return False
    if _SLACK_MESSAGE.search(text) is None and _SLACK_DAY.search(filename) is None:
        return False
    return "[" in start.group() or _SLACK_LIST.search(text) is not None


def _is_json(text: str) -> bool:
    if len(text) > 1_000_000:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
