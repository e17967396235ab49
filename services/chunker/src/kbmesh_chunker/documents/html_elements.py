"""What the elements of HTML mean for the text of a page."""

import re
from collections.abc import Mapping

Attributes = Mapping[str, str]

_VOID = "area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr"
VOID = frozenset(_VOID.split())
"""Elements without a content and an end tag."""
TRANSPARENT = frozenset({"html", "head", "body"})
"""Elements that a page has whether or not their tags are there."""
_BLOCKS = """
    address article aside blockquote button canvas caption center datalist dd details dialog dir div dl dt fieldset
    figcaption figure footer form frameset h1 h2 h3 h4 h5 h6 header hgroup hr iframe legend li listing main map menu nav
    noscript ol optgroup option p plaintext pre search section select summary table tbody td template textarea tfoot th
    thead tr ul xmp
"""
BLOCKS = frozenset(_BLOCKS.split())
"""Elements whose text is not on a line with what stands around them."""
_CLOSES_P = """
    address article aside blockquote center details dialog dir div dl fieldset figcaption figure footer form h1 h2 h3 h4
    h5 h6 header hgroup hr main menu nav ol p pre listing search section summary table ul xmp plaintext li dd dt
"""
CLOSES_P = frozenset(_CLOSES_P.split())
"""Elements before which a paragraph ends (WHATWG HTML, 13.2.6.4.7)."""
HEADINGS = {"h1": 1, "h2": 2, "h3": 3, "h4": 4, "h5": 5, "h6": 6}
CODE = frozenset({"code", "tt", "samp", "kbd"})
STRUCK = frozenset({"del", "s", "strike"})
BARRIERS = frozenset({"td", "th", "caption", "table", "template", "object", "marquee", "applet", "svg", "math"})
"""An end tag within them ends nothing outside them."""
SECTIONS = frozenset({"article", "aside", "main", "nav", "section", "blockquote", "dialog", "figure", "details"})
"""A header or footer within them is not that of the page (HTML-AAM, landmarks)."""

SHOWN_INPUTS = frozenset({"", "text", "email", "number", "tel", "url", "search", "date", "time", "month", "week"})
"""Types of `input` whose value is text on the page."""

_NEVER_SHOWN = {
    "template": "template", "datalist": "hidden text", "rp": "", "annotation": "", "annotation-xml": "",
}  # fmt: skip
MAY_BE_LEFT_OUT = frozenset(_NEVER_SHOWN) | {"nav", "search", "header", "footer"}
"""Elements that may be no part of the text, whatever their attributes."""
_ROLES = {
    "navigation": "navigation", "banner": "page header", "contentinfo": "page footer", "search": "search form",
}  # fmt: skip
_HIDING = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse))\b", re.IGNORECASE)
_BLOCK_STYLE = re.compile(r"(?:^|;)\s*display\s*:\s*(?:block|flex|grid|table|list-item|flow-root)", re.IGNORECASE)
_COOKIE_NOTICE = re.compile(
    r"(?:^|[\s_-])(?:cookie|gdpr|consent)s?[_-]?(?:banner|notice|consent|bar|popup|overlay|modal|dialog|wall)\b"
    r"|\bonetrust-|\bcookiebot|\bcybotcookie|\bqc-cmp2-|\bosano-cm",
    re.IGNORECASE,
)
_LANGUAGE = re.compile(
    r"(?:^|\s)(?:language|lang|highlight|highlight-source|sourceCode|brush:)[-\s:]?\s*([\w+#.-]{1,24})"
)
_NO_LANGUAGE = frozenset({"default", "none", "text", "plaintext", "notranslate", "nohighlight", "plain"})
_MAX_LOOKED_AT = 2_000


def hidden(name: str, attributes: Attributes) -> str:
    """What an element is that no browser shows. Empty where it is shown."""
    if name in _NEVER_SHOWN:
        return _NEVER_SHOWN[name] or "alternative"
    if not attributes:
        return ""
    if "hidden" in attributes and attributes["hidden"].lower() != "until-found":
        return "hidden text"
    style = attributes.get("style")
    if style and _HIDING.search(style[:_MAX_LOOKED_AT]):
        return "hidden text"
    return ""


def furniture(name: str, attributes: Attributes, *, of_page: bool) -> str:
    """What an element is that belongs to the site and not to the page. Empty where it may be content.

    `of_page`: whether a header or footer here is that of a page whose main content is marked.
    """
    role = attributes.get("role", "").strip().lower()
    if role in _ROLES:
        return _ROLES[role]
    if not role:
        if name == "nav":
            return "navigation"
        if name == "search":
            return "search form"
        if of_page and name in {"header", "footer"}:
            return f"page {name}"
    if name in {"div", "section", "aside", "dialog", "form"}:
        marks = f"{attributes.get('id', '')} {attributes.get('class', '')}"
        if _COOKIE_NOTICE.search(marks[:_MAX_LOOKED_AT]):
            return "cookie notice"
    return ""


def shown_as_block(attributes: Attributes) -> bool:
    """Whether an element within a line is made a block by its style."""
    style = attributes.get("style", "")
    return _BLOCK_STYLE.search(style[:_MAX_LOOKED_AT]) is not None


def heading_level(name: str, attributes: Attributes) -> int:
    """1 to 6; 0 where an element is no heading."""
    level = HEADINGS.get(name, 0)
    if attributes and attributes.get("role", "").lower() == "heading":
        return min(6, max(1, number(attributes.get("aria-level", ""), 2)))
    return level


def language(attributes: Attributes) -> str:
    """The language of code, as highlighters mark it. Empty where none is named."""
    named = attributes.get("data-lang") or attributes.get("data-language") or ""
    if not named:
        found = _LANGUAGE.search(attributes.get("class", "")[:_MAX_LOOKED_AT])
        named = found.group(1) if found else ""
    named = named.strip().lower()
    return named if re.fullmatch(r"[\w+#.-]{1,24}", named) and named not in _NO_LANGUAGE else ""


def number(text: str, default: int) -> int:
    """A whole number as attributes have it: what follows the digits is of no matter."""
    found = re.match(r"\s*(-?[0-9]{1,9})", text)
    return int(found.group(1)) if found else default
