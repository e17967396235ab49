"""How definitions introduce themselves to a reader who sees only a part of them."""

import re

import tree_sitter

from kbmesh_chunker.code.definition import Definition
from kbmesh_chunker.code.outline import body_of
from kbmesh_chunker.code.syntax import Role
from kbmesh_chunker.context import trim_middle

MAX_LINE = 120
"""Characters of a signature at most."""
MAX_DOC = 200
"""Characters of the sentence that says what a definition is for."""
_SHORT = 60
"""A signature of this length is taken as it is written; of a longer one, the types are left out."""
_MOST_WRITTEN = 1_000
_MOST_PARAMETERS = 32
_LOOK = 2_000
_FEW = 32
_ATTRIBUTES = frozenset({"attribute_list", "attribute_item", "decorator", "annotation", "marker_annotation"})
_NAME = re.compile(r"\w+")
_MARKS = re.compile(r"^[ \t]*(?:/\*\*?|\*/|\*|//[/!]?|#|--)?[ \t]?", re.MULTILINE)
_ATTRIBUTE = re.compile(r"^[ \t]*(?:#?\[|@).*$", re.MULTILINE)
_QUOTES = re.compile(r"^[rRuUbB]{0,2}(\"\"\"|'''|\"|')")
_SENTENCE_END = re.compile(r"[.!?。！？](?=\s|$|[^\x00-\x7f])|\n[ \t]*\n|\n[ \t]*(?=@|:param|Args:|Parameters)")
_TAG = re.compile(r"</?\w+/?>")


def signature(text: str, definition: Definition) -> str:
    """How a definition introduces itself, on one line: a class all that is before its body, a function that is long its
    name and those of its parameters. Empty for a namespace without a name."""
    if definition.role is Role.SPACE and not definition.name:
        return ""
    written = _written(text, definition)
    if len(written) > _SHORT and definition.role is Role.FUNCTION and definition.name:
        parameters = _parameters(text, definition.holder)
        if parameters is not None:
            written = f"{definition.name}({', '.join(parameters)})"
    return trim_middle(written, MAX_LINE)


def doc_sentence(text: str, definition: Definition) -> str:
    """The first sentence of what is written about a function, in the comment above it or in its first string. Empty
    where nothing is, or where it is long."""
    said = (
        _docstring(text, definition.holder) or text[definition.start : min(definition.head, definition.start + _LOOK)]
    )
    if not said.strip():
        return ""
    said = _TAG.sub("", _MARKS.sub("", _ATTRIBUTE.sub("", said))).strip()
    end = _SENTENCE_END.search(said)
    sentence = " ".join((said if end is None else said[: end.end()]).split())
    return sentence if sum(map(len, _NAME.findall(sentence))) > len(sentence) // 2 and len(sentence) <= MAX_DOC else ""


def _written(text: str, definition: Definition) -> str:
    body = body_of(definition.holder)
    head = max(definition.head, _after_attributes(definition))
    if body is None:
        written = text[head : min(definition.end, head + 400)].lstrip().partition("\n")[0]
    else:
        before = body.prev_sibling
        while before is not None and "comment" in before.type:
            before = before.prev_sibling
        end = body.start_byte if before is None else before.end_byte
        written = text[head : min(max(end, head), head + _MOST_WRITTEN)]
    return " ".join(written.split()).rstrip(" {")


def _after_attributes(definition: Definition) -> int:
    """Where a definition begins behind its attributes, annotations and decorators, which are long and say less than
    its name; 0 where it has none."""
    place = 0
    for node in dict.fromkeys((definition.node, definition.holder)):
        for child in node.named_children[:_FEW]:
            if child.type in _ATTRIBUTES:
                place = child.end_byte
            elif child.type == "modifiers":
                place = max((one.end_byte for one in child.named_children if one.type in _ATTRIBUTES), default=place)
            elif "comment" not in child.type:
                break
    return place


def _parameters(text: str, holder: tree_sitter.Node) -> list[str] | None:
    """The names of the parameters of a function; None where they are not known."""
    listed, node = None, holder
    for _ in range(6):
        listed = node.child_by_field_name("parameters")
        following = node.child_by_field_name("declarator")
        if listed is not None or following is None:
            break
        node = following
    if listed is None:
        listed = next((child for child in holder.named_children if child.type == "function_value_parameters"), None)
    if listed is None:
        return None
    names: list[str] = []
    for child in listed.named_children[:_MOST_PARAMETERS]:
        named = child.children_by_field_name("name") or [_named(child)]
        names.extend(" ".join(text[one.start_byte : min(one.end_byte, one.start_byte + 40)].split()) for one in named)
    return [name for name in names if _NAME.search(name)]


def _named(parameter: tree_sitter.Node) -> tree_sitter.Node:
    """What names a parameter, within its types, its default and its marks."""
    node = parameter
    for _ in range(8):
        following = (
            node.child_by_field_name("pattern")
            or node.child_by_field_name("declarator")
            or node.child_by_field_name("name")
        )
        if following is None and node.type in {"typed_parameter", "parameter", "reference_declarator"}:
            following = node.named_child(0) if node.named_child_count else None
        if following is None:
            break
        node = following
    return node


def _docstring(text: str, holder: tree_sitter.Node) -> str:
    """The string with which the body of a function of Python begins."""
    body = body_of(holder)
    if body is None or holder.type != "function_definition" or not body.named_child_count:
        return ""
    first = body.named_child(0)
    if first is not None and first.type == "expression_statement" and first.named_child_count:
        first = first.named_child(0)
    if first is None or first.type != "string":
        return ""
    written = text[first.start_byte : min(first.end_byte, first.start_byte + _LOOK)]
    quotes = _QUOTES.match(written)
    return written[quotes.end() :].removesuffix(quotes.group(1)) if quotes else ""
