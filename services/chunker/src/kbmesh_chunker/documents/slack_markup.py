"""Slack's markup (mrkdwn) to text that reads alone.

Slack escapes exactly three characters, `&`, `<` and `>`, and puts what it knows between angle brackets
(https://docs.slack.dev/messaging/formatting-message-text). All else stays as it was written.
"""

import re
from datetime import UTC, datetime

from kbmesh_chunker.documents.slack_directory import Directory

_ESCAPE = re.compile(r"&(?:amp|lt|gt);")
_ESCAPED = {"&amp;": "&", "&lt;": "<", "&gt;": ">"}
# One pass finds the places where code begins and ends, and the brackets in and around it.
_TOKEN = re.compile(r"```|`|\n|<([^<>\s][^<>\n]{0,4000})>")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}:")
_BROADCASTS = {"here", "channel", "everyone"}


def unescape(text: str) -> str:
    """Undoes Slack's escapes, each once: `&amp;lt;` was written as `&lt;`."""
    return _ESCAPE.sub(lambda found: _ESCAPED[found.group()], text) if "&" in text else text


def render_markup(text: str, directory: Directory) -> str:
    """Mentions by name, links as `label (address)`, escapes undone. Code stays as it was written."""
    if "<" not in text:
        return unescape(text)
    directory.add_labels(text)
    parts: list[str] = []
    position = 0
    code = ""
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if mark in {"```", "`"}:
            if not code:
                code = mark if _closes(text, mark, token.end()) else ""
            elif mark == code:
                code = ""
            continue
        if mark == "\n":
            code = "" if code == "`" else code
            continue
        shown = _bracket(token.group(1), directory, code=bool(code))
        if shown is not None:
            parts.extend((unescape(text[position : token.start()]), shown))
            position = token.end()
    parts.append(unescape(text[position:]))
    return "".join(parts)


def _closes(text: str, mark: str, position: int) -> bool:
    """Whether code that `mark` opens also ends."""
    if mark == "```":
        return text.find(mark, position) >= 0
    end = text.find("\n", position, position + 2000)
    return text.find(mark, position, end if end >= 0 else position + 2000) >= 0


def _bracket(inner: str, directory: Directory, *, code: bool) -> str | None:
    """What stands between two angle brackets; None where it is none of Slack's."""
    target, _, label = inner.partition("|")
    label = unescape(label).strip()
    match target[0]:
        case "@" if len(target) > 1:
            return f"@{directory.user(target[1:]).removeprefix('@')}"
        case "#" if len(target) > 1:
            return f"#{directory.channel(target[1:]).removeprefix('#')}"
        case "!":
            return _special(target[1:], label, directory)
    if _ADDRESS.match(target) is None:
        return None
    return render_link(unescape(target), label, code=code)


def _special(command: str, label: str, directory: Directory) -> str:
    name, *details = command.split("^")
    if name in _BROADCASTS:
        return f"@{name}"
    if name == "subteam":
        return f"@{label.removeprefix('@') or directory.group(details[0] if details else name)}"
    if name == "date" and not label and details:
        return show_seconds(details[0]) or command
    return label or command


def render_link(address: str, label: str, *, code: bool = False) -> str:
    """`label (address)`, or the address alone where the label says the same."""
    shown = address
    for scheme in ("mailto:", "tel:"):
        shown = shown.removeprefix(scheme)
    if not label:
        return shown
    if code:
        return label
    if label == shown or _bare(label) == _bare(shown):
        return shown
    return f"{label} ({shown})"


def _bare(address: str) -> str:
    return address.removeprefix("https://").removeprefix("http://").rstrip("/")


def show_seconds(seconds: str) -> str:
    """A Unix time as `2016-01-14 09:22`, in UTC. Empty where it is none."""
    try:
        return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return ""
