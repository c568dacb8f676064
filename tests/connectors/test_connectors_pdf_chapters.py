"""Where the chapters of a PDF begin: its outline, its tags, the way its lines are set."""

import pytest
from book_checks import texts
from pdf_reading import book, titles
from small_pdf import SmallPdf, lines

from connectors.pdf_columns import Box, is_interleaved


def chapters(*, outline: list[tuple[int, str, int, float | None]]) -> list[tuple[str | None, str]]:
    """Three pages: a chapter at the top, one in the middle, one without a line of its own."""
    pdf = SmallPdf()
    pdf.page(lines("1. Loomings", "Call me Ishmael."))
    pdf.page(
        lines("Some years ago.") + lines("The Carpet-", "Bag", "I stuffed a shirt.", top=500) + lines("end", top=300)
    )
    pdf.page(lines("The Spouter-Inn is named nowhere."))
    pdf.outline(outline)
    document = book(pdf.write())
    return [(segment.title, document.segment_text(segment).decode()) for segment in document.segments]


def test_an_outline_names_chapters_where_their_titles_stand() -> None:
    found = chapters(outline=[(0, "Loomings", 0, None), (0, "The Carpet-Bag", 1, None), (0, "Inn", 2, None)])
    assert found == [
        ("Loomings", "1. Loomings\nCall me Ishmael.\n\n"),
        (None, "Some years ago.\n"),
        ("The Carpet-Bag", "The Carpet-Bag\nI stuffed a shirt.\nend\n\n"),
        ("Inn", "The Spouter-Inn is named nowhere."),
    ]


def test_an_outline_names_chapters_where_its_height_leads() -> None:
    found = chapters(outline=[(0, "First", 0, 792), (0, "Second", 1, 512)])
    assert [title for title, _ in found] == ["First", None, "Second", None]
    assert found[2][1].startswith("The Carpet-Bag\n")


def test_of_several_lines_that_say_the_title_the_nearest_is_the_heading() -> None:
    pdf = SmallPdf()
    pdf.page(lines("Loomings", "7", "Loomings", "Call me Ishmael.", leading=40))
    pdf.outline([(0, "Loomings", 0, 645)])
    assert [text for _, text in texts(book(pdf.write()))] == ["Loomings\n7\n", "Loomings\nCall me Ishmael."]


def test_entries_of_an_outline_nest_and_those_of_one_place_are_joined() -> None:
    found = chapters(
        outline=[(0, "Part One", 0, None), (1, "Loomings", 0, None), (1, "Years", 1, 740), (2, "Bag", 1, 490)]
    )
    assert [title for title, _ in found] == ["Part One: Loomings", "Years", "Bag", None]


def test_an_outline_that_leads_nowhere_or_in_circles_names_what_it_can() -> None:
    pdf = SmallPdf()
    pdf.page(lines("text"))
    pdf.outline([(0, "One", 0, None), (0, "Two", 0, None)])
    first = next(number for number, body in pdf.objects.items() if b"/Next" in body)
    second = next(number for number, body in pdf.objects.items() if b"/Prev" in body)
    pdf.objects[second] = pdf.objects[second].replace(b"/Dest", b"/Next %d 0 R /First %d 0 R /Dest" % (first, second))
    assert titles(book(pdf.write())) == ["One: Two"]
    pdf.objects[second] = pdf.objects[second].replace(b"[", b"[99")
    assert titles(book(pdf.write())) == ["One"]


def test_an_action_leads_to_a_chapter_too() -> None:
    pdf = SmallPdf()
    pdf.page(lines("one"))
    page = pdf.page(lines("two"))
    pdf.outline([(0, "Two", 0, None)])
    number = next(number for number, body in pdf.objects.items() if b"/Dest" in body)
    body = pdf.objects[number]
    pdf.objects[number] = body[: body.index(b"/Dest")] + b"/A << /S /GoTo /D [%d 0 R /Fit] >> >>" % page
    assert [(s.place, s.title) for s in book(pdf.write()).segments] == [("page 1", None), ("page 2", "Two")]


def test_lines_in_larger_type_are_headings_though_nothing_sets_them_apart() -> None:
    pdf = SmallPdf()
    contents = lines("Contents", "CHAPTER I. Down", "CHAPTER II. The Pool of Tears", top=740)
    first = lines("CHAPTER I. Down", size=18, top=640, leading=20) + lines("She fell.", "And fell.", top=624)
    second = lines("CHAPTER II. The Pool", "of Tears", size=18, top=596, leading=20) + lines(
        "She swam.", "Far.", top=562
    )
    pdf.page(contents + first + second)
    document = book(pdf.write())
    assert titles(document) == ["CHAPTER I. Down", "CHAPTER II. The Pool of Tears"]
    assert [text for _, text in texts(document)][1:] == [
        "CHAPTER I. Down\nShe fell.\nAnd fell.\n",
        "CHAPTER II. The Pool\nof Tears\nShe swam.\nFar.",
    ]


def test_a_book_without_headings_is_its_pages() -> None:
    pdf = SmallPdf()
    pdf.page(lines("one", "two"))
    pdf.page(lines("three"))
    assert [(s.kind, s.title) for s in book(pdf.write()).segments] == [("page", None), ("page", None)]


def row(y: float, *stretches: tuple[float, float]) -> list[Box]:
    return [Box(left, y, right, y + 10) for left, right in stretches]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # Across a gutter, row by row; four rows are a caption beside a picture.
        ([row(700 - 12 * n, (72, 280), (320, 540)) for n in range(5)], True),
        ([row(700 - 12 * n, (72, 280), (320, 540)) for n in range(4)], False),
        # Words with spaces between them.
        ([row(700 - 12 * n, (72, 200), (204, 350), (354, 540)) for n in range(30)], False),
        # A page number behind each entry of the contents is no column.
        ([row(700 - 12 * n, (72, 280), (530, 540)) for n in range(30)], False),
        # Gaps that wander are no gutter.
        ([row(700 - 12 * n, (72, 180 + 30 * n), (220 + 30 * n, 540)) for n in range(6)], False),
        # From side to side down the page, on lines of their own.
        ([row(700 - 7 * n, (72, 280) if n % 2 else (320, 540)) for n in range(0, 40, 2)], False),
        ([row(700 - 11 * n, (72, 280) if n % 2 else (320, 540)) for n in range(9)], True),
        # Down one column, then down the other.
        ([row(700 - 12 * n, (72, 280)) for n in range(9)] + [row(700 - 12 * n, (320, 540)) for n in range(9)], False),
    ],
)  # fmt: skip
def test_columns_read_across_are_told_from_what_looks_like_them(rows: list[list[Box]], expected: bool) -> None:
    assert is_interleaved([box for each in rows for box in each], 612) is expected
