"""Slack's markup, blocks, attachments and files as text that reads alone."""

from typing import Any

import pytest
from chunker.slack_files import USERS, said, shown
from kbmesh_chunker.documents.slack_directory import Directory
from kbmesh_chunker.documents.slack_markup import render_markup

HEAD = "Ada, 1970-01-01 00:00: "


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<@U1> and <@U1|old.name>", "@Ada and @Ada"),
        ("<@U0ABSENT> and <@U7|zoe>", "@U0ABSENT and @zoe"),
        ("<#C1> <#C1|general> <#C9|plans> <#C8|>", "#ops #ops #plans #C8"),
        ("<!here> <!channel> <!everyone>", "@here @channel @everyone"),
        ("<!here|here>", "@here"),
        ("<!subteam^S1|@oncall> <!subteam^S2>", "@oncall @S2"),
        ("<!date^1392734382^{date} at {time}|Feb 18th, 2014>", "Feb 18th, 2014"),
        ("<!date^1392734382^{date_short}^https://example.com/>", "2014-02-18 14:39"),
        ("<https://example.com/a?x=1&amp;y=2>", "https://example.com/a?x=1&y=2"),
        ("<https://example.com|the docs>", "the docs (https://example.com)"),
        ("<http://example.com|example.com>", "http://example.com"),
        ("<mailto:a@b.example|a@b.example>", "a@b.example"),
        ("<mailto:a@b.example|Ada>", "Ada (a@b.example)"),
        ("<tel:+4912345|call us>", "call us (+4912345)"),
        (
            "`curl <https://a.example|a.example>` &amp;&amp; <https://b.example|b>",
            "`curl a.example` && b (https://b.example)",
        ),
        ("```\ncurl <https://a.example>\n```", "```\ncurl https://a.example\n```"),
        ("a lone ` tick <https://a.example|a>", "a lone ` tick a (https://a.example)"),
        ("a &lt; b &amp;&amp; c &gt; d", "a < b && c > d"),
        ("&amp;amp;lt; &quot; &#39; &nbsp;", "&amp;lt; &quot; &#39; &nbsp;"),
        ("x < y and <div> and <", "x < y and <div> and <"),
        ("<@> <#> <!> <>", "<@> <#>  <>"),
        (":tada: *bold* _it_ ~no~", ":tada: *bold* _it_ ~no~"),
    ],
)
def test_markup(markup: str, text: str) -> None:
    directory = Directory()
    directory.add_users(USERS)
    directory.add_channels([{"id": "C1", "name": "ops"}])
    assert render_markup(markup, directory) == text


def rich(*elements: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"type": "rich_text", "elements": list(elements)}]


def section(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": "rich_text_section", "elements": list(elements)}


def text(words: str, **style: bool) -> dict[str, Any]:
    return {"type": "text", "text": words, **({"style": style} if style else {})}


def test_rich_text_alone() -> None:
    blocks = rich(
        section(
            text("Hi "),
            {"type": "user", "user_id": "U2"},
            text(", run "),
            text("a < b && c", code=True),
            text(" see "),
            {"type": "link", "url": "https://a.example/?x=1&y=2", "text": "docs"},
            text(" "),
            {"type": "emoji", "name": "tada"},
            {"type": "broadcast", "range": "here"},
            {"type": "channel", "channel_id": "C7"},
            {"type": "date", "timestamp": 1392734382, "format": "{date}"},
        ),
        {
            "type": "rich_text_list",
            "style": "ordered",
            "elements": [section(text("one")), section(text("two"))],
        },
        {"type": "rich_text_list", "style": "bullet", "indent": 1, "elements": [section(text("inner"))]},
        {"type": "rich_text_quote", "elements": [text("said\nso")]},
        {"type": "rich_text_preformatted", "elements": [text("x = 1\ny = 2")]},
    )
    assert shown([said("1.1", "", blocks=blocks)]) == [
        HEAD + "Hi @Bob Byte, run `a < b && c` see docs (https://a.example/?x=1&y=2) :tada:@here#C72014-02-18 14:39\n"
        "1. one\n2. two\n  • inner\n> said\n> so\n```\nx = 1\ny = 2\n```"
    ]


def test_what_text_and_blocks_both_say_is_there_once() -> None:
    blocks = rich(
        section(text("Deploy "), text("api", bold=True), text(" & tell "), {"type": "user", "user_id": "U2"}),
        {"type": "rich_text_list", "style": "ordered", "indent": 1, "elements": [section(text("wait"))]},
        section({"type": "usergroup", "usergroup_id": "S1"}),
    )
    written = "Deploy *api* &amp; tell <@U2>\n    a. wait\n<!subteam^S1|@oncall>"
    assert shown([said("1.1", written, blocks=blocks)]) == [
        HEAD + "Deploy *api* & tell @Bob Byte\n    a. wait\n@oncall"
    ]


def test_blocks_that_say_more_than_the_text_stand_for_it() -> None:
    blocks = [
        {"type": "header", "text": {"type": "plain_text", "text": "Build failed &amp; stopped"}},
        {"type": "divider"},
        {"type": "section", "fields": [{"type": "mrkdwn", "text": "*Branch*\nmain"}], "text": None},
        {
            "type": "context",
            "elements": [{"type": "mrkdwn", "text": "by <@U2>"}, {"type": "image", "alt_text": "face"}],
        },
        {"type": "actions", "elements": [{"type": "button", "text": {"type": "plain_text", "text": "Retry"}}]},
        {"type": "image", "title": {"type": "plain_text", "text": "A graph"}, "alt_text": "p95 over time"},
        {"type": "video_of_tomorrow", "inner": {"deeper": [{"type": "mrkdwn", "text": "new kind"}]}},
        {"type": "table", "rows": [[{"type": "raw_text", "text": "a"}, *rich(section(text("b")))]]},
    ]
    assert shown([said("1.1", "Build failed", blocks=blocks)]) == [
        HEAD + "Build failed & stopped\n*Branch*\nmain\nby @Bob Byte\nface\nA graph\np95 over time\nnew kind\na | b"
    ]


def test_text_and_blocks_that_say_different_things_are_both_there() -> None:
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": "Disk 91% on db-2"}}]
    assert shown([said("1.1", "New alert", blocks=blocks)]) == [HEAD + "New alert\nDisk 91% on db-2"]
    assert shown([said("1.1", "yesterday", blocks=[{"type": "section", "text": "yes"}])]) == [HEAD + "yesterday\nyes"]


def test_attachments() -> None:
    attachment = {
        "fallback": "never shown",
        "pretext": "New issue by <@U2>",
        "title": "API &lt;slow&gt;",
        "title_link": "https://issues.example/7",
        "text": "p95 is 2 s",
        "fields": [{"title": "Priority", "value": "High"}, {"value": "alone"}, None],
    }
    assert shown([said("1.1", "", attachments=[attachment, {"fallback": "only this"}, None])]) == [
        HEAD
        + "New issue by @Bob Byte\nAPI <slow> (https://issues.example/7)\np95 is 2 s\nPriority: High\nalone\nonly this"
    ]


def test_a_link_that_the_message_has_is_not_repeated_in_its_preview() -> None:
    attachment = {"title": "The paper", "title_link": "https://a.example/p", "text": "About caches."}
    assert shown([said("1.1", "read <https://a.example/p>", attachments=[attachment])]) == [
        HEAD + "read https://a.example/p\nThe paper\nAbout caches."
    ]


def test_files() -> None:
    files = [
        {"name": "q3.pdf", "title": "Report Q3"},
        {"name": "run.py", "title": "run.py", "preview": "print(1 &lt; 2)"},
        {"name": "gone.txt", "mode": "tombstone"},
        {"title": "Mail", "plain_text": "See you on Monday"},
    ]
    assert shown([said("1.1", "", files=files)]) == [
        HEAD + "[file: Report Q3 (q3.pdf)]\n[file: run.py]\nprint(1 < 2)\n[file: Mail]\nSee you on Monday"
    ]
