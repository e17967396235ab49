"""Which of two texts of a mail that should say the same is the one to take, and what is lost with the other.

What senders call an alternative is often a notice that there is another text, or the first lines of it. No list of
phrases holds all of them; how many words there are, and whether the other text has them too, does.
"""

import re
from collections import Counter

from kbmesh_rpc.errors import Reason

from kbmesh_chunker.documents.source import Warning  # noqa: A004 - the contract's name

SHORT_CHARACTERS = 400
"""A plain text below this may be a notice."""
_MUCH_MORE = 1.5
_MOST = 0.6
_FEW = 0.5
_HARDLY_ANY = 0.2
_LOGO_WORDS = 3
_LINK = re.compile(r"(?:[a-z][a-z+.-]{1,20}://|mailto:|www\.)[^\s<>\"']+", re.IGNORECASE)
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_NOTICE = re.compile(
    r"\b(?:html|browser|navigateur|navegador|webbrowser|mime|view (?:this|it|the) (?:e-?mail|message))\b", re.IGNORECASE
)
_SAMPLE = 10


def is_better(rich: str, plain: str) -> bool:
    """Whether the text that was made of HTML is the one to take.

    Plain text is what the author or the program wrote for readers without HTML, and is the better one where it is
    faithful. It is not where the HTML holds much more and the plain text is a part of it or short, or where a short
    plain text says something else.
    """
    told_plain, told_rich = _words(plain), _words(rich)
    plain_count, rich_count = told_plain.total(), told_rich.total()
    if not rich_count or not plain_count:
        return rich_count > 0
    shared = (told_plain & told_rich).total()
    is_short = len(plain.strip()) < SHORT_CHARACTERS
    if rich_count > _MUCH_MORE * plain_count:
        return is_short or shared >= _MOST * plain_count
    if not is_short or shared >= _FEW * rich_count:
        return False
    if shared < _HARDLY_ANY * min(plain_count, rich_count):
        # They do not say the same; most readers see the HTML, unless it is no more than a logo.
        return rich_count >= _LOGO_WORDS
    return rich_count > plain_count or _NOTICE.search(plain) is not None


def left_out_words(dropped: str, taken: str) -> tuple[Warning, ...]:
    """Names the words of a text that was not taken, which the one that was taken has not."""
    told = _words(taken)
    missing = [word for word in _words(dropped) if word not in told]
    if not missing:
        return ()
    sample = ", ".join(word[:40] for word in missing[:_SAMPLE]) + (", …" if len(missing) > _SAMPLE else "")
    return (
        Warning(
            reason=Reason.CONTENT_LEFT_OUT,
            message=f"a version of the mail's text was not taken; words of it that are not in the other: {sample}",
            metadata={"words": str(len(missing)), "left_out": sample},
        ),
    )


def _words(text: str) -> Counter[str]:
    """The words of a text, without the addresses of links, which only one of two texts shows."""
    return Counter(_WORD.findall(_LINK.sub(" ", text).casefold()))
