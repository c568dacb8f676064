"""Where a plain-text book is cut: heading lines, tables of contents, numerals."""

import pytest

from connectors.chapters import find_headings

PROSE = "It was a long story, and nobody was in a hurry.\nThe rain went on.\n\nThen it stopped.\n"


def book(*headings: str) -> str:
    return "".join(f"{heading}\n\n{PROSE}\n\n" for heading in headings)


def found(text: str) -> list[tuple[str, str]]:
    return [(heading.kind, heading.title) for heading in find_headings(text)]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("CHAPTER I", "chapter"),
        ("CHAPTER I.", "chapter"),
        ("CHAPTER I. Down the Rabbit-Hole", "chapter"),
        ("Chapter 12: The Return", "chapter"),
        ("Chapter Twenty-One", "chapter"),
        ("CHAPTER THE FIRST", "chapter"),
        ("CHAPTER 133. The Chase—First Day.", "chapter"),
        ("    CHAPTER IV", "chapter"),
        ("_CHAPTER IV_", "chapter"),
        ("Chapter III “Yes!”", "chapter"),
        ("STAVE ONE", "chapter"),
        ("Kapitel 3", "chapter"),
        ("BOOK ONE: 1805", "part"),
        ("BOOK FIVE: 1806 - 07", "part"),
        ("PART 2", "part"),
        ("VOLUME II.", "part"),
        ("THE FIRST PART", "part"),
        ("Prologue", "section"),
        ("EPILOGUE.", "section"),
        ("EXTRACTS. (Supplied by a Sub-Sub-Librarian).", "section"),
        ("SECOND EPILOGUE", "section"),
        ("Appendix B", "section"),
    ],
)
def test_heading_lines_are_found(line: str, kind: str) -> None:
    assert found(f"Some words before.\n\n{line}\n\n{PROSE}") == [(kind, line.strip())]


@pytest.mark.parametrize(
    "line",
    [
        "Chapter and verse were quoted.",
        "Part I was better than the rest.",
        "Chapter 3 of the book was torn out.",
        "BOOKS (subdivisible into CHAPTERS), and these shall comprehend them",
        "BOOK I. (_Folio_), CHAPTER I. (_Sperm Whale_).—This whale,\namong the\nEnglish of old,\nis the same",
        "CHAPTER IDEAS",
        "Part I's end",
        "Act one's age, she said.",
        "Prologues are dull.",
        "NAPOLEON",
        "12",
        "I",
        "chapter 3",
        "CHAPTER IVX" + "!" * 120,
    ],
)
def test_prose_is_not_a_heading(line: str) -> None:
    assert found(f"Some words before.\n\n{line}\n\n{PROSE}") == []


def test_a_heading_in_the_middle_of_a_paragraph_is_prose() -> None:
    assert found("He opened the book at\nCHAPTER IV\nand read on.\n\n" + PROSE) == []


def test_offsets_are_where_the_heading_lines_start() -> None:
    text = book("CHAPTER I", "  CHAPTER II")
    headings = find_headings(text)
    assert [text[h.char_start :].split("\n")[0] for h in headings] == ["CHAPTER I", "  CHAPTER II"]


def test_crlf_makes_no_difference() -> None:
    text = book("CHAPTER I. One", "CHAPTER II. Two")
    crlf = text.replace("\n", "\r\n")
    assert found(crlf) == found(text)
    assert [crlf[h.char_start :].split("\r\n")[0] for h in find_headings(crlf)] == ["CHAPTER I. One", "CHAPTER II. Two"]


def test_a_heading_right_above_its_text_is_one() -> None:
    text = f"CHAPTER I. One\n{PROSE}\nCHAPTER II\n{PROSE}"
    assert found(text) == [("chapter", "CHAPTER I. One"), ("chapter", "CHAPTER II")]


def test_a_title_in_capitals_under_a_bare_heading_is_part_of_it() -> None:
    assert found(f"CHAPTER I.\nTHE PERIOD\n\n{PROSE}") == [("chapter", "CHAPTER I. THE PERIOD")]


def test_a_wrapped_title_is_one_title() -> None:
    text = f"CHAPTER 56. Of the Less Erroneous Pictures of Whales, and the True\nPictures of Whaling Scenes.\n\n{PROSE}"
    assert found(text) == [
        ("chapter", "CHAPTER 56. Of the Less Erroneous Pictures of Whales, and the True Pictures of Whaling Scenes.")
    ]


@pytest.mark.parametrize("between", ["\n", "\n\n", "\n\n\n"])
def test_a_table_of_contents_names_chapters_and_is_none(between: str) -> None:
    chapters = ["CHAPTER I. One", "CHAPTER II. Two", "CHAPTER III. Three"]
    contents = between.join(chapters)
    assert found(f"CONTENTS\n\n{contents}\n\n\n{book(*chapters)}") == [("chapter", title) for title in chapters]


def test_parts_directly_above_their_first_chapter_are_parts() -> None:
    contents = "BOOK ONE: 1805\n\nCHAPTER I\n\nCHAPTER II\n\nBOOK TWO: 1806\n\nCHAPTER I\n\nCHAPTER II\n\n"
    body = (
        "BOOK ONE: 1805\n\n" + book("CHAPTER I", "CHAPTER II") + "BOOK TWO: 1806\n\n" + book("CHAPTER I", "CHAPTER II")
    )
    one = [("part", "BOOK ONE: 1805"), ("chapter", "CHAPTER I"), ("chapter", "CHAPTER II")]
    two = [("part", "BOOK TWO: 1806"), ("chapter", "CHAPTER I"), ("chapter", "CHAPTER II")]
    assert found(contents + body) == one + two


def test_the_last_entry_of_a_table_is_none_when_something_else_follows_the_table() -> None:
    contents = "CHAPTER 1. A\n\nCHAPTER 2. B\n\nEpilogue\n\n\nTranscriber’s note: all typing errors are gone.\n\n"
    assert [title for _, title in found(contents + book("CHAPTER 1. A", "CHAPTER 2. B", "Epilogue"))] == [
        "CHAPTER 1. A",
        "CHAPTER 2. B",
        "Epilogue",
    ]


def test_a_table_at_the_end_is_none_either() -> None:
    chapters = ["CHAPTER I. One", "CHAPTER II. Two", "CHAPTER III. Three"]
    assert found(book(*chapters) + "CONTENTS\n\n" + "\n\n".join(chapters)) == [("chapter", c) for c in chapters]


def test_a_chapter_without_text_is_still_a_chapter() -> None:
    text = book("CHAPTER I") + "CHAPTER II\n\n" + book("CHAPTER III")
    assert found(text) == [("chapter", "CHAPTER I"), ("chapter", "CHAPTER II"), ("chapter", "CHAPTER III")]


def test_an_epilogue_above_its_own_chapters_is_a_part() -> None:
    text = book("CHAPTER I") + "FIRST EPILOGUE: 1813\n\n" + book("CHAPTER I", "CHAPTER II")
    assert found(text)[1] == ("part", "FIRST EPILOGUE: 1813")


def test_bare_numerals_in_order_are_chapters_from_one_again_in_each_part() -> None:
    text = "PART ONE\n\n" + book("I", "II") + "PART TWO\n\n" + book("I", "II", "III")
    assert [title for _, title in found(text)] == ["PART ONE", "I", "II", "PART TWO", "I", "II", "III"]


def test_numerals_that_do_not_count_are_not_chapters() -> None:
    assert found(book("I", "V", "C")) == []
    assert found(book("IIII", "IIX")) == []


def test_numerals_inside_named_chapters_stay_inside() -> None:
    text = "CHAPTER I\n\n" + book("I", "II") + "CHAPTER II\n\n" + book("I", "II")
    assert [title for _, title in found(text)] == ["CHAPTER I", "CHAPTER II"]


def test_numerals_with_titles_are_chapters() -> None:
    assert [title for _, title in found(book("I. The Period", "II. The Mail"))] == ["I. The Period", "II. The Mail"]


def test_a_text_without_headings_has_none() -> None:
    assert found(PROSE * 3) == []
    assert found("") == []
