"""What a manual's pages give to train with."""

from training.sections import sections_of

LONG = "A ruleset is a list of rules, each with a name, which the server reads from top to bottom. " * 3


def page(body: str) -> bytes:
    return f"<html><head><title>x</title></head><body>{body}</body></html>".encode()


def test_a_section_ends_where_the_next_heading_begins() -> None:
    first, second = sections_of(
        page(f"<h1>1. Rulesets</h1><p>{LONG}</p><h2>1.2. Order<a>¶</a></h2><p>{LONG}</p><ul><li>{LONG}</li></ul>")
    )

    assert first.headings == ("Rulesets",)
    assert second.headings == ("Rulesets", "Order")
    assert second.text.count("\n") == 1


def test_a_short_heading_is_asked_for_with_the_one_above() -> None:
    sections = sections_of(
        page(f"<h1>Rulesets</h1><h2>Order</h2><p>{LONG}</p><h2>How rules are read</h2><p>{LONG}</p>")
    )

    assert [section.asked for section in sections] == ["Rulesets Order", "How rules are read"]


def test_a_sibling_heading_is_not_above() -> None:
    sections = sections_of(page(f"<h1>A</h1><h2>B</h2><h3>C</h3><p>{LONG}</p><h2>D</h2><p>{LONG}</p>"))

    assert [section.headings for section in sections] == [("A", "B", "C"), ("A", "D")]


def test_menus_and_what_answers_nothing_are_left_out() -> None:
    sections = sections_of(page(f"<h1>A</h1><nav><p>{LONG}</p></nav><div class='toc'><p>{LONG}</p></div><p>Short.</p>"))

    assert sections == []


def test_what_is_no_page_has_no_sections() -> None:
    assert sections_of(b"") == []
    assert sections_of(b"\x00\xff") == []
