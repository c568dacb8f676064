"""EPUB: the spine decides the order, contents name, and every kind of text is in."""

import pytest
from epub_books import CONTAINER, EPUB2, EPUB3, Chapter, Epub, chapter, read, reasons, texts, xhtml

from connectors.epub_navigation import read_nav, read_ncx
from connectors.markup_events import xml_events
from connectors.xml_tree import parse_xml

# --- Order


def test_the_spine_decides_the_order_not_the_manifest_nor_the_contents() -> None:
    package = """<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata/><manifest>
    <item id="c0" href="c0.xhtml" media-type="application/xhtml+xml"/>
    <item id="c1" href="c1.xhtml" media-type="application/xhtml+xml"/>
    <item id="c2" href="c2.xhtml" media-type="application/xhtml+xml"/>
    <item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>
    </manifest><spine><itemref idref="c2"/><itemref idref="c0"/><itemref idref="c1"/></spine></package>"""
    nav = [("One", "c1.xhtml", 0), ("Zero", "c0.xhtml", 0)]
    document = read(Epub(chapters=[chapter(n) for n in range(3)], package=package, nav=nav))
    assert texts(document) == [("text", None, "Text 2."), ("chapter", "Zero", "Text 0."), ("chapter", "One", "Text 1.")]
    assert reasons(document)["OEBPS/nav.xhtml"] == "navigation"


def test_pages_beside_the_linear_order_and_linked_pages_come_after_it() -> None:
    chapters = [
        chapter(
            0,
            '<p>First. <a href="nav.xhtml">All</a> <a href="c3.xhtml#x">see</a> <a href="https://example.org/a.xhtml">out</a></p>',
        ),
        chapter(1, linear=False),
        chapter(2),
        chapter(3, '<p>Linked, and leads to <a href="sub/c4.xhtml">another</a>.</p>', in_spine=False),
        Chapter(name="sub/c4.xhtml", content=xhtml("<p>Deeper.</p>"), in_spine=False),
        chapter(5, in_spine=False),
    ]
    document = read(Epub(chapters=chapters, nav=[]))
    assert texts(document) == [
        ("text", None, "First. All see out"),
        ("text", None, "Text 2."),
        ("auxiliary", None, "Text 1."),
        ("auxiliary", None, "Linked, and leads to another."),
        ("auxiliary", None, "Deeper."),
    ]
    assert reasons(document)["OEBPS/c5.xhtml"] == "not_in_spine"
    assert reasons(document)["OEBPS/nav.xhtml"] == "navigation"


@pytest.mark.parametrize(
    ("folder", "name", "href"),
    [
        ("", "text/c.xhtml", "text/c.xhtml"),
        ("OEBPS/pkg/", "../text/c.xhtml", "../text/c.xhtml"),
        ("a b/", "ch 1.xhtml", "ch%201.xhtml"),
        ("OEBPS/", "été.xhtml", "%C3%A9t%C3%A9.xhtml"),
        ("OEBPS/", "c.xhtml", "./x/../c.xhtml"),
        ("OEBPS/", "c.xhtml", "/OEBPS/c.xhtml"),
        ("OEBPS/", "c.xhtml", "../../OEBPS/c.xhtml"),
        ("OEBPS/", "C.XHTML", "c.xhtml"),
        ("OEBPS/", "a%20b.xhtml", "a%20b.xhtml"),
        ("OEBPS/", "e\u0301.xhtml", "\u00e9.xhtml"),
    ],
)
def test_references_are_resolved_against_the_package_file(folder: str, name: str, href: str) -> None:
    member = "OEBPS/text/c.xhtml" if name.startswith("..") else f"{folder}{name}"
    package = f"""<package><metadata/><manifest>
    <item id="c" href="{href}" media-type="application/xhtml+xml"/></manifest>
    <spine><itemref idref="c"/></spine></package>"""
    book = Epub(chapters=[], folder=folder, package=package, members={member: xhtml("<p>Found.</p>")})
    document = read(book)
    assert texts(document) == [("text", None, "Found.")]
    assert next(s.path for s in document.segments if s.reason is None) == member.encode()


# --- Names


def test_several_chapters_in_one_page_are_cut_where_fragments_lead() -> None:
    body = '<p>Before.</p><section id="a"><h2>I</h2><p>Down.</p></section><h2 id="b%20c">II</h2><p>Pool.</p>'
    nav = [("Down the Hole", "c0.xhtml#a", 0), ("The Pool", "c0.xhtml#b%2520c", 0), ("Lost", "gone.xhtml#a", 0)]
    document = read(Epub(chapters=[chapter(0, body)], nav=nav))
    assert texts(document) == [
        ("text", None, "Before."),
        ("chapter", "Down the Hole", "I\n\nDown."),
        ("chapter", "The Pool", "II\n\nPool."),
    ]
    assert document.warnings == ("1 entries of the table of contents lead to no page of the book.",)


NESTED = [
    ("Part One", "c0.xhtml", 0),
    ("Chapter A", "c1.xhtml", 1),
    ("Scene", "c1.xhtml#s", 2),
    ("Chapter B", "c2.xhtml", 1),
    ("Part Two", "c3.xhtml", 0),
    ("Chapter C", "c3.xhtml#c", 1),
]


@pytest.mark.parametrize("kind", ["nav", "ncx"])
def test_nested_contents_name_parts_and_chapters(kind: str) -> None:
    chapters = [chapter(0), chapter(1, '<p>A</p><p id="s">S</p>'), chapter(2), chapter(3, '<div id="c"><p>C</p></div>')]
    book = Epub(chapters=chapters, **{kind: NESTED}, version="2.0" if kind == "ncx" else "3.0")  # type: ignore[arg-type]
    assert texts(read(book)) == [
        ("part", "Part One", "Text 0."),
        ("chapter", "Chapter A", "A"),
        ("chapter", "Scene", "S"),
        ("chapter", "Chapter B", "Text 2."),
        ("chapter", "Part Two: Chapter C", "C"),
    ]


def test_both_kinds_of_contents_keep_order_and_nesting() -> None:
    parts = Epub(chapters=[], nav=NESTED, ncx=NESTED).parts()
    nav = read_nav(xml_events(parse_xml(parts["OEBPS/nav.xhtml"].decode())), "OEBPS/nav.xhtml")
    ncx = read_ncx(parse_xml(parts["OEBPS/toc.ncx"].decode()), "OEBPS/toc.ncx")
    assert [(point.title, point.depth) for point in nav.points] == [(title, depth) for title, _, depth in NESTED]
    assert nav.points[2].target == ("OEBPS/c1.xhtml", "s")
    assert ncx == nav


def test_of_two_names_for_one_place_the_first_holds() -> None:
    document = read(Epub(chapters=[chapter(0)], nav=[("Cover", "c0.xhtml", 0), ("Title Page", "c0.xhtml", 0)]))
    assert texts(document) == [("chapter", "Cover", "Text 0.")]


def test_a_picture_with_a_label_names_a_chapter() -> None:
    nav = xhtml(
        '<nav epub:type="toc"><ol><li><a href="c0.xhtml"><img src="i.png" alt="The First"/></a></li></ol></nav>'
    )
    book = Epub(chapters=[chapter(0)], nav=[], members={"OEBPS/nav.xhtml": nav})
    assert texts(read(book)) == [("chapter", "The First", "Text 0.")]


def test_of_several_renditions_the_first_package_is_read() -> None:
    container = CONTAINER.replace(
        "<rootfiles>", '<rootfiles><rootfile full-path="book.pdf" media-type="application/pdf"/>'
    ).replace("</rootfiles>", '<rootfile full-path="b.opf" media-type="application/oebps-package+xml"/></rootfiles>')
    document = read(Epub(chapters=[chapter(0)], container=container, members={"book.pdf": b"pdf"}))
    assert texts(document) == [("text", None, "Text 0.")]
    assert document.warnings == ("The book has 2 renditions: the first one is read.",)


def test_a_navigation_document_without_entries_leaves_the_naming_to_the_ncx() -> None:
    document = read(Epub(chapters=[chapter(0)], nav=[], ncx=[("From the NCX", "c0.xhtml", 0)]))
    assert texts(document) == [("chapter", "From the NCX", "Text 0.")]


def test_page_lists_name_nothing() -> None:
    pages = '<nav epub:type="page-list"><ol><li><a href="c0.xhtml#p1">1</a></li></ol></nav>'
    body = '<p>A</p><p id="p1">B</p>'
    document = read(Epub(chapters=[chapter(0, body)], nav=[("I", "c0.xhtml", 0)], landmarks=pages))
    assert texts(document) == [("chapter", "I", "A\n\nB")]


def test_kinds_come_from_types_landmarks_and_guide() -> None:
    chapters = [
        chapter(0, '<section epub:type="titlepage"><p>Title</p></section>'),
        chapter(1),
        chapter(2, '<section epub:type="chapter"><h2>I</h2><p>x</p></section>'),
        chapter(3, '<section role="doc-epilogue"><p>End</p></section>'),
        chapter(4),
    ]
    nav = [("Title", "c0.xhtml", 0), ("Copyright", "c1.xhtml", 0), ("The End", "c3.xhtml", 0), ("Index", "c4.xhtml", 0)]
    landmarks = '<nav epub:type="landmarks"><ol><li><a epub:type="copyright-page" href="c1.xhtml">C</a></li></ol></nav>'
    guide = '<guide><reference type="index" href="c4.xhtml"/></guide>'
    document = read(Epub(chapters=chapters, nav=nav, landmarks=landmarks, guide=guide))
    assert [(kind, title) for kind, title, _ in texts(document)] == [
        ("front_matter", "Title"),
        ("front_matter", "Copyright"),
        ("chapter", "I"),
        ("section", "The End"),
        ("back_matter", "Index"),
    ]


def test_without_contents_headings_name_and_cut() -> None:
    body = "<h1>Book</h1><h2>Chapter I</h2><h3>Down</h3><p>a</p><h2>Chapter II</h2><p>b</p><h3>Scene</h3><p>c</p>"
    document = read(Epub(chapters=[chapter(0, body), chapter(1, "<h1>Prologue</h1><p>d</p>")]))
    assert texts(document) == [
        ("part", "Book", "Book"),
        ("chapter", "Chapter I Down", "Chapter I\n\nDown\n\na"),
        ("chapter", "Chapter II", "Chapter II\n\nb\n\nScene\n\nc"),
        ("section", "Prologue", "Prologue\n\nd"),
    ]


def test_gutenberg_text_around_the_book_is_labelled() -> None:
    chapters = [
        chapter(0, "<p>Legal.</p><p>*** START OF THE PROJECT GUTENBERG EBOOK ALICE ***</p><p>Title</p>"),
        chapter(1),
        chapter(2, "<p>Last.</p><p>*** END OF THE PROJECT GUTENBERG EBOOK ALICE ***</p><p>Licence.</p>"),
        chapter(3, "<p>More licence.</p>"),
        chapter(4, "<p>Cover</p>", linear=False),
    ]
    kinds = [(kind, text.split("\n")[-1]) for kind, _, text in texts(read(Epub(chapters=chapters)))]
    assert kinds == [
        ("boilerplate", "*** START OF THE PROJECT GUTENBERG EBOOK ALICE ***"),
        ("text", "Title"),
        ("text", "Text 1."),
        ("text", "Last."),
        ("boilerplate", "Licence."),
        ("boilerplate", "More licence."),
        ("auxiliary", "Cover"),
    ]


def test_gutenberg_text_on_a_page_of_its_own_leaves_the_names_alone() -> None:
    start = "<p>*** START OF THE PROJECT GUTENBERG EBOOK ALICE ***</p>"
    nav = [("Legal", "c0.xhtml", 0), ("Down", "c1.xhtml", 0)]
    document = read(Epub(chapters=[chapter(0, start), chapter(1)], nav=nav))
    assert [(kind, title) for kind, title, _ in texts(document)] == [("boilerplate", None), ("chapter", "Down")]


# --- Every kind of text


def test_notes_in_other_pages_are_notes_and_other_text_of_theirs_is_not() -> None:
    page = '<p>Word<a epub:type="noteref" href="c1.xhtml#n1">1</a>.</p><aside epub:type="footnote"><p>Here.</p></aside>'
    notes = '<ol><li id="n1">By link.</li></ol><div epub:type="endnote">By type.</div>'
    chapters = [chapter(0, page), chapter(1, f"<h2>Notes</h2>{notes}<p>Not one.</p>")]
    assert texts(read(Epub(chapters=chapters))) == [
        ("text", None, "Word1."),
        ("note", None, "Here."),
        ("chapter", "Notes", "Notes"),
        ("note", None, "By link.\n\nBy type."),
        ("chapter", None, "Not one."),
    ]


def test_ruby_alt_texts_svg_and_formulas() -> None:
    body = (
        "<p><ruby>表<rt>ひょう</rt>示<rt>じ</rt></ruby>する</p><p>See <img src='a.png' alt='A cat'/></p>"
        '<svg xmlns="http://www.w3.org/2000/svg"><title>Map</title><text>Here be</text><text>dragons</text></svg>'
        '<math xmlns="http://www.w3.org/1998/Math/MathML" alttext="x squared"><msup><mi>x</mi><mn>2</mn></msup></math>'
    )
    found = [(kind, text) for kind, _, text in texts(read(Epub(chapters=[chapter(0, body)])))]
    assert found == [
        ("text", "表示する\n\nSee\n\nHere be\ndragons\nx2"),
        ("alt_text", "A cat\nMap\nx squared"),
        ("ruby", "ひょう\nじ"),
    ]


def test_an_svg_page_is_read() -> None:
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"><title>Cover</title><text>A tale</text></svg>'
    document = read(Epub(chapters=[Chapter(name="p.svg", content=svg, media_type="image/svg+xml")]))
    assert [(kind, text) for kind, _, text in texts(document)] == [("text", "A tale"), ("alt_text", "Cover")]


def test_pages_in_declared_encodings_are_decoded_and_measured() -> None:
    page = '<?xml version="1.0" encoding="windows-1251"?><html xmlns="http://www.w3.org/1999/xhtml"><body><p>Привет</p></body></html>'
    chapters = [
        Chapter(name="a.xhtml", content=page.encode("cp1251")),
        Chapter(name="b.xhtml", content=page.replace("windows-1251", "utf-16").encode("utf-16")),
    ]
    document = read(Epub(chapters=chapters))
    assert [text for _, _, text in texts(document)] == ["Привет", "Привет"]
    assert [e.num_bytes for e in document.ledger if e.kind == "text"] == [6, 12]
    assert [e.num_bytes for e in document.ledger if e.kind == "byte_order_mark"] == [2]


def test_segments_and_source_map_lead_back_to_member_and_element() -> None:
    document = read(Epub(chapters=[chapter(0, "<p>One.</p><div><p>Two.</p></div>"), chapter(1)]))
    first, second = (segment for segment in document.segments if segment.reason is None)
    assert (first.path, first.transform, first.encoding, first.place) == (
        b"OEBPS/c0.xhtml",
        "epub",
        None,
        "/html/body/p[1]",
    )
    assert second.place == "/html/body/p[1]"
    ranges = [
        (document.text[each.text_byte_start : each.text_byte_stop], document.ledger[each.entry_index].path, each.place)
        for each in document.source_map
    ]
    assert ranges == [
        (b"One.", b"OEBPS/c0.xhtml", "/html/body/p[1]"),
        (b"Two.", b"OEBPS/c0.xhtml", "/html/body/div[1]/p[1]"),
        (b"Text 1.", b"OEBPS/c1.xhtml", "/html/body/p[1]"),
    ]


def test_a_page_is_broken_down_to_text_markup_and_what_is_unread() -> None:
    content = b"<html><head><title>abc</title></head><body><p>12345</p><!-- x --></body></html>"
    document = read(Epub(chapters=[Chapter(name="c.xhtml", content=content)]))
    data = next(e for e in document.ledger if e.kind == "data" and e.path == b"OEBPS/c.xhtml")
    inside = {(e.kind, e.reason): e.num_bytes for e in document.ledger if e.parent == data.entry_index}
    assert data.num_bytes_content == len(content)
    assert inside == {
        ("text", None): 5,
        ("markup", None): len(b"<html><head><title></title></head><body><p></p></body></html>"),
        ("unread", "comment"): len(b"<!-- x -->"),
        ("unread", "metadata"): 3,
    }


def test_what_is_no_text_has_its_reason() -> None:
    members = {
        "OEBPS/a.jpg": b"jpg", "OEBPS/f.otf": b"otf", "OEBPS/s.css": b"css", "OEBPS/x.js": b"js",
        "OEBPS/o.smil": b"<smil/>", "OEBPS/m.mp3": b"mp3", "OEBPS/odd": b"?", "META-INF/com.apple.xml": b"<x/>",
    }  # fmt: skip
    manifest = '<item id="odd" href="odd" media-type="font/woff"/>'
    document = read(Epub(chapters=[chapter(0)], nav=[], ncx=[], members=members, manifest=manifest))
    assert reasons(document) == {
        "mimetype": "metadata",
        "META-INF/container.xml": "metadata",
        "OEBPS/package.opf": "metadata",
        "OEBPS/nav.xhtml": "navigation",
        "OEBPS/toc.ncx": "navigation",
        "OEBPS/a.jpg": "image",
        "OEBPS/f.otf": "font",
        "OEBPS/s.css": "style",
        "OEBPS/x.js": "script",
        "OEBPS/o.smil": "media_overlay",
        "OEBPS/m.mp3": "audio",
        "OEBPS/odd": "font",
        "META-INF/com.apple.xml": "metadata",
    }
    assert {s.kind: s.reason for s in document.segments if s.path is None} == {
        "central_directory": "container",
        "end_record": "container",
    }


# --- What a book says of itself


@pytest.mark.parametrize("metadata", [EPUB3, EPUB2], ids=["epub 3", "epub 2"])
def test_metadata_of_both_versions(metadata: str) -> None:
    document = read(Epub(chapters=[chapter(0)], metadata=metadata))
    assert document.title == "Alice in Wonderland"
    assert document.authors == ("Lewis Carroll", "Second Author")
    assert document.identifiers == ("urn:uuid:2", "urn:isbn:1")
    assert (document.language, document.publisher, document.date) == ("en-GB", "Macmillan", "1865-11-26")


def test_a_book_that_says_nothing_of_itself_is_named_by_its_file() -> None:
    document = read(Epub(chapters=[chapter(0)], metadata=""))
    assert (document.title, document.authors, document.language) == ("alice", (), None)


def test_creators_of_other_roles_stand_where_there_is_no_author() -> None:
    metadata = '<dc:creator opf:role="edt">Ed Itor</dc:creator><dc:creator opf:role="trl">Tra Nslator</dc:creator>'
    assert read(Epub(chapters=[chapter(0)], metadata=metadata)).authors == ("Ed Itor", "Tra Nslator")
