"""FictionBook: bodies, sections, notes, poems and tables are text, binaries have a reason, every byte is counted."""

import base64
import gzip
import re
from pathlib import Path

import pytest
from book_checks import check_document, mutations, read_or_refuse
from epub_books import BOMB, boundaries, texts
from hypothesis import given, settings
from hypothesis import strategies as st
from zip_files import Record, handmade, zip_of

from connectors.books import read_book
from longdoc.errors import DocumentError
from longdoc.records import Document

PATH = Path("/books/book.fb2")
HEAD = (
    '<?xml version="1.0" encoding="{encoding}"?>'
    '<FictionBook xmlns="http://www.gribuser.ru/xml/fictionbook/2.0" xmlns:l="http://www.w3.org/1999/xlink">'
)
DESCRIPTION = """<description><title-info><genre>prose</genre>
<author><first-name>Лев</first-name><middle-name>Николаевич</middle-name><last-name>Толстой</last-name></author>
<author><nickname>Соавтор</nickname></author><book-title>Война
 и мир</book-title>{annotation}<date value="1869-01-01">1869</date><lang>ru</lang></title-info>
<src-title-info><book-title>Original</book-title><annotation><p>Not this one.</p></annotation></src-title-info>
<document-info><author><nickname>Digitiser</nickname></author><id>abc-1</id></document-info>
<publish-info><publisher>АСТ</publisher><year>1999</year><isbn>5-17-000000-1</isbn></publish-info></description>"""


def fb2(
    bodies: str, *, encoding: str = "utf-8", annotation: str = "", more: str = "", description: bool = True
) -> bytes:
    about = DESCRIPTION.format(annotation=annotation) if description else ""
    text = f"{HEAD.format(encoding=encoding)}{about}{bodies}{more}</FictionBook>"
    return text.encode(encoding)


def read(raw: bytes, path: Path = PATH) -> Document:
    document = read_book(raw, path=path)
    check_document(document, raw)
    return document


def fault(raw: bytes, path: Path = PATH) -> DocumentError:
    with pytest.raises(DocumentError) as refused:
        read_book(raw, path=path)
    assert refused.value.stage == "read"
    return refused.value


def test_nested_sections_are_parts_and_chapters_named_by_their_titles() -> None:
    body = """<body><title><p>Лев Толстой</p><p>Война и мир</p></title>
    <epigraph><p>Эпиграф</p><text-author>Кто</text-author></epigraph>
    <section><title><p>Том 1</p></title><epigraph><p>Ещё</p></epigraph>
    <section><title><p>Глава</p><p>I</p></title><p>Раз.</p><p>Два.</p></section>
    <section><title><p>II</p></title><section><p>Три.</p></section><section><p>Четыре.</p></section></section>
    <section><p>Без названия.</p></section><section><p>И это.</p></section></section></body>"""
    assert texts(read(fb2(body))) == [
        ("front_matter", "Лев Толстой Война и мир", "Лев Толстой\nВойна и мир\n\nЭпиграф\n\nКто"),
        ("part", "Том 1", "Том 1\n\nЕщё"),
        ("chapter", "Глава I", "Глава\nI\n\nРаз.\n\nДва."),
        ("part", "II", "II\n\nТри.\n\nЧетыре."),
        ("section", None, "Без названия.\n\nИ это."),
    ]


def test_sections_without_titles_are_sections() -> None:
    assert texts(read(fb2("<body><section><p>Раз.</p></section><section><p>Два.</p></section></body>"))) == [
        ("section", None, "Раз."),
        ("section", None, "Два."),
    ]


def test_notes_are_labelled_and_references_stay_in_the_flow() -> None:
    bodies = """<body><section><p>Слово<a l:href="#n1" type="note">[1]</a>.</p></section></body>
    <body name="notes"><title><p>Примечания</p></title><section id="n1"><title><p>1</p></title><p>Сноска.</p></section>
    <section id="n2"><p>Вторая.</p></section></body><body name="comments"><section><p>Третья.</p></section></body>"""
    assert texts(read(fb2(bodies))) == [
        ("section", None, "Слово[1]."),
        ("notes", "Примечания", "Примечания"),
        ("note", None, "1\n\nСноска.\n\nВторая."),
        ("note", None, "Третья."),
    ]


def test_poems_citations_tables_pictures_and_inline_elements() -> None:
    body = """<body><section><title><p>I</p></title><p>Some <strong>bold</strong>,  <emphasis>slanted</emphasis>
    and <sub>low</sub> text.</p><empty-line/><poem><title><p>Song</p></title><stanza><v>one</v><v>two</v></stanza>
    <stanza><v>three</v></stanza><text-author>Poet</text-author><date>1900</date></poem>
    <cite><p>Quoted.</p><text-author>Who</text-author></cite><subtitle>* * *</subtitle>
    <table><tr><th>a</th><td>b</td></tr><tr><td/><td>d</td></tr></table>
    <image l:href="#p.png" alt="A map"/><p>See <image l:href="#q.png" title="A key"/> here.</p></section></body>"""
    poem = "Song\n\none\ntwo\n\nthree\n\nPoet\n1900"
    assert texts(read(fb2(body))) == [
        (
            "chapter",
            "I",
            "I\n\nSome bold, slanted and low text.\n\n"
            + poem
            + "\n\nQuoted.\n\nWho\n\n* * *\n\na\tb\n\td\n\nSee here.",
        ),
        ("alt_text", None, "A map\nA key"),
    ]


def test_metadata_and_the_annotation() -> None:
    document = read(
        fb2("<body><section><p>x</p></section></body>", annotation="<annotation><p>О книге.</p></annotation>")
    )
    assert (document.title, document.authors) == ("Война и мир", ("Лев Николаевич Толстой", "Соавтор"))
    assert (document.language, document.publisher, document.date) == ("ru", "АСТ", "1999")
    assert document.identifiers == ("ISBN 5-17-000000-1", "abc-1")
    assert texts(document) == [("front_matter", None, "О книге."), ("section", None, "x")]
    assert [e.num_bytes for e in document.ledger if e.kind == "text"] == [len("О книге.".encode()) + 1]


def test_a_book_without_a_description_is_named_by_its_file() -> None:
    document = read(fb2("<body><section><p>x</p></section></body>", description=False))
    assert (document.title, document.authors, document.identifiers) == ("book", (), ())


@pytest.mark.parametrize("encoding", ["windows-1251", "koi8-r", "utf-8", "utf-16", "iso-8859-5"])
def test_declared_encodings_are_decoded_and_their_bytes_counted(encoding: str) -> None:
    raw = fb2("<body><section><p>Привет, мир.</p></section></body><!-- конец -->", encoding=encoding)
    document = read(raw)
    assert texts(document) == [("section", None, "Привет, мир.")]
    inside = {(e.kind, e.reason): e.num_bytes for e in document.ledger if e.parent is not None}
    codec = "utf-16-le" if encoding == "utf-16" else encoding
    assert inside["text", None] == len("Привет, мир.".encode(codec))
    assert inside["unread", "comment"] == len("<!-- конец -->".encode(codec))
    assert inside.get(("byte_order_mark", None), 0) == (2 if encoding == "utf-16" else 0)
    assert sum(inside.values()) == len(raw)


def test_binaries_have_their_own_bytes_and_reasons() -> None:
    picture = base64.b64encode(bytes(300)).decode()
    binaries = [
        f'<binary id="c.jpg" content-type="image/jpeg">{picture}</binary>',
        "<binary id='f.bin' content-type='application/octet-stream'>\n AAAA </binary>",
        '<binary id="e.png" content-type="image/png"/>',
    ]
    document = read(fb2("<body><section><p>x</p></section></body>", more="\n".join(binaries)))
    found = [(s.title, s.reason, s.num_bytes_source) for s in document.segments if s.kind == "binary"]
    assert found == [
        ("c.jpg", "image", len(binaries[0])),
        ("f.bin", "binary", len(binaries[1])),
        ("e.png", "image", len(binaries[2])),
    ]


def test_style_sheets_and_descriptions_are_unread() -> None:
    style = '<stylesheet type="text/css">p { color: red }</stylesheet>'
    raw = fb2("<body><section><p>x</p></section></body>", more=style, description=False)
    inside = {(e.kind, e.reason): e.num_bytes for e in read(raw).ledger if e.parent is not None}
    assert inside["unread", "style"] == len("p { color: red }")
    assert inside["text", None] == 1


def test_the_source_map_leads_to_elements() -> None:
    document = read(fb2("<body><section><title><p>I</p></title><p>One.</p><p>Two.</p></section></body>"))
    assert [(document.text[r.text_byte_start : r.text_byte_stop], r.place) for r in document.source_map] == [
        (b"I", "/FictionBook/body[1]/section[1]/title[1]/p[1]"),
        (b"One.", "/FictionBook/body[1]/section[1]/p[1]"),
        (b"Two.", "/FictionBook/body[1]/section[1]/p[2]"),
    ]
    segment = next(s for s in document.segments if s.reason is None)
    assert (segment.transform, segment.encoding, segment.path) == ("fb2", None, None)


BOOK = fb2(
    "<body><section><title><p>I</p></title><p>Текст.</p></section></body>", more="<binary id='a.png'>AAAA</binary>"
)


def test_a_zipped_book_is_read_and_its_archive_measured() -> None:
    raw = zip_of({"book.fb2": BOOK, "cover.jpg": b"jpg"})
    document = read(raw, Path("/books/book.fb2.zip"))
    assert texts(document) == [("chapter", "I", "I\n\nТекст.")]
    segment = next(s for s in document.segments if s.reason is None)
    assert (segment.path, segment.transform) == (b"book.fb2", "fb2")
    assert {s.display_path: s.reason for s in document.segments if s.path and s.reason} == {"cover.jpg": "image"}
    data = next(e for e in document.ledger if e.kind == "data")
    assert data.num_bytes_content == len(BOOK)
    assert [e.kind for e in document.ledger if e.parent == data.entry_index] == ["document", "binary"]


def test_of_several_zipped_books_the_first_is_read_and_the_others_have_a_reason() -> None:
    document = read(zip_of({"a.fb2": BOOK, "b.fb2": BOOK}), Path("/books/two.fb2.zip"))
    assert document.warnings == ("The archive holds 2 books: only a.fb2 is read.",)
    assert [s.reason for s in document.segments if s.path == b"b.fb2"] == ["other_book"]


def test_a_gzipped_book_is_read() -> None:
    document = read(gzip.compress(BOOK), Path("/books/book.fb2.gz"))
    assert texts(document) == [("chapter", "I", "I\n\nТекст.")]


@pytest.mark.parametrize("name", ["book.xml", "book.txt", "book"])
def test_a_book_under_another_name_is_read_as_what_it_is(name: str) -> None:
    assert texts(read(BOOK, Path("/books") / name)) == [("chapter", "I", "I\n\nТекст.")]


@pytest.mark.parametrize(
    ("raw", "path", "reason", "cause"),
    [
        (BOOK[:-40], PATH, "damaged", "not well-formed XML"),
        (fb2("<body><section><p>a</section></p></body>"), PATH, "damaged", "not well-formed XML"),
        (fb2("<body/>"), PATH, "empty", "is empty: it holds no text"),
        (zip_of({"a.fb2": b""}), Path("a.fb2.zip"), "damaged", "not well-formed XML"),
        (
            handmade([Record(name=b"a.fb2", content=BOOK, flags=1)]),
            Path("a.fb2.zip"),
            "encrypted",
            "a.fb2 is encrypted",
        ),
        (handmade([Record(name=b"a.fb2", content=BOOK, crc32=7)]), Path("a.fb2.zip"), "damaged", "another checksum"),
        (zip_of({"a.jpg": b"jpg"}), Path("a.fb2.zip"), "unknown_format", "without a FictionBook"),
        (
            zip_of({"a.fb2": b"<FictionBook>" + b" " * (70 << 20)}),
            Path("a.fb2.zip"),
            "too_large_when_expanded",
            "expands to",
        ),
    ],
)
def test_what_cannot_be_read_has_a_reason(raw: bytes, path: Path, reason: str, cause: str) -> None:
    error = fault(raw, path)
    assert error.reason == reason
    assert cause in str(error)


@pytest.mark.parametrize(
    ("doctype", "body"),
    [
        ("<!DOCTYPE FictionBook [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>", "&x;"),
        (f"{BOMB}]>", "&a8;"),
    ],
    ids=["outside", "bomb"],
)  # fmt: skip
def test_entities_that_expand_or_reach_out_are_refused(doctype: str, body: str) -> None:
    raw = fb2(f"<body><section><p>{body}</p></section></body>").replace(
        b"<FictionBook", doctype.encode() + b"<FictionBook", 1
    )
    assert fault(raw).reason == "unsafe"


def test_common_slips_are_read_with_a_warning() -> None:
    raw = fb2("<body><section><p>Simon & Sons</p><image xlink:href='#a'/></section></body>")
    document = read(raw)
    assert texts(document) == [("section", None, "Simon & Sons")]
    assert len(document.warnings) == 2
    assert all("Read with what was meant." in warning for warning in document.warnings)


words = st.text(st.characters(codec="utf-8", categories=["L", "N"]), min_size=1, max_size=6)
Tree = tuple[str | None, list["Tree"], list[str]]


@st.composite
def trees(draw: st.DrawFn, depth: int = 0) -> Tree:
    """A section: its title, its sections, or else its paragraphs."""
    title = draw(words)
    if depth < 3 and draw(st.booleans()):
        return title, draw(st.lists(trees(depth=depth + 1), min_size=1, max_size=3)), []
    return title, [], draw(st.lists(words, min_size=1, max_size=3))


def as_xml(tree: Tree) -> str:
    title, sections, paragraphs = tree
    inside = "".join(map(as_xml, sections)) + "".join(f"<p>{text}</p>" for text in paragraphs)
    return f"<section><title><p>{title}</p></title>{inside}</section>"


def as_texts(tree: Tree) -> list[tuple[str, str | None, str]]:
    title, sections, paragraphs = tree
    own = ("part" if sections else "chapter", title, "\n\n".join([title or "", *paragraphs]))
    return [own, *(each for section in sections for each in as_texts(section))]


@given(tree=trees(), encoding=st.sampled_from(["utf-8", "utf-16"]), wrapped=st.sampled_from(["", ".zip", ".gz"]))
@settings(max_examples=60)
def test_generated_books_give_their_sections_in_order_and_every_byte(tree: Tree, encoding: str, wrapped: str) -> None:
    raw = fb2(f"<body>{as_xml(tree)}</body>", encoding=encoding)
    raw = zip_of({"b.fb2": raw}) if wrapped == ".zip" else gzip.compress(raw) if wrapped else raw
    assert texts(read(raw, Path(f"/books/book.fb2{wrapped}"))) == as_texts(tree)


SNIPPETS = [
    b"",
    b"<",
    b">",
    b"&",
    b'"',
    b"</p>",
    b"<!--",
    b"<![CDATA[",
    b"\0",
    b"\xff",
    b"<binary>",
    b"</binary>",
    b"<p>",
]


@given(data=st.data(), is_zipped=st.booleans())
@settings(max_examples=150)
def test_mutated_books_end_in_a_document_or_a_reason(data: st.DataObject, is_zipped: bool) -> None:
    content = bytearray(BOOK)
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(content)))
        content[at : at + data.draw(st.integers(0, 12))] = data.draw(st.sampled_from(SNIPPETS))
    raw = zip_of({"b.fb2": bytes(content)}) if is_zipped else bytes(content)
    edges = boundaries(raw) if is_zipped else tuple(match.start() for match in re.finditer(b"<", raw))
    mutated = data.draw(st.just(raw) | mutations(raw, edges))
    outcome = read_or_refuse(mutated, "/books/book.fb2.zip" if is_zipped else "/books/book.fb2")
    if isinstance(outcome, DocumentError):
        assert re.search(r"\. [A-Z][^.]+(\.\w[^.]*)*\.$", str(outcome)), "the last sentence says what to do"
