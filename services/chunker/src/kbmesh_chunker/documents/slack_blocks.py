"""What a Slack message shows beside its text: blocks, attachments and files.

https://docs.slack.dev/reference/block-kit and https://docs.slack.dev/reference/messaging/payload
"""

from collections.abc import Iterator, Mapping
from typing import Any

from kbmesh_chunker.documents.slack_directory import Directory, dicts, one_line, string
from kbmesh_chunker.documents.slack_markup import render_link, render_markup, show_seconds, unescape

_MAX_DEPTH = 24
_LISTS = frozenset({"rich_text_list", "rich_text_section", "rich_text_quote", "rich_text_preformatted"})
_DELETED_FILES = frozenset({"tombstone", "hidden_by_limit"})


def render_blocks(blocks: Any, directory: Directory) -> Iterator[str]:
    """The text of blocks, a paragraph or list at a time."""
    for block in dicts(blocks):
        match block.get("type"):
            case "rich_text":
                yield from _rich_text(block, directory)
            case "section" | "context":
                yield from _texts(block, directory)
                yield from _field_texts(block, directory)
                if isinstance(block.get("accessory"), dict):
                    yield from _element(block["accessory"], directory)
            case "actions":
                for element in dicts(block.get("elements")):
                    yield from _element(element, directory)
            case "table":
                yield from _table(block, directory)
            case "markdown":
                yield string(block.get("text"))
            case "divider" | "file" | "call":
                continue
            case _:
                yield from _any_text(block, directory, depth=0)


def render_attachments(attachments: Any, directory: Directory, written: str) -> Iterator[str]:
    """The text of attachments, a line or paragraph at a time. What is a substitute is taken where nothing else is.

    `written` is the text of the message, whose links need no repeating.
    """
    for attachment in dicts(attachments):
        found = False
        for text in _attachment(attachment, directory, written):
            found = found or bool(text.strip())
            yield text
        if not found:
            yield _markup(attachment.get("fallback"), directory)


def render_files(message: Mapping[str, Any], directory: Directory) -> Iterator[str]:
    """The names of files and what is known of their content."""
    files = dicts(message.get("files"))
    if isinstance(message.get("file"), dict):
        files.append(message["file"])
    for file in files:
        if string(file.get("mode")) in _DELETED_FILES:
            continue
        title, name = (unescape(one_line(file.get(key), 300)) for key in ("title", "name"))
        shown = f"{title} ({name})" if title and name and title != name else title or name
        if shown:
            yield f"[file: {shown}]"
        yield unescape(string(file.get("alt_txt")))
        content = file.get("plain_text") or file.get("preview_plain_text") or file.get("preview")
        yield unescape(string(content))
        comment = file.get("initial_comment")
        if isinstance(comment, dict):
            yield _markup(comment.get("comment"), directory)
        transcription = file.get("transcription")
        if isinstance(transcription, dict) and isinstance(transcription.get("preview"), dict):
            yield string(transcription["preview"].get("content"))


def _attachment(attachment: Mapping[str, Any], directory: Directory, written: str) -> Iterator[str]:
    yield _markup(attachment.get("pretext"), directory)
    yield unescape(one_line(attachment.get("author_name"), 300))
    title = _markup(attachment.get("title"), directory).strip()
    address = unescape(string(attachment.get("title_link"))).strip()
    if title:
        yield render_link(address, title) if address and address not in written else title
    yield _markup(attachment.get("text"), directory)
    for field in dicts(attachment.get("fields")):
        name, value = (_markup(field.get(key), directory).strip() for key in ("title", "value"))
        yield f"{name}: {value}" if name and value else name or value
    yield from render_blocks(attachment.get("blocks"), directory)
    for inner in dicts(attachment.get("message_blocks")):
        if isinstance(inner.get("message"), dict):
            yield from render_blocks(inner["message"].get("blocks"), directory)
    yield from render_files(attachment, directory)


def _rich_text(block: Mapping[str, Any], directory: Directory) -> Iterator[str]:
    """Neighbouring elements of one message stay together: a sentence, the list that it leads to, the next."""
    parts = [_rich_element(element, directory, depth=0) for element in dicts(block.get("elements"))]
    text = ""
    for part in parts:
        if text and part:
            text = text.rstrip("\n") + "\n"
        text += part
    yield text


def _rich_element(element: Mapping[str, Any], directory: Directory, *, depth: int) -> str:
    if depth > _MAX_DEPTH:
        return ""
    kind = element.get("type")
    inner = dicts(element.get("elements"))
    if kind == "rich_text_list":
        indent = element.get("indent")
        margin = "  " * (min(indent, 8) if isinstance(indent, int) and indent > 0 else 0)
        offset = element.get("offset")
        number = (offset if isinstance(offset, int) and not isinstance(offset, bool) else 0) + 1
        lines = []
        for item in inner:
            text = _rich_element(item, directory, depth=depth + 1)
            nested = item.get("type") == "rich_text_list"
            mark = f"{number}." if element.get("style") == "ordered" else "•"
            if not nested:
                number += 1
            lines.append(f"{margin}  {text}" if nested else f"{margin}{mark} {text}")
        return "\n".join(lines)
    text = "".join(
        _rich_element(part, directory, depth=depth + 1)
        if string(part.get("type")) in _LISTS
        else _rich_leaf(part, directory)
        for part in inner
    )
    if kind == "rich_text_quote":
        return "\n".join(f"> {line}" for line in text.split("\n"))
    if kind == "rich_text_preformatted":
        return f"```\n{text}\n```"
    return text if inner else _rich_leaf(element, directory)


def _rich_leaf(element: Mapping[str, Any], directory: Directory) -> str:
    """Rich text is not escaped."""
    style = element.get("style")
    code = isinstance(style, dict) and style.get("code") is True
    match element.get("type"):
        case "text":
            text = string(element.get("text"))
            return f"`{text}`" if code and text.strip() else text
        case "link":
            return render_link(string(element.get("url")), string(element.get("text")))
        case "user":
            return f"@{directory.user(string(element.get('user_id')))}"
        case "usergroup":
            return f"@{directory.group(string(element.get('usergroup_id')))}"
        case "channel":
            return f"#{directory.channel(string(element.get('channel_id')))}"
        case "team":
            return f"@{string(element.get('team_id'))}"
        case "broadcast":
            return f"@{string(element.get('range'))}"
        case "emoji":
            return f":{string(element.get('name'))}:"
        case "color":
            return string(element.get("value"))
        case "date":
            timestamp = element.get("timestamp")
            return string(element.get("fallback")) or show_seconds(str(timestamp)[:20])
        case _:
            return string(element.get("text")) or string(element.get("url"))


def _texts(block: Mapping[str, Any], directory: Directory) -> Iterator[str]:
    if "text" in block:
        yield _text_object(block["text"], directory)
    for element in dicts(block.get("elements")):
        yield from _element(element, directory)


def _field_texts(block: Mapping[str, Any], directory: Directory) -> Iterator[str]:
    for field in dicts(block.get("fields")):
        yield _text_object(field, directory)


def _element(element: Mapping[str, Any], directory: Directory) -> Iterator[str]:
    """Text within a block; of what can be pressed only where it leads."""
    match element.get("type"):
        case "mrkdwn" | "plain_text":
            yield _text_object(element, directory)
        case "image":
            yield unescape(string(element.get("alt_text")))
        case "button":
            if isinstance(element.get("url"), str):
                yield render_link(element["url"], _text_object(element.get("text"), directory).strip())


def _table(block: Mapping[str, Any], directory: Directory) -> Iterator[str]:
    rows = block.get("rows")
    for row in rows if isinstance(rows, list) else ():
        cells = []
        for cell in dicts(row):
            rich = cell.get("type") == "rich_text"
            text = " ".join(_rich_text(cell, directory)) if rich else string(cell.get("text"))
            cells.append(" ".join(text.split()))
        yield " | ".join(cells)


def _any_text(value: Any, directory: Directory, *, depth: int) -> Iterator[str]:
    """All text of a block of another kind: header, image, video, input and what is yet to come."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, list):
        for member in value:
            yield from _any_text(member, directory, depth=depth + 1)
    elif isinstance(value, dict):
        if string(value.get("type")) in {"mrkdwn", "plain_text"}:
            yield _text_object(value, directory)
        elif value.get("type") == "rich_text":
            yield from _rich_text(value, directory)
        elif value.get("type") != "button":
            for name, member in value.items():
                if name in {"text", "alt_text", "title", "description"} and isinstance(member, str):
                    yield unescape(member)
                elif isinstance(member, dict | list):
                    yield from _any_text(member, directory, depth=depth + 1)


def _text_object(value: Any, directory: Directory) -> str:
    if isinstance(value, dict):
        text = string(value.get("text"))
        return render_markup(text, directory) if value.get("type") != "plain_text" else unescape(text)
    return _markup(value, directory)


def _markup(value: Any, directory: Directory) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return render_markup(value, directory) if isinstance(value, str) else ""
