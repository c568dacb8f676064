"""Where a Markdown book is cut. The expected headings follow from CommonMark 0.31."""

import sys
from types import FrameType

import pytest

from connectors.markdown import find_markdown_headings


def found(text: str) -> list[tuple[str, str]]:
    return [(heading.kind, heading.title) for heading in find_markdown_headings(text)[1]]


def test_chapters_under_the_title_of_the_book() -> None:
    text = "# The Book\n\nBy Ada.\n\n## One\n\nText.\n\n### A detail\n\nMore.\n\n## Two\n\nText.\n"
    title, headings = find_markdown_headings(text)
    assert title == "The Book"
    assert [(h.kind, h.title) for h in headings] == [("chapter", "One"), ("chapter", "Two")]
    assert [text[h.char_start :].split("\n")[0] for h in headings] == ["## One", "## Two"]


def test_top_level_headings_are_chapters_where_they_have_text() -> None:
    assert found("# One\n\nText.\n\n# Two\n\nText.\n") == [("chapter", "One"), ("chapter", "Two")]


def test_headings_that_only_hold_others_are_parts() -> None:
    text = "# Part One\n\n## A\n\nText.\n\n## B\n\nText.\n\n# Part Two\n\n## C\n\nText.\n"
    assert found(text) == [
        ("part", "Part One"),
        ("chapter", "A"),
        ("chapter", "B"),
        ("part", "Part Two"),
        ("chapter", "C"),
    ]


def test_underlined_headings() -> None:
    text = "The Book\n========\n\nOne\n---\n\nText.\n\nTwo words\non two lines\n---\n\nText.\n"
    assert found(text) == [("chapter", "One"), ("chapter", "Two words on two lines")]
    _, headings = find_markdown_headings(text)
    assert text[headings[1].char_start :].startswith("Two words\n")


@pytest.mark.parametrize(
    "text",
    [
        "```\n# not a heading\n```\n",
        "~~~~ python\n# not\n~~~\n# still not\n~~~~\n",
        "```\n# never closed\n",
        "    # indented code\n",
        "#hashtag\n",
        "####### seven\n",
        "\\# escaped\n",
        "- a list\n---\n",
        "> a quote\n---\n",
        "> a quote\nthat goes on\n---\n",
        "\n---\n",
        "---\ntitle: metadata\n---\n\nText.\n",
        "text without any\n",
        "one\ntwo\nthree\nfour\n---\n",
        "a" * 201 + "\n===\n",
        "# " + "a" * 201 + "\n",
    ],
)
def test_what_only_looks_like_a_heading_is_none(text: str) -> None:
    assert find_markdown_headings(text) == (None, [])


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("# One", "One"),
        ("   # One", "One"),
        ("# One ##", "One"),
        ("#\tOne", "One"),
        ("# C#", "C#"),
        ("# One \\##", "One \\##"),
        ("# One#\t# ", "One#"),
        ("## ", ""),
        ("#", ""),
        ("one\ntwo\nthree\n---", "one two three"),
        ("a" * 200 + "\n===", "a" * 200),
        ("## ##", ""),
        ("# One\r", "One"),
    ],
)
def test_forms_of_a_heading(line: str, title: str) -> None:
    assert found(f"{line}\n\nText.\n") == [("chapter", title)]


def test_a_fence_inside_text_hides_only_itself() -> None:
    text = "# One\n\n```sh\n# comment\n```\n\n# Two\n\nText.\n"
    assert found(text) == [("chapter", "One"), ("chapter", "Two")]


def test_a_rule_under_pages_of_prose_makes_no_title_of_them() -> None:
    prose = "A sentence of the book.\n" * 5000
    assert found(f"# One\n\n{prose}---\n\n# Two\n\nText.\n") == [("chapter", "One"), ("chapter", "Two")]
    assert find_markdown_headings(f"{prose}---\n") == (None, [])


def test_work_grows_with_the_text_and_not_with_its_square() -> None:
    # Lines executed, not seconds: each heading may cost a fixed number of them.
    assert _lines_executed(400) < 2.2 * _lines_executed(200)


def _lines_executed(num_headings: int) -> int:
    text = "".join(f"# {number}\n\nText.\n" for number in range(num_headings))
    num_lines = 0

    def count(frame: FrameType, event: str, _: object) -> object:
        nonlocal num_lines
        num_lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        assert len(find_markdown_headings(text)[1]) == num_headings
    finally:
        sys.settrace(before)
    return num_lines


def test_a_long_line_of_white_space_behind_a_mark_is_read_once() -> None:
    # A pattern that tries each space as the start of the end would not come back.
    assert found("# One" + " " * 300_000 + "x\n") == []
