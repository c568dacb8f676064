"""PDFs of known make, and damaged ones: the text is what was put in, or the fault has a reason."""

from collections import Counter
from pathlib import Path

import pytest
from book_checks import mutations, read_or_refuse, texts
from hypothesis import given, settings
from hypothesis import strategies as st
from pdf_reading import assemble_or_refuse, book, records_of_many
from small_pdf import SmallPdf, lines, text_string

from connectors.pdf_records import Fault
from longdoc.errors import DocumentError


def rich() -> bytes:
    """One of everything that is read."""
    pdf = SmallPdf()
    pdf.info(Title="Title", Author="Author")
    note = pdf.add(b"<< /Type /Annot /Subtype /Text /Contents %s /Rect [0 0 9 9] >>" % text_string("note"))
    pdf.page(lines("CHAPTER I. One", "some words and a line-", "end"), extra=b"/Annots [%d 0 R]" % note)
    pdf.page(lines("CHAPTER II. Two", "more words"), font=pdf.font(bold=True))
    pdf.page(b"q 10 0 0 10 0 0 cm BI /W 1 /H 1 /BPC 8 /CS /G ID x EI Q")
    pdf.outline([(0, "One", 0, 700), (1, "Two", 1, None)])
    pdf.catalog += b"/PageLabels << /Nums [0 << /S /r >>] >> /Lang (en)"
    return pdf.write()


RICH = rich()
EDGES = tuple(at for word in (b"obj", b"stream", b"<<", b">>", b"xref", b"[", b"/", b"(", b"%%EOF") for at in
              range(len(RICH)) if RICH.startswith(word, at))  # fmt: skip


@settings(max_examples=6)
@given(files=st.lists(mutations(RICH, EDGES), min_size=40, max_size=40))
def test_damaged_files_balance_or_have_a_reason(files: list[bytes]) -> None:
    answers = records_of_many(files)
    assert len(answers) == len(files)
    for raw, found in zip(files, answers, strict=True):
        if found is not None:
            assemble_or_refuse(raw, found)


@settings(max_examples=3)
@given(files=st.lists(st.binary(max_size=300).map(b"%PDF-1.7\n".__add__), min_size=40, max_size=40))
def test_random_bytes_have_a_reason(files: list[bytes]) -> None:
    for found in records_of_many(files):
        assert found is None or isinstance(found[0], Fault)


def test_most_cut_files_are_still_read_as_far_as_they_go() -> None:
    cuts = [RICH[:at] for at in range(40, len(RICH), len(RICH) // 60)]
    outcomes = [
        assemble_or_refuse(raw, found)
        for raw, found in zip(cuts, records_of_many(cuts), strict=True)
        if found is not None
    ]
    seen = Counter("refused" if isinstance(each, DocumentError | None) else "read" for each in outcomes)
    assert set(seen) == {"refused", "read"}


@settings(max_examples=5)
@given(raw=mutations(RICH, EDGES), name=st.sampled_from(["a.pdf", "a.txt", "a.epub", "a.docx"]))
def test_a_damaged_file_is_read_or_refused_through_the_process_too(raw: bytes, name: str) -> None:
    read_or_refuse(raw, name)


@pytest.mark.books
@settings(max_examples=2)
@given(data=st.data())
def test_a_damaged_alice_balances(books: Path, data: st.DataObject) -> None:
    raw = (books / "alice.pdf").read_bytes()
    read_or_refuse(data.draw(mutations(raw)), "alice.pdf")


WORDS = st.text(st.characters(codec="cp1252", categories=("L", "N", "P")), min_size=1, max_size=8)
LINES = st.lists(st.lists(WORDS, min_size=1, max_size=5).map(" ".join), min_size=1, max_size=5)


@settings(max_examples=40)
@given(pages=st.lists(LINES, min_size=1, max_size=4), titles=st.lists(st.integers(0, 3), max_size=4))
def test_generated_books_hold_what_was_put_in(pages: list[list[str]], titles: list[int]) -> None:
    pdf = SmallPdf()
    for page in pages:
        pdf.page(lines(*page, leading=20))
    wanted = sorted({page for page in titles if page < len(pages)})
    pdf.outline([(0, f"Chapter {page}", page, None) for page in wanted])
    document = book(pdf.write())

    # pdfium makes one character of two in some scripts and joins lines at hyphens; letters of ASCII stay as they are.
    def letters(text: str) -> str:
        return "".join(char for char in text if char.isascii() and char.isalnum())

    found = texts(document)
    assert [letters(text) for _, text in found] == [letters("".join(page)) for page in pages if "".join(page).strip()]
    assert [s.title for s in document.segments if s.title] == [f"Chapter {page}" for page in wanted]
