"""Functions, classes and objects that get their names by an assignment."""

import tree_sitter

from kbmesh_chunker.code.naming import assigned_name, name_of

FUNCTIONS = frozenset(
    {"arrow_function", "function_expression", "generator_function", "anonymous_function", "lambda_literal", "lambda",
     "lambda_expression", "func_literal", "closure_expression"}
)  # fmt: skip
"""Nodes that are functions without a name of their own."""
AROUND_VALUES = frozenset({"parenthesized_expression", "as_expression", "satisfies_expression", "await_expression"})
_FEW = 8


def assigned(text: str, node: tree_sitter.Node) -> tuple[str, tree_sitter.Node | None]:
    """The name and the value of an assignment. The name is empty where a value stands alone, the value None where
    there is none to look at."""
    match node.type:
        case "lexical_declaration" | "variable_declaration":
            for child in node.named_children:
                value = child.child_by_field_name("value")
                named = child.child_by_field_name("name")
                if value is not None and named is not None and named.type == "identifier":
                    return text[named.start_byte : named.end_byte], value
            return "", None
        case "expression_statement" | "assignment":
            if not node.named_child_count:
                return "", None
            child = node if node.type == "assignment" else node.named_child(0)
            left, right = child.child_by_field_name("left"), child.child_by_field_name("right")
            if child.type in {"assignment_expression", "assignment"} and left is not None and right is not None:
                return assigned_name(text[left.start_byte : left.end_byte]), right
            return "", child
        case "call":
            given = node.child_by_field_name("arguments")
            if given is not None and given.named_child_count == 1:
                only = given.named_child(0)
                if only is not None and only.type in {"method", "singleton_method"}:
                    return "", only
            return "", node if node.child_by_field_name("block") is not None else None
        case "property_declaration":
            value = next((child for child in node.named_children if child.type in {"getter", "lambda_literal"}), None)
            return (name_of(text, node), value) if value is not None else ("", None)
        case "return_statement":
            made = node.named_child(0) if node.named_child_count else None
            return "", made if made is not None and made.type == "object_creation_expression" else None
        case "field_declaration" | "var_declaration":
            return _declared(text, node)
        case _:
            named = (
                node.child_by_field_name("property")
                or node.child_by_field_name("name")
                or node.child_by_field_name("key")
            )
            name = text[named.start_byte : named.end_byte].strip("\"'`") if named is not None else ""
            return name, _only(node.child_by_field_name("value"))


def _declared(text: str, node: tree_sitter.Node) -> tuple[str, tree_sitter.Node | None]:
    """The name and the value of a field of Java or C#, or of a variable of Go; of several variables, all that
    declares them."""
    inner = node.child_by_field_name("declarator")
    if inner is None:
        inner = next((child for child in node.named_children if child.type.startswith("var")), None)
    if inner is not None and inner.type == "variable_declaration":
        inner = next((child for child in inner.named_children if child.type == "variable_declarator"), None)
    if inner is None or inner.type == "var_spec_list":
        return "", inner
    named = inner.child_by_field_name("name")
    value = inner.child_by_field_name("value")
    if value is None and inner.named_child_count > 1:
        value = inner.named_child(inner.named_child_count - 1)
    return text[named.start_byte : named.end_byte] if named is not None else "", _only(value)


def _only(value: tree_sitter.Node | None) -> tree_sitter.Node | None:
    """A value, out of a list of one."""
    if value is not None and value.type == "expression_list":
        return value.named_child(0) if value.named_child_count == 1 else None
    return value


def given_function(call: tree_sitter.Node) -> tree_sitter.Node | None:
    """The function among the arguments of a call, or the block that is given to it."""
    block = call.child_by_field_name("block")
    if block is not None:
        return block
    arguments = call.child_by_field_name("arguments")
    if arguments is None or arguments.type != "arguments":
        return None
    for child in arguments.named_children[:_FEW]:
        if child.type in FUNCTIONS:
            return child
    return None


def called_function(call: tree_sitter.Node) -> tree_sitter.Node | None:
    """The function that is called where it is written, as `(function () { ... })()`."""
    function = call.child_by_field_name("function")
    if function is not None and function.type == "parenthesized_expression" and function.named_child_count:
        inner = function.named_child(0)
        return inner if inner is not None and inner.type in FUNCTIONS else None
    return None
