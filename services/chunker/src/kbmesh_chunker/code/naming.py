"""The names of definitions."""

import re

import tree_sitter

MAX_NAME = 200
"""Characters of a name that are kept."""

_RECEIVER = re.compile(r"(\w+)\s*(?:\[[^\]]*\])?\s*\)?\s*$")
_EXPORTED = re.compile(r"^(?:module\.)?exports\.(?=\w)")
_DECLARATORS = frozenset(
    {"function_declarator", "pointer_declarator", "reference_declarator", "parenthesized_declarator",
     "attributed_declarator", "array_declarator", "init_declarator", "operator_cast"}
)  # fmt: skip
_RECEIVER_TYPES = frozenset({"user_type", "nullable_type", "parenthesized_type", "function_type"})


def name_of(text: str, node: tree_sitter.Node, *, simply: bool = False) -> str:
    """The name by which a definition is known; empty where it has none. Quicker where it is known to be named
    `simply`, as most are."""
    if simply:
        named = node.child_by_field_name("name")
        return _text(text, named).strip("\"'`") if named is not None else ""
    node_type = node.type
    if node_type == "impl_item":
        return _without_arguments(_text(text, node.child_by_field_name("type")))
    if node_type in {"singleton_class", "companion_object"}:
        return ""
    named = node.child_by_field_name("name")
    if node_type == "method_declaration" and (receiver := node.child_by_field_name("receiver")) is not None:
        found = _RECEIVER.search(_text(text, receiver))
        return f"{found.group(1)}.{_text(text, named)}" if found else _text(text, named)
    if node_type == "singleton_method":
        # As in `def self.build`: the object is what the method is in.
        target = _text(text, node.child_by_field_name("object"))
        return _text(text, named) if target in {"", "self"} else f"{target}.{_text(text, named)}"
    if node_type in {"function_definition", "inline_method_definition"} and named is None:
        declarator = node.child_by_field_name("declarator")
        name = declared_name(text, declarator)
        if name.isupper() and node.child_by_field_name("type") is None and _is_macro(declarator):
            # A macro makes the function: `TEST(Cart, IsEmpty) { ... }`.
            return _text(text, declarator)
        return name
    if node_type in {"function_declaration", "property_declaration"}:
        return _with_receiver(text, node, named)
    if node_type == "destructor_declaration":
        return "~" + _text(text, named)
    if node_type == "indexer_declaration":
        return "this[]"
    if node_type == "operator_declaration":
        return "operator " + _text(text, node.child_by_field_name("operator"))
    if node_type == "conversion_operator_declaration":
        return "operator " + _text(text, node.child_by_field_name("type"))
    if node_type == "secondary_constructor":
        return "constructor"
    if node_type == "type_alias" and named is None:
        named = node.child_by_field_name("type")
    if node_type == "type_alias_statement":
        return _without_arguments(_text(text, node.child_by_field_name("left")))
    return _text(text, named).strip("\"'`")


def assigned_name(written: str) -> str:
    """The name that a value of JavaScript gets by an assignment: `exports.a`, `A.prototype.b`, `this.c`."""
    written = " ".join(written.split())[:MAX_NAME]
    if written == "module.exports":
        return "exports"
    written = _EXPORTED.sub("", written)
    return written.replace(".prototype.", ".").removeprefix("this.")


def _is_macro(declarator: tree_sitter.Node | None) -> bool:
    """Whether what looks like the parameters of a function are names alone, as a macro has them."""
    listed = declarator.child_by_field_name("parameters") if declarator is not None else None
    if listed is None or not listed.named_child_count:
        return False
    return all(
        child.type == "parameter_declaration" and child.child_by_field_name("declarator") is None
        for child in listed.named_children
    )


def _text(text: str, node: tree_sitter.Node | None) -> str:
    if node is None:
        return ""
    start = node.start_byte
    written = text[start : min(node.end_byte, start + 4 * MAX_NAME)]
    return written[:MAX_NAME] if written.isidentifier() else " ".join(written.split())[:MAX_NAME]


def _without_arguments(name: str) -> str:
    return name.partition("<")[0].partition("[")[0].strip().removeprefix("&").strip()


def declared_name(text: str, node: tree_sitter.Node | None) -> str:
    """The name within a declarator of C: `*(*name(int a))[3]`."""
    for _ in range(32):
        if node is None or node.type not in _DECLARATORS:
            break
        if node.type == "operator_cast":
            return "operator " + _text(text, node.child_by_field_name("type"))
        inner = node.child_by_field_name("declarator")
        if inner is None:
            inner = next((child for child in node.named_children if child.type != "type_qualifier"), None)
        node = inner
    return _text(text, node)


def _with_receiver(text: str, node: tree_sitter.Node, named: tree_sitter.Node | None) -> str:
    """A name with the type that a function of Kotlin extends: `String.shout`."""
    receiver = ""
    for child in node.named_children:
        if named is not None and child.start_byte >= named.start_byte:
            break
        if child.type == "variable_declaration":
            named = child.named_child(0) if child.named_child_count else child
            break
        if child.type in _RECEIVER_TYPES:
            receiver = _without_arguments(_text(text, child))
    name = _text(text, named)
    return f"{receiver}.{name}" if receiver else name
