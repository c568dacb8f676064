"""DOCX books of known make, and damaged ones: the text is what was put in, or the fault has a reason."""

import re
from collections import Counter
from pathlib import Path

from book_checks import check_document, mutations, read_or_refuse, texts
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from small_docx import members, p, r, table, write

from connectors.books import read_book
from connectors.docx_names import text_of
from connectors.docx_styles import Styles
from connectors.docx_walk import read_part
from longdoc.records import Document

NOTE = '<w:r><w:footnoteReference w:id="{}"/></w:r>'
FILES = members(
    p("One", style="Heading1"),
    p("a", NOTE.format(2), "<w:del><w:r><w:delText>x</w:delText></w:r></w:del>", r("h", "<w:vanish/>"), "é 日"),
    table(("a", "b"), ("c", p("d", NOTE.format(3)))),
    p("<w:r><w:pict><w:txbxContent>" + p("box") + "</w:txbxContent></w:pict></w:r>"),
    p("Two", style="Heading1"),
    p("<w:ruby><w:rt>" + r("r") + "</w:rt><w:rubyBase>" + r("b") + "</w:rubyBase></w:ruby>"),
    '<w:sectPr><w:headerReference r:id="h1"/></w:sectPr>',
    footnotes={"2": p("n2"), "3": p("n3")},
    headers={"h1": p("head")},
    core="<dc:title>T</dc:title>",
)
RAW = write(FILES)
MARKS = (b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06")
STARTS = [at for mark in MARKS for at in range(len(RAW)) if RAW.startswith(mark, at)]
EDGES = tuple(start + shift for start in STARTS for shift in (0, 4, 14, 18, 22, 26, 30, 42))
MAIN = FILES["word/document.xml"]
TAGS = tuple(at for at in range(len(MAIN)) if MAIN[at] in b'<>/"&;= ')


@settings(max_examples=100)
@given(raw=mutations(RAW, EDGES), name=st.sampled_from(["a.docx", "a.docx", "a.epub", "a.txt"]))
def test_damaged_archives_balance_or_have_a_reason(raw: bytes, name: str) -> None:
    read_or_refuse(raw, name)


@settings(max_examples=150)
@given(main=mutations(MAIN, TAGS))
def test_damaged_main_parts_balance_or_have_a_reason(main: bytes) -> None:
    read_or_refuse(write(FILES | {"word/document.xml": main}), "a.docx")


@settings(max_examples=60)
@given(data=st.data(), name=st.sampled_from([each for each in sorted(FILES) if each != "word/document.xml"]))
def test_damage_to_other_parts_leaves_the_document_readable(data: st.DataObject, name: str) -> None:
    raw = write(FILES | {name: data.draw(mutations(FILES[name]))})
    document = read_or_refuse(raw, "a.docx")
    # The package's own relationships may lead to another part than the document.
    if name != "_rels/.rels":
        assert isinstance(document, Document)
        assert "One" in document.text.decode()


@settings(max_examples=60)
@given(raw=st.binary(max_size=300))
def test_random_bytes_have_a_reason(raw: bytes) -> None:
    read_or_refuse(raw, "a.docx")
    read_or_refuse(b"PK\x03\x04" + raw, "a.docx")


# Pieces of well-formed WordprocessingML in any order and depth, valid by the schema or not.
LEAVES = [
    "<w:t>text</w:t>", "<w:t> </w:t>", "<w:tab/>", "<w:br/>", "<m:t>m</m:t>", "<a:t>a</a:t>", "<c:v>v</c:v>", "stray",
    "<w:delText>d</w:delText>", "<w:instrText>i</w:instrText>", "<!--c-->", "<![CDATA[cd]]>", "&amp;",
    "<w:t>a<!--c-->b<![CDATA[&]]></w:t>", '<w:footnoteReference w:id="2"/>', '<w:endnoteReference w:id="2"/>',
    '<w:fldChar w:fldCharType="begin"/>', '<w:fldChar w:fldCharType="separate"/>', '<w:fldChar w:fldCharType="end"/>',
    '<w:pPr><w:pStyle w:val="Heading1"/></w:pPr>', '<w:pPr><w:pStyle w:val="Caption"/></w:pPr>', '<w:sym w:char="41"/>',
    "<w:rPr><w:vanish/></w:rPr>", '<wp:docPr descr="alt"/>',
]  # fmt: skip
AROUND = [
    "w:p", "w:r", "w:tbl", "w:tr", "w:tc", "w:ins", "w:del", "w:moveFrom", "w:sdt", "w:txbxContent", "w:ruby", "w:rt",
    "m:d", "m:e", "m:nary", "mc:AlternateContent", "mc:Choice", "mc:Fallback", "w:footnote", "a:p", "a:txBody", "x",
]  # fmt: skip
TREES = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.builds(
        lambda name, content: f"<{name}>{''.join(content)}</{name}>",
        st.sampled_from(AROUND),
        st.lists(inner, max_size=4),
    ),
    max_leaves=25,
)


def read_text(document: bytes) -> str:
    """The characters of all elements that the walk says are text."""
    root = etree.fromstring(document)
    reading = read_part(root, Styles(None))
    return "".join(text_of(element) for n, element in enumerate(root.iter(etree.Element)) if n in reading.read)


@settings(max_examples=200)
@given(body=st.lists(TREES, min_size=1, max_size=4), note=TREES)
def test_any_tree_of_known_elements_balances_and_loses_nothing_that_is_read(body: list[str], note: str) -> None:
    files = members(p("first"), *body, footnotes={"2": note})
    raw = write(files)
    document = read_or_refuse(raw, "a.docx")
    assert isinstance(document, Document)
    assert document.text.startswith(b"first")
    wanted = Counter(read_text(files["word/document.xml"]) + read_text(files["word/footnotes.xml"]))
    missing = wanted - Counter(document.text.decode())
    assert not set(missing) - set(" \t\n")


WORDS = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), min_size=1, max_size=6)


@st.composite
def books(draw: st.DrawFn) -> tuple[list[str], dict[str, str], list[str]]:
    """The blocks of a book, its footnotes, and all texts that a reader sees, in order."""
    body: list[str] = []
    wanted: list[str] = []
    notes: dict[str, str] = {}
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["p", "heading", "table", "note", "box", "deleted"]))
        words = draw(st.lists(WORDS, min_size=1, max_size=3))
        if kind == "table":
            row = tuple(p(r(word)) for word in words)
            body.append(table(row, row))
            wanted += words * 2
        elif kind == "note":
            key = str(len(notes) + 2)
            notes[key] = p(*map(r, words))
            body.append(p("noted", NOTE.format(key)))
            wanted += ["noted", *words]
        elif kind == "box":
            body.append(p("around", f"<w:r><w:pict><w:txbxContent>{p(*map(r, words))}</w:txbxContent></w:pict></w:r>"))
            wanted += ["around", *words]
        elif kind == "deleted":
            body.append(p(f"<w:del>{r('gone')}</w:del>", *map(r, words)))
            wanted += words
        else:
            body.append(p(*map(r, words), style="Heading1" if kind == "heading" else ""))
            wanted += words
    return body, notes, wanted


@settings(max_examples=100)
@given(made=books())
def test_generated_books_hold_what_was_put_in(made: tuple[list[str], dict[str, str], list[str]]) -> None:
    body, notes, wanted = made
    raw = write(members(*body, footnotes=notes))
    if not "".join(wanted).strip(" \t\n\r\f"):
        return
    document = read_book(raw, path=Path("book.docx"))
    check_document(document, raw)
    found = "".join(text for _, text in texts(document))
    assert re.sub("[ \t\n]", "", found) == re.sub("[ \t\n]", "", "".join(wanted))
    assert "gone" not in found
