"""Text books as documents: every byte in one segment, chapters in order, and what is refused."""

import codecs
import hashlib
import pickle
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from connectors.books import BookRef, list_book, read_book
from longdoc.encodings import encode_text
from longdoc.errors import DocumentError
from longdoc.records import Document, Unreadable

GUTENBERG = (
    "The Project Gutenberg EBook of Sea, by A. Sailor\n\nTitle: Sea,\n       or the Shore\n\nAuthor: A. Sailor\n\n"
    "Language: French\n\n*** START OF THIS PROJECT GUTENBERG EBOOK SEA ***\n\nProduced by hand.\n\n"
    "CHAPTER I\n\nWaves.\n\nCHAPTER II\n\nMore waves.\n\n\nEnd of Project Gutenberg's Sea, by A. Sailor\n\n"
    "*** END OF THIS PROJECT GUTENBERG EBOOK SEA ***\n\nThe licence.\n"
)


def read(path: Path) -> Document:
    ref = list_book(path)
    assert isinstance(ref, BookRef)
    return ref.read()


def read_text(text: str, name: str = "book.txt") -> Document:
    return read_book(text.encode(), path=Path(name))


def shape(document: Document) -> list[tuple[str, str | None, str]]:
    return [(s.kind, s.title, document.segment_text(s).decode()) for s in document.segments]


def file_of(document: Document) -> bytes:
    """The file's bytes from nothing but the document."""
    first = document.segments[0]
    assert first.encoding is not None
    assert first.encoding_source is not None
    return encode_text(document.text.decode(), first.encoding, first.encoding_source)


LINES = st.sampled_from(
    ["CHAPTER I", "CHAPTER II. Übung", "BOOK ONE: 1805", "I", "II", "Epilogue", "# One", "## Two", "```", "---", "",
     "Words were spoken.", "日本語の文", "naïve café", "*** START OF THIS PROJECT GUTENBERG EBOOK X ***",
     "*** END OF THIS PROJECT GUTENBERG EBOOK X ***", "a\fb", "tab\tand\0nul", "\ufeff", "\u2028"]
)  # fmt: skip
MARKS = [codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE]
ENCODINGS = [
    "utf-8",
    "utf-8-sig",
    "utf-16",
    "utf-32",
    "utf-16-be",
    "cp1252",
    "shift_jis",
    "iso2022_jp",
    "gb18030",
    "koi8-r",
]


@settings(deadline=None, max_examples=100)
@given(
    lines=st.lists(LINES, min_size=1, max_size=14),
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
    encoding=st.sampled_from(ENCODINGS),
    name=st.sampled_from(["b.txt", "b.md"]),
)
def test_segments_tile_the_text_and_the_file(lines: list[str], newline: str, encoding: str, name: str) -> None:
    raw = newline.join(lines).encode(encoding, errors="ignore")
    assume(raw not in (b"", *MARKS))
    document = read_book(raw, path=Path(name))
    document.check()
    assert file_of(document) == raw
    start = 0
    for unit, segment in enumerate(document.segments):
        piece = raw[start : start + segment.num_bytes_source]
        assert segment.source_sha256 == hashlib.sha256(piece).hexdigest()
        assert (segment.unit, segment.is_content, segment.reason) == (unit, True, None)
        text = document.segment_text(segment).decode()
        assert segment.char_stop - segment.char_start == len(text) > 0
        assert segment.num_lines == len(text.removesuffix("\n").split("\n"))
        start += segment.num_bytes_source
    assert start == len(raw) == document.num_bytes_source


def test_boilerplate_is_labelled_front_matter_and_chapters_follow() -> None:
    document = read_text(GUTENBERG)
    kinds = [(kind, title) for kind, title, _ in shape(document)]
    assert kinds == [
        ("boilerplate", None),
        ("front_matter", None),
        ("chapter", "CHAPTER I"),
        ("chapter", "CHAPTER II"),
        ("boilerplate", None),
    ]
    texts = [text for _, _, text in shape(document)]
    assert texts[0].endswith("EBOOK SEA ***\n")
    assert texts[3] == "CHAPTER II\n\nMore waves.\n\n\n"
    assert texts[4].startswith("End of Project Gutenberg's Sea")
    assert document.text.decode() == GUTENBERG
    assert (document.title, document.authors, document.language) == ("Sea, or the Shore", ("A. Sailor",), "fr")


def test_fields_outside_a_gutenberg_header_are_prose() -> None:
    document = read_text("Title: A lie\n\nAuthor: Nobody\n\nCHAPTER I\n\nText.\n", "sea.txt")
    assert (document.title, document.authors, document.language) == ("sea", (), None)


def test_a_book_without_headings_is_one_segment() -> None:
    assert shape(read_text("Only words.\n")) == [("text", None, "Only words.\n")]


def test_blank_lines_before_the_first_heading_belong_to_it() -> None:
    assert shape(read_text("\n\nCHAPTER I\n\nText.\n")) == [("chapter", "CHAPTER I", "\n\nCHAPTER I\n\nText.\n")]


def test_a_markdown_book_is_called_what_its_first_heading_says() -> None:
    document = read_text("# The Sea\n\nBy me.\n\n## One\n\nText.\n\n## Two\n\nText.\n", "b.MD")
    assert document.title == "The Sea"
    assert [(kind, title) for kind, title, _ in shape(document)] == [
        ("front_matter", None),
        ("chapter", "One"),
        ("chapter", "Two"),
    ]


def test_the_byte_order_mark_is_counted_in_the_first_segment_and_is_not_text() -> None:
    document = read_book(codecs.BOM_UTF8 + b"CHAPTER I\n\nA.\n\nCHAPTER II\n\nB.\n", path=Path("b.txt"))
    assert [s.num_bytes_source for s in document.segments] == [3 + 15, 15]
    assert document.text.startswith(b"CHAPTER I\n")


@pytest.mark.parametrize("raw", [b"", *MARKS])
def test_an_empty_file_is_at_fault(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "empty.txt"
    path.write_bytes(raw)
    with pytest.raises(DocumentError) as caught:
        read(path)
    assert (caught.value.stage, caught.value.reason) == ("read", "empty")
    assert str(caught.value) == f"{path} is empty: it holds no character of text. Leave it out, or fill it."


def test_a_file_that_changed_since_it_was_listed_is_at_fault(tmp_path: Path) -> None:
    path = tmp_path / "b.txt"
    path.write_text("before")
    ref = list_book(path)
    path.write_text("after!")
    assert isinstance(ref, BookRef)
    with pytest.raises(DocumentError, match="changed between listing and reading") as caught:
        ref.read()
    assert caught.value.reason == "changed"


def test_a_file_that_is_gone_is_at_fault_and_cannot_be_listed_again(tmp_path: Path) -> None:
    path = tmp_path / "b.txt"
    path.write_text("here")
    ref = list_book(path)
    path.unlink()
    assert isinstance(ref, BookRef)
    with pytest.raises(DocumentError, match="cannot be read: No such file"):
        ref.read()
    again = list_book(path)
    assert isinstance(again, Unreadable)
    assert (again.doc_id, again.reason) == (ref.doc_id, "unreadable")


def test_a_file_without_read_access_is_listed_as_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not by chmod: a superuser reads everything.
    def refuse(path: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("connectors.books.sha256_file", refuse)
    (tmp_path / "b.txt").write_text("secret")
    listed = list_book(tmp_path / "b.txt")
    assert isinstance(listed, Unreadable)
    assert listed.error == (
        f"{tmp_path / 'b.txt'} cannot be read: Permission denied. Give read access to it, or leave it out."
    )


def test_identity_is_the_address_and_the_digest(tmp_path: Path) -> None:
    path = tmp_path / "a b é.txt"
    path.write_bytes(b"text")
    ref = list_book(tmp_path / "." / "a b é.txt")
    assert isinstance(ref, BookRef)
    assert ref.doc_id == ref.source_uri == path.as_uri()
    assert ref.doc_id.endswith("/a%20b%20%C3%A9.txt")
    assert ref.version == hashlib.sha256(b"text").hexdigest()
    assert pickle.loads(pickle.dumps(ref)).read() == ref.read()


@pytest.mark.books
def test_alice_has_twelve_chapters(books: Path) -> None:
    document = read(books / "alice.txt")
    assert file_of(document) == (books / "alice.txt").read_bytes()
    assert [(kind, title) for kind, title, _ in shape(document)] == [
        ("boilerplate", None),
        ("front_matter", None),
        ("chapter", "CHAPTER I. Down the Rabbit-Hole"),
        ("chapter", "CHAPTER II. The Pool of Tears"),
        ("chapter", "CHAPTER III. A Caucus-Race and a Long Tale"),
        ("chapter", "CHAPTER IV. The Rabbit Sends in a Little Bill"),
        ("chapter", "CHAPTER V. Advice from a Caterpillar"),
        ("chapter", "CHAPTER VI. Pig and Pepper"),
        ("chapter", "CHAPTER VII. A Mad Tea-Party"),
        ("chapter", "CHAPTER VIII. The Queen’s Croquet-Ground"),
        ("chapter", "CHAPTER IX. The Mock Turtle’s Story"),
        ("chapter", "CHAPTER X. The Lobster Quadrille"),
        ("chapter", "CHAPTER XI. Who Stole the Tarts?"),
        ("chapter", "CHAPTER XII. Alice’s Evidence"),
        ("boilerplate", None),
    ]
    assert document.title == "Alice’s Adventures in Wonderland"
    assert (document.authors, document.language) == (("Lewis Carroll",), "en")


@pytest.mark.books
def test_moby_dick_has_its_chapters_and_what_stands_around_them(books: Path) -> None:
    document = read(books / "moby-dick.txt")
    assert file_of(document) == (books / "moby-dick.txt").read_bytes()
    kinds = [(kind, title) for kind, title, _ in shape(document)]
    assert [title for kind, title in kinds if kind == "section"] == [
        "ETYMOLOGY.",
        "EXTRACTS. (Supplied by a Sub-Sub-Librarian).",
        "EXTRACTS.",
        "Epilogue",
    ]
    chapters = [title for kind, title in kinds if kind == "chapter"]
    assert [str(title).split(".")[0] for title in chapters] == [f"CHAPTER {n}" for n in range(1, 136)]
    assert kinds[-2:] == [("section", "Epilogue"), ("boilerplate", None)]


@pytest.mark.books
def test_metamorphosis_has_three_chapters(books: Path) -> None:
    document = read(books / "metamorphosis.txt")
    assert [title for kind, title, _ in shape(document) if kind == "chapter"] == ["I", "II", "III"]


@pytest.mark.books
def test_war_and_peace_has_its_books_and_epilogues_and_their_chapters(books: Path) -> None:
    document = read(books / "war-and-peace.txt")
    assert file_of(document) == (books / "war-and-peace.txt").read_bytes()
    per_part: dict[str, int] = {}
    for kind, title, _ in shape(document):
        if kind == "part":
            per_part[str(title)] = 0
        elif kind == "chapter":
            per_part[list(per_part)[-1]] += 1
    # As the book's own table of contents has them.
    assert list(per_part.values()) == [28, 21, 19, 16, 22, 26, 13, 22, 23, 39, 34, 16, 19, 19, 20, 16, 12]
    assert next(iter(per_part)) == "BOOK ONE: 1805"
    assert list(per_part)[-2:] == ["FIRST EPILOGUE: 1813 - 20", "SECOND EPILOGUE"]
