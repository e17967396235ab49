"""The outline of source code: its definitions, and what is defined in them."""

import re
from collections.abc import Iterator, Sequence

import tree_sitter

from kbmesh_chunker.code.assignment import AROUND_VALUES, FUNCTIONS, assigned, called_function, given_function
from kbmesh_chunker.code.definition import Definition
from kbmesh_chunker.code.naming import declared_name, name_of
from kbmesh_chunker.code.syntax import Meaning, Role, Syntax

MAX_DEPTH = 40
"""Definitions that are nested deeper are not looked for."""

_TRAILING = re.compile(r"[ \t]*[;,]")
_ONE = Meaning(role=Role.FUNCTION, kind="function")
_MOST_OVERLOADED = 2_000
"""Characters of a function with its signatures. Those before them stand for themselves."""
_DECLARATIONS = {"lexical_declaration", "variable_declaration"}
_BODIES = {
    "class_body", "enum_class_body", "function_body", "declaration_list", "block", "field_declaration_list",
    "compound_statement", "accessor_list", "statement_block", "enumerator_list",
}  # fmt: skip


class Outline:
    """The definitions of one text."""

    def __init__(self, text: str, root: tree_sitter.Node, syntax: Syntax) -> None:
        """Positions of the tree are code points of the text."""
        self._text = text
        self._syntax = syntax
        self._meanings = syntax.meanings
        self.root = root
        self.errors = _errors(root)
        """Stretches that are no code of the language as far as the grammar knows, in order."""
        self.definitions = self._scan(root, "", MAX_DEPTH, in_class=False)
        """Those that are in no other."""

    def open(self, definition: Definition) -> Sequence[Definition]:
        """What is defined in a definition."""
        if not definition.opened:
            definition.opened = True
            body = body_of(definition.holder)
            if body is not None:
                definition.inner = self._scan(body, definition.symbol, MAX_DEPTH, in_class=False)
        return definition.inner

    def _scan(self, container: tree_sitter.Node, path: str, depth: int, *, in_class: bool) -> list[Definition]:
        """The definitions among the children of a node, in order."""
        text, meanings, sign = self._text, self._meanings, self._syntax.sign
        found: list[Definition] = []
        if depth <= 0:
            return found
        lead = previous_end = -1
        for node in container.named_children:
            meaning = meanings.get(node.kind_id)
            if meaning is None:
                lead = -1
                previous_end = node.end_byte
                continue
            role = meaning.role
            start, end = node.start_byte, node.end_byte
            if role is Role.VALUE and sign and text.find(sign, start, end) < 0:
                lead, previous_end = -1, end
                continue
            # What is between two nodes is white space and at most a mark.
            lines = text.count("\n", previous_end, start) if previous_end >= 0 else 1
            if role is Role.COMMENT or role is Role.LEAD:
                if text[end - 1].isspace():
                    # Some grammars count the end of the line as a part of the comment.
                    end = start + len(text[start:end].rstrip())
                if role is Role.COMMENT and lines == 0:
                    # It speaks of what is before it on its line.
                    if found and lead < 0 and found[-1].end == previous_end:
                        found[-1].end = end
                elif lead < 0 or lines > 1:
                    lead = -1 if start == 0 and text.startswith("#!") else start
                previous_end = end
                continue
            begin = lead if lead >= 0 and lines < 2 else start
            lead = -1
            before = len(found)
            if role is Role.FUNCTION or role is Role.CLASS:
                if (definition := self._defined(node, node, meaning, begin, path, depth, in_class)) is not None:
                    found.append(definition)
                elif role is Role.FUNCTION:
                    found.extend(self._scan(node, path, depth - 1, in_class=in_class))
            else:
                found.extend(self._understand(node, meaning, begin, path, depth, in_class))
            previous_end = end
            if len(found) > before and found[-1].end == end:
                closed = _TRAILING.match(text, end, end + 64)
                if closed is not None:
                    found[-1].end = previous_end = closed.end()
            if before and found[-1].name == found[before - 1].name and len(found) == before + 1:
                self._gather_overloads(found)
        return found

    def _gather_overloads(self, found: list[Definition]) -> None:
        """Puts the signatures of a function that has several before it, as what is written above it."""
        text, last = self._text, found[-1]
        if last.role is not Role.FUNCTION or _is_overload(text, last):
            return
        first = len(found) - 1
        while (
            first
            and found[first - 1].name == last.name
            and _is_overload(text, found[first - 1])
            and last.end - found[first - 1].start <= _MOST_OVERLOADED
        ):
            first -= 1
        last.start = found[first].start
        del found[first:-1]

    def _understand(
        self, node: tree_sitter.Node, meaning: Meaning, begin: int, path: str, depth: int, in_class: bool
    ) -> Iterator[Definition]:
        """The definitions that a node stands for: one, none, or those within it."""
        match meaning.role:
            case Role.PASSAGE | Role.ERROR:
                yield from self._scan(node, path, depth - 1, in_class=in_class)
            case Role.WRAPPER:
                yield from self._unwrap(node, begin, path, depth, in_class)
            case Role.VALUE:
                yield from self._value(node, begin, path, depth, in_class)
            case Role.TYPEDEF:
                yield from self._typedef(node, begin, path, depth)
            case Role.TYPES:
                yield from self._types(node, begin, path, depth)
            case Role.GROUP:
                yield from self._group(node, node, begin, path, depth, in_class)
            case _:
                yield from self._define(node, node, meaning, begin, path, depth, in_class)

    def _define(
        self,
        outer: tree_sitter.Node,
        inner: tree_sitter.Node,
        meaning: Meaning,
        begin: int,
        path: str,
        depth: int,
        in_class: bool,
        name: str | None = None,
        members: list[Definition] | None = None,
    ) -> Iterator[Definition]:
        """A definition, or what is defined in a function without a name; see `_defined`."""
        definition = self._defined(outer, inner, meaning, begin, path, depth, in_class, name, members)
        if definition is not None:
            yield definition
        elif meaning.role is Role.FUNCTION:
            yield from self._scan(inner, path, depth - 1, in_class=in_class)

    def _defined(
        self,
        outer: tree_sitter.Node,
        inner: tree_sitter.Node,
        meaning: Meaning,
        begin: int,
        path: str,
        depth: int,
        in_class: bool,
        name: str | None = None,
        members: list[Definition] | None = None,
    ) -> Definition | None:
        """A definition: `outer` is all of it, `inner` has its name and its body. `members` are given where they were
        looked for before. None where it defines nothing, as a function without a name."""
        role, kind = meaning.role, meaning.kind
        if name is None:
            name = name_of(self._text, inner, simply=meaning.named_simply)
        if not name and role is Role.FUNCTION:
            return None
        if role is Role.CLASS and inner.type.endswith("_specifier") and inner.child_by_field_name("body") is None:
            # `struct A` alone names a type that is defined elsewhere.
            return None
        if role is Role.FUNCTION and kind == "function" and in_class:
            kind = "method"
        if role is Role.SPACE and body_of(inner) is None:
            return None
        symbol = path
        if name:
            symbol = f"{path}{self._syntax.separator}{name}" if path else name
        start, end = outer.start_byte, outer.end_byte
        if self._text[end - 1 : end].isspace():
            end = start + len(self._text[start:end].rstrip())
        definition = Definition(
            role=role,
            kind=kind,
            name=name,
            symbol=symbol if name else "",
            start=begin,
            end=end,
            head=inner.start_byte if outer is not inner and outer.type == "decorated_definition" else start,
            node=outer,
            holder=inner,
        )
        if role is Role.CLASS or role is Role.SPACE:
            definition.opened = True
            body = body_of(inner) if members is None else None
            if body is not None:
                members = self._scan(body, symbol, depth - 1, in_class=role is Role.CLASS)
            definition.inner = members or []
        elif role is Role.ALIAS:
            definition.opened = True
        return definition

    def _unwrap(
        self, outer: tree_sitter.Node, begin: int, path: str, depth: int, in_class: bool
    ) -> Iterator[Definition]:
        node = outer
        for _ in range(8):
            following = node.child_by_field_name("definition") or node.child_by_field_name("declaration")
            following = following or node.child_by_field_name("value")
            if following is None:
                following = next(
                    (child for child in reversed(node.named_children) if child.kind_id in self._meanings), None
                )
            if following is None:
                return
            meaning = self._meanings.get(following.kind_id)
            if meaning is None:
                return
            node = following
            if meaning.role is not Role.WRAPPER:
                break
        else:
            return
        match meaning.role:
            case Role.FUNCTION | Role.CLASS | Role.SPACE | Role.ALIAS:
                name = name_of(self._text, node)
                unnamed = "default" if outer.type == "export_statement" else ""
                yield from self._define(outer, node, meaning, begin, path, depth, in_class, name=name or unnamed)
            case Role.VALUE:
                yield from self._value(outer, begin, path, depth, in_class, declared=node)
            case Role.PASSAGE:
                # As in `declare global { ... }`.
                yield from self._group(outer, node, begin, path, depth, in_class)
            case Role.TYPEDEF:
                yield from self._typedef(node, begin, path, depth, outer=outer)
            case _:
                for definition in self._understand(node, meaning, begin, path, depth - 1, in_class):
                    if definition.node == node:
                        definition.end = max(definition.end, outer.end_byte)
                        definition.head = min(definition.head, outer.start_byte)
                        definition.node = outer
                    yield definition

    def _group(
        self, outer: tree_sitter.Node, holder: tree_sitter.Node, begin: int, path: str, depth: int, in_class: bool
    ) -> Iterator[Definition]:
        """Definitions that stand in something without a name; nothing where there are none."""
        inner = self._scan(holder, path, depth - 1, in_class=in_class)
        if inner:
            yield Definition(
                role=Role.GROUP, kind="", name="", symbol="", start=begin,
                end=outer.start_byte + len(self._text[outer.start_byte : outer.end_byte].rstrip()),
                head=outer.start_byte, node=outer, holder=holder, inner=inner, opened=True,
            )  # fmt: skip

    def _value(
        self,
        outer: tree_sitter.Node,
        begin: int,
        path: str,
        depth: int,
        in_class: bool,
        declared: tree_sitter.Node | None = None,
    ) -> Iterator[Definition]:
        """A name and the function, class or object that it is given."""
        node = declared or outer
        members: list[Definition] | None = None
        if node.type in _DECLARATIONS and node.named_child_count > 1:
            yield from self._group(outer, node, begin, path, depth, in_class)
            return
        name, value = assigned(self._text, node)
        if value is None:
            return
        direct = self._meanings.get(value.kind_id)
        if not name and direct is not None and (direct.role is Role.FUNCTION or direct.role is Role.SPACE):
            # As in Ruby's `private def ...`, and a namespace of TypeScript.
            yield from self._define(outer, value, direct, begin, path, depth, in_class)
            return
        for _ in range(4):
            if value.type not in AROUND_VALUES or not value.named_child_count:
                break
            value = value.named_child(0)
        kind = value.type
        if kind in FUNCTIONS or kind == "getter":
            holder = node if kind == "getter" else value
            label = "method" if in_class else "property" if kind == "getter" else "function"
            meaning = Meaning(role=Role.FUNCTION, kind=label)
        elif kind == "var_spec_list":
            yield from self._group(outer, value, begin, path, depth, in_class)
            return
        elif kind in {"class", "object", "object_creation_expression"}:
            holder, meaning = value, Meaning(role=Role.CLASS, kind="class" if kind == "class" else "object")
            if kind != "class":
                body = _anonymous_body(value)
                if not name:
                    yield from self._group(outer, body, begin, path, depth, True)
                    return
                below = f"{path}{self._syntax.separator}{name}" if path and name else path or name
                members = self._scan(body, below, depth - 1, in_class=True)
                if not members:
                    return
        elif kind in {"call_expression", "call", "member_call_expression"}:
            function = given_function(value)
            if not name or function is None:
                if function is not None or called_function(value) is not None:
                    yield from self._group(outer, value, begin, path, depth, in_class)
                return
            holder = function
            is_class = kind == "call"
            meaning = Meaning(role=Role.CLASS, kind="class") if is_class else _ONE
        elif not name and kind == "unary_expression":
            yield from self._group(outer, value, begin, path, depth, in_class)
            return
        else:
            return
        yield from self._define(outer, holder, meaning, begin, path, depth, in_class, name=name, members=members)

    def _typedef(
        self,
        node: tree_sitter.Node,
        begin: int,
        path: str,
        depth: int,
        outer: tree_sitter.Node | None = None,
    ) -> Iterator[Definition]:
        """A declaration of C, where it holds a struct or the like, or a lambda."""
        outer = outer or node
        held = node.child_by_field_name("type")
        meaning = self._meanings.get(held.kind_id) if held is not None else None
        if held is None or meaning is None or meaning.role is not Role.CLASS:
            declared = node.child_by_field_name("declarator")
            value = declared.child_by_field_name("value") if declared is not None else None
            if value is not None and value.type == "lambda_expression":
                name = declared_name(self._text, declared)
                yield from self._define(outer, value, _ONE, begin, path, depth, False, name=name)
            return
        if held.child_by_field_name("body") is None:
            return
        name = ""
        if node.type == "type_definition" or held.child_by_field_name("name") is None:
            declared = node.child_by_field_name("declarator")
            name = self._text[declared.start_byte : declared.end_byte][:200] if declared is not None else ""
        yield from self._define(outer, held, meaning, begin, path, depth, False, name=name or None)

    def _types(self, node: tree_sitter.Node, begin: int, path: str, depth: int) -> Iterator[Definition]:
        """`type A struct {...}` of Go, or several types in brackets."""
        specs = [child for child in node.named_children if child.type in {"type_spec", "type_alias"}]
        if len(specs) == 1:
            yield from self._go_type(node, specs[0], begin, path, depth)
            return
        inner: list[Definition] = []
        for spec in specs:
            inner.extend(self._go_type(spec, spec, spec.start_byte, path, depth))
        if inner:
            yield Definition(
                role=Role.GROUP, kind="", name="", symbol="", start=begin, end=node.end_byte, head=node.start_byte,
                node=node, holder=node, inner=inner, opened=True,
            )  # fmt: skip

    def _go_type(
        self, outer: tree_sitter.Node, spec: tree_sitter.Node, begin: int, path: str, depth: int
    ) -> Iterator[Definition]:
        described = spec.child_by_field_name("type")
        kind = {"struct_type": "struct", "interface_type": "interface"}.get(described.type if described else "", "type")
        if described is None or kind == "type":
            meaning = Meaning(role=Role.ALIAS, kind="type")
        else:
            meaning = Meaning(role=Role.CLASS, kind=kind)
        yield from self._define(outer, spec, meaning, begin, path, depth, False)


def body_of(node: tree_sitter.Node) -> tree_sitter.Node | None:
    """The part of a definition that holds its statements or members. None where it has none."""
    body = node.child_by_field_name("body")
    if body is None:
        node_type = node.type
        if node_type == "type_spec":
            described = node.child_by_field_name("type")
            if described is None or described.type == "interface_type":
                return described
            node = described
        elif node_type in {"object", "if_statement", "do_block", "block"}:
            return node if node_type != "if_statement" else node.child_by_field_name("consequence")
        body = next((child for child in reversed(node.named_children) if child.type in _BODIES), None)
    if body is not None and body.type == "function_body":
        # Kotlin puts a block within it, unless it is an expression.
        inner = body.named_child(0) if body.named_child_count else None
        if inner is not None and inner.type == "block":
            return inner
    return body


def _is_overload(text: str, definition: Definition) -> bool:
    """Whether it is a signature whose body stands in a function below it."""
    if definition.holder.type in {"function_signature", "method_signature"}:
        return True
    return definition.node.type == "decorated_definition" and "overload" in text[definition.start : definition.head]


def _anonymous_body(creation: tree_sitter.Node) -> tree_sitter.Node:
    """What has the members of a class without a name, where an object of it is made."""
    for child in creation.named_children:
        if child.type in _BODIES:
            return child
        if child.type == "anonymous_class":
            return body_of(child) or child
    return creation


def _errors(root: tree_sitter.Node) -> list[tuple[int, int]]:
    """The outermost nodes of a tree that stand for what is wrong."""
    errors: list[tuple[int, int]] = []
    waiting = [root] if root.has_error else []
    while waiting:
        node = waiting.pop()
        if node.is_error or node.is_missing:
            errors.append((node.start_byte, max(node.end_byte, node.start_byte + 1)))
        else:
            waiting.extend(child for child in reversed(node.children) if child.has_error)
    return errors
