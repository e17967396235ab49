"""What the nodes of each language's syntax tree mean for cutting."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache

from kbmesh_chunker.code.grammar import grammar_of
from kbmesh_chunker.code.languages import Language


class Role(Enum):
    """What a node of a syntax tree is to the one who cuts."""

    FUNCTION = auto()
    """Has a name and a body of statements."""
    CLASS = auto()
    """Has members; stays whole where it fits."""
    SPACE = auto()
    """Has members that stand for themselves, as those of a namespace do."""
    GROUP = auto()
    """Definitions may stand in it, as in a condition; has no name itself."""
    WRAPPER = auto()
    """Stands around one definition, as decorators and `export` do."""
    ALIAS = auto()
    """Gives a name to a type."""
    VALUE = auto()
    """Gives a name to a value, which may be a function."""
    TYPES = auto()
    """One or more types of Go."""
    TYPEDEF = auto()
    """A declaration of C that may hold a struct."""
    PASSAGE = auto()
    """Has no meaning of its own within a group: what is in it is looked at."""
    COMMENT = auto()
    LEAD = auto()
    """Belongs to what follows it, as an attribute does."""
    ERROR = auto()


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What a node is."""

    role: Role
    kind: str = ""
    """Of a definition, for people: "function", "class"."""
    named_simply: bool = False
    """Whether its name is that of its node."""


@dataclass(frozen=True, kw_only=True)
class Syntax:
    """What the nodes of a language mean, by the numbers of their kinds in its grammar."""

    meanings: Mapping[int, Meaning]
    blocks: frozenset[int]
    """Nodes that hold a list of statements or members."""
    leading: frozenset[int]
    """Comments, attributes and the like, which may belong to what follows."""
    functions: frozenset[int]
    """Functions, and what stands around one."""
    separator: str
    """Stands between the names of a definition and of what it is in."""
    beside: bool
    """Whether the methods of a type stand beside it."""
    sign: str
    """Without this no value is a function or the like; empty where there is no such sign."""


@dataclass(frozen=True, kw_only=True)
class _Rules:
    functions: str = ""
    """`node_type=kind`, or the node type alone where functions of it are called functions."""
    classes: str = ""
    spaces: str = ""
    groups: str = ""
    wrappers: str = ""
    aliases: str = ""
    values: str = ""
    passages: str = ""
    comments: str = "comment"
    leads: str = ""
    blocks: str = ""
    others: Mapping[str, Role] = field(default_factory=dict)
    separator: str = "."
    beside: bool = False
    sign: str = ""


_JAVASCRIPT = _Rules(
    functions="function_declaration generator_function_declaration method_definition=method "
    "function_signature method_signature=method abstract_method_signature=method function_expression "
    "generator_function arrow_function",
    classes="class_declaration=class abstract_class_declaration=class class=class interface_declaration=interface "
    "enum_declaration=enum",
    spaces="internal_module=namespace module=namespace",
    groups="if_statement try_statement for_statement for_in_statement while_statement switch_statement call_expression",
    wrappers="export_statement ambient_declaration",
    aliases="type_alias_declaration=type",
    values="lexical_declaration variable_declaration expression_statement field_definition public_field_definition "
    "pair variable_declarator",
    passages="statement_block else_clause catch_clause finally_clause arguments parenthesized_expression "
    "switch_body switch_case switch_default unary_expression return_statement",
    comments="comment html_comment",
    leads="decorator",
    blocks="statement_block class_body interface_body enum_body object object_type switch_body switch_case "
    "array arguments program jsx_element",
)
_C = _Rules(
    functions="function_definition",
    classes="struct_specifier=struct union_specifier=union enum_specifier=enum class_specifier=class",
    spaces="namespace_definition=namespace",
    groups="preproc_if preproc_ifdef linkage_specification",
    wrappers="template_declaration",
    aliases="concept_definition=concept",
    passages="preproc_else preproc_elif preproc_elifdef declaration_list",
    leads="access_specifier",
    blocks="compound_statement declaration_list field_declaration_list enumerator_list initializer_list case_statement "
    "translation_unit",
    others={"type_definition": Role.TYPEDEF, "declaration": Role.TYPEDEF, "field_declaration": Role.TYPEDEF},
    separator="::",
)

_RULES: Mapping[str, _Rules] = {
    "python": _Rules(
        functions="function_definition",
        classes="class_definition=class",
        groups="if_statement try_statement for_statement while_statement with_statement match_statement",
        wrappers="decorated_definition",
        aliases="type_alias_statement=type",
        values="expression_statement",
        sign="lambda",
        passages="block else_clause elif_clause except_clause finally_clause case_clause",
        blocks="block module dictionary list argument_list",
    ),
    "javascript": _JAVASCRIPT,
    "typescript": _JAVASCRIPT,
    "tsx": _JAVASCRIPT,
    "go": _Rules(
        functions="function_declaration method_declaration=method method_elem=method",
        groups="if_statement for_statement expression_switch_statement type_switch_statement select_statement",
        values="var_declaration var_spec",
        passages="block statement_list",
        blocks="statement_list field_declaration_list interface_type const_declaration var_declaration literal_value "
        "import_spec_list source_file",
        others={"type_declaration": Role.TYPES},
        beside=True,
    ),
    "java": _Rules(
        functions="method_declaration=method constructor_declaration=constructor "
        "compact_constructor_declaration=constructor annotation_type_element_declaration=method",
        classes="class_declaration=class interface_declaration=interface enum_declaration=enum "
        "record_declaration=record annotation_type_declaration=annotation",
        values="field_declaration",
        passages="enum_body_declarations",
        comments="line_comment block_comment",
        blocks="block class_body interface_body enum_body annotation_type_body constructor_body switch_block "
        "switch_block_statement_group array_initializer program",
    ),
    "rust": _Rules(
        functions="function_item function_signature_item macro_definition=macro",
        classes="struct_item=struct enum_item=enum union_item=union trait_item=trait impl_item=impl",
        spaces="mod_item=module",
        groups="foreign_mod_item",
        aliases="type_item=type",
        values="const_item static_item",
        passages="declaration_list",
        comments="line_comment block_comment",
        leads="attribute_item",
        blocks="block declaration_list field_declaration_list enum_variant_list match_block field_initializer_list "
        "use_list source_file",
        beside=True,
    ),
    "c": _C,
    "cpp": _C,
    "csharp": _Rules(
        functions="method_declaration=method constructor_declaration=constructor destructor_declaration=destructor "
        "operator_declaration=operator conversion_operator_declaration=operator indexer_declaration=indexer "
        "property_declaration=property event_declaration=event local_function_statement",
        classes="class_declaration=class struct_declaration=struct interface_declaration=interface "
        "enum_declaration=enum record_declaration=record record_struct_declaration=record",
        spaces="namespace_declaration=namespace",
        groups="preproc_if",
        wrappers="global_statement",
        aliases="delegate_declaration=delegate",
        values="field_declaration",
        passages="preproc_else preproc_elif declaration_list",
        blocks="block declaration_list enum_member_declaration_list switch_body switch_section accessor_list "
        "initializer_expression compilation_unit",
    ),
    "ruby": _Rules(
        functions="method singleton_method=method",
        classes="class=class module=module singleton_class=class",
        groups="if unless begin",
        values="assignment call",
        passages="then else rescue ensure body_statement do_block block block_body",
        blocks="body_statement block_body then else do_block begin_block program hash array",
    ),
    "php": _Rules(
        functions="function_definition method_declaration=method",
        classes="class_declaration=class interface_declaration=interface trait_declaration=trait enum_declaration=enum",
        spaces="namespace_definition=namespace",
        groups="if_statement",
        values="expression_statement return_statement",
        passages="compound_statement else_clause else_if_clause colon_block",
        blocks="compound_statement declaration_list enum_declaration_list switch_block case_statement "
        "array_creation_expression colon_block program",
    ),
    "kotlin": _Rules(
        functions="function_declaration secondary_constructor=constructor",
        classes="class_declaration=class object_declaration=object companion_object=object",
        aliases="type_alias=type",
        values="property_declaration",
        comments="line_comment block_comment",
        blocks="block class_body enum_class_body when_expression lambda_literal source_file",
    ),
    "bash": _Rules(
        functions="function_definition",
        groups="if_statement for_statement while_statement case_statement",
        passages="else_clause elif_clause do_group case_item compound_statement",
        blocks="compound_statement do_group subshell if_statement else_clause elif_clause case_item case_statement "
        "program",
    ),
}


_NAMED_OTHERWISE = frozenset(
    {"impl_item", "singleton_class", "companion_object", "method_declaration", "singleton_method",
     "function_definition", "function_declaration", "property_declaration", "destructor_declaration",
     "indexer_declaration", "operator_declaration", "conversion_operator_declaration", "secondary_constructor",
     "type_alias", "type_alias_statement"}
)  # fmt: skip
"""Nodes that do not simply have a name."""


@cache
def syntax_of(language: Language) -> Syntax:
    """What the nodes of a language that has a grammar mean."""
    rules = _RULES[language.name]
    named: dict[str, Meaning] = {}
    for role, listed in (
        (Role.PASSAGE, rules.passages),
        (Role.GROUP, rules.groups),
        (Role.VALUE, rules.values),
        (Role.WRAPPER, rules.wrappers),
        (Role.ALIAS, rules.aliases),
        (Role.SPACE, rules.spaces),
        (Role.CLASS, rules.classes),
        (Role.FUNCTION, rules.functions),
        (Role.COMMENT, rules.comments),
        (Role.LEAD, rules.leads),
    ):
        for entry in listed.split():
            node_type, _, kind = entry.partition("=")
            # The functions of Python are what C has another grammar for.
            simply = node_type not in _NAMED_OTHERWISE or (
                language.name == "python" and node_type == "function_definition"
            )
            kind = kind or ("function" if role is Role.FUNCTION else "")
            named[node_type] = Meaning(role=role, kind=kind, named_simply=simply)
    for node_type, role in rules.others.items():
        named[node_type] = Meaning(role=role)
    named["ERROR"] = Meaning(role=Role.ERROR)
    block_types = set(rules.blocks.split())
    grammar = grammar_of(language)
    meanings: dict[int, Meaning] = {}
    blocks: set[int] = set()
    # A kind has more than one number where the grammar gives its name to several rules.
    for number in range(grammar.node_kind_count):
        kind_name = grammar.node_kind_for_id(number)
        if kind_name is None or not grammar.node_kind_is_named(number):
            continue
        if kind_name in named:
            meanings[number] = named[kind_name]
        if kind_name in block_types:
            blocks.add(number)
    meanings[_ERROR_NUMBER] = named["ERROR"]
    leading = (number for number, meaning in meanings.items() if meaning.role in {Role.COMMENT, Role.LEAD})
    functions = (number for number, meaning in meanings.items() if meaning.role in {Role.FUNCTION, Role.WRAPPER})
    return Syntax(
        meanings=meanings,
        blocks=frozenset(blocks),
        leading=frozenset(leading),
        functions=frozenset(functions),
        separator=rules.separator,
        beside=rules.beside,
        sign=rules.sign,
    )


_ERROR_NUMBER = 0xFFFF
"""tree-sitter's number of nodes that it could not make sense of, in every grammar."""
