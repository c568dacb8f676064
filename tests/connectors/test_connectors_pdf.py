"""PDF books: pages, their text to the character, what stands beside it, and a reason for each file without text."""

from pathlib import Path

import pytest
from book_checks import check_document, check_fault, mapped, shingles, story, texts
from pdf_reading import book, titles
from small_pdf import SmallPdf, lines, one_page, text_string, to_unicode

from connectors.books import read_book
from connectors.formats import FORMATS
from connectors.pdf import read_pdf
from longdoc.errors import DocumentError


def refused(raw: bytes, name: str = "book.pdf") -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        read_book(raw, path=Path(name))
    check_fault(caught.value)
    assert str(caught.value).startswith("book.pdf")
    return caught.value


def test_pages_are_units_in_the_order_of_the_page_tree() -> None:
    pdf = SmallPdf()
    numbers = [pdf.page(lines(f"page {n}", "goes on")) for n in ("one", "two", "three")]
    pdf.pages = [numbers[2], numbers[0], numbers[1]]
    document = book(pdf.write())
    assert texts(document) == [
        ("page", "page three\ngoes on\n\n"),
        ("page", "page one\ngoes on\n\n"),
        ("page", "page two\ngoes on"),
    ]
    assert [(s.unit, s.place, s.transform) for s in document.segments] == [
        (0, "page 1", "pdf"),
        (1, "page 2", "pdf"),
        (2, "page 3", "pdf"),
    ]
    assert mapped(document)[1] == ("page 2", "page one\ngoes on")


def test_the_bytes_of_the_file_stand_once_on_the_first_page_with_text() -> None:
    pdf = SmallPdf()
    pdf.page(b"")
    pdf.page(lines("text"))
    pdf.page(lines("more"))
    raw = pdf.write()
    document = book(raw)
    assert [s.num_bytes_source for s in document.segments] == [0, len(raw), 0]
    assert [(e.kind, e.num_bytes) for e in document.ledger] == [("pdf", len(raw))]


def test_hyphens_at_line_ends_are_hyphens_and_the_source_map_says_where() -> None:
    document = book(one_page("a rabbit-", "hole by a well-", "known hedge", "self-made -", "x"))
    assert document.text.decode() == "a rabbit-hole by a well-known hedge\nself-made -\nx"
    hyphens = [text for place, text in mapped(document) if place == "page 1, line-end hyphen"]
    assert hyphens == ["-", "-"]
    assert "".join(text for _, text in mapped(document)) == document.text.decode()
    assert document.warnings == ("1 of 1 pages have hyphens at line ends, joined to what follows (2 in all): 1.",)


def test_text_off_the_page_is_text() -> None:
    pdf = SmallPdf()
    pdf.page(lines("on the page") + lines("off the page", left=-400))
    assert b"off the page" in book(pdf.write()).text


def test_glyphs_without_a_character_are_kept_counted_and_told() -> None:
    # pdfium itself makes letters of a ligature's character (U+FB01); from U+FFFD on it is what bad maps say.
    said = {0x41: "ﬁ", 0x42: "ffi", 0x43: "\U0001d400", 0x44: "\ufffd", 0x45: "\ue001", 0x46: "\ud800", 0x47: "\0"}
    pdf = SmallPdf()
    font = pdf.font(b"/Encoding /WinAnsiEncoding /ToUnicode %d 0 R" % pdf.stream(to_unicode(said)))
    pdf.page(lines("ABC.", "DEFG."), font=font)
    pdf.page(lines("sound"))
    document = book(pdf.write())
    assert document.text.decode() == "fiffi\U0001d400.\n\ufffd\ue001\ufffd\ufffd.\n\nsound"
    assert document.warnings == ("1 of 2 pages have glyphs without a character (4 in all): 1.",)


def test_a_marker_behind_a_wide_character_is_found() -> None:
    pdf = SmallPdf()
    font = pdf.font(
        b"/Encoding /WinAnsiEncoding /ToUnicode %d 0 R" % pdf.stream(to_unicode({0x41: "\U0001d400", 0x42: "\0"}))
    )
    pdf.page(lines("AAA rabbit-", "hole B", "A well-", "known"), font=font)
    document = book(pdf.write())
    assert document.text.decode() == "\U0001d400\U0001d400\U0001d400 rabbit-hole \ufffd\n\U0001d400 well-known"
    assert [text for place, text in mapped(document) if "hyphen" in place] == ["-", "-"]


def columns(num_rows: int, *, across: bool) -> bytes:
    rows = [(f"left {n} has words like a column", f"right {n} has as many others") for n in range(num_rows)]
    pdf = SmallPdf()
    if across:
        content = b"".join(
            lines(left, top=700 - 14 * n) + lines(right, top=700 - 14 * n, left=330)
            for n, (left, right) in enumerate(rows)
        )
    else:
        content = lines(*(left for left, _ in rows)) + lines(*(right for _, right in rows), left=330)
    pdf.page(content)
    return pdf.write()


def test_columns_that_are_read_across_are_told() -> None:
    document = book(columns(6, across=True))
    assert document.text.startswith(b"left 0 has words like a column right 0 has as many others\n")
    assert document.warnings == ("1 of 1 pages seem to be read across their columns (tables look the same): 1.",)


def test_columns_that_are_read_down_are_in_order() -> None:
    document = book(columns(6, across=False))
    assert document.text.index(b"left 5") < document.text.index(b"right 0")
    assert document.warnings == ()


def test_pages_without_text_have_a_reason() -> None:
    pdf = SmallPdf()
    pdf.page(lines("text"))
    pdf.page(b"10 10 200 300 re f")
    pdf.page(b"")
    document = book(pdf.write())
    assert [(s.place, s.reason) for s in document.segments] == [
        ("page 1", None),
        ("page 2", "no_text_layer"),
        ("page 3", "no_text"),
    ]
    assert document.text == b"text"
    assert document.warnings == ("1 of 3 pages have no text layer: 2.",)


def test_a_scanned_book_has_no_text_layer() -> None:
    pdf = SmallPdf()
    image = pdf.stream(
        b"\xff", b"/Type /XObject /Subtype /Image /Width 1 /Height 1 /BitsPerComponent 8 /ColorSpace /DeviceGray"
    )
    pdf.page(b"q 612 0 0 792 0 0 cm /I Do Q", resources=b"/XObject << /I %d 0 R >>" % image)
    error = refused(pdf.write())
    assert error.reason == "no_text_layer"
    assert "pictures, as a scanner makes them" in str(error)


def test_a_book_of_blank_pages_is_empty() -> None:
    pdf = SmallPdf()
    pdf.page(b"")
    assert refused(pdf.write()).reason == "empty"


def test_a_book_without_pages_is_damaged() -> None:
    assert "it has no pages" in str(refused(SmallPdf().write()))


def test_an_empty_user_password_is_none() -> None:
    pdf = SmallPdf()
    pdf.page(lines("in the clear"))
    raw = pdf.write(user_password=b"")
    assert b"in the clear" not in raw
    assert book(raw).text == b"in the clear"


def test_a_book_that_needs_a_password_is_encrypted() -> None:
    pdf = SmallPdf()
    pdf.page(lines("secret"))
    error = refused(pdf.write(user_password=b"sesame"))
    assert (error.reason, error.needs) == ("encrypted", "a copy without a password")
    assert str(error) == "book.pdf: it is encrypted and needs a password. Save a copy without one."


@pytest.mark.parametrize(
    ("handler", "reason"), [(b"EBX_HANDLER", "drm"), (b"FOPN_foweb", "drm"), (b"Other", "encrypted")]
)
def test_security_handlers_are_told_apart(handler: bytes, reason: str) -> None:
    pdf = SmallPdf()
    pdf.page(lines("for sale"))
    pdf.trailer = b"/ID [<00> <00>] /Encrypt << /Filter /%s /V 1 >>" % handler
    assert refused(pdf.write()).reason == reason


def test_a_page_that_cannot_be_loaded_is_damaged_and_the_rest_is_read() -> None:
    pdf = SmallPdf()
    pdf.page(lines("first"))
    pdf.pages.append(999)
    pdf.page(lines("third"))
    document = book(pdf.write())
    assert [(s.place, s.reason) for s in document.segments] == [
        ("page 1", None),
        ("page 2", "damaged"),
        ("page 3", None),
    ]
    assert document.warnings == ("1 of 3 pages cannot be loaded: 2.",)


def test_a_broken_table_of_objects_is_told() -> None:
    raw = one_page("still here")
    document = book(raw.replace(b"startxref\n", b"startxref\n9"))
    assert document.text == b"still here"
    assert document.warnings == ("The file's table of objects is broken, and pdfium rebuilt it: pages may be missing.",)


def test_metadata_comes_from_the_info_dictionary() -> None:
    pdf = SmallPdf()
    pdf.page(lines("text"))
    pdf.info(Title=" Der  Prozeß ", Author="Franz Kafka; Max Brod", CreationDate="D:20111220110054-05'00'")
    pdf.catalog += b"/Lang (de-DE)"
    document = book(pdf.write())
    assert (document.title, document.authors) == ("Der Prozeß", ("Franz Kafka", "Max Brod"))
    assert (document.language, document.date) == ("de-DE", "2011-12-20T11:00:54-05:00")


def test_metadata_comes_from_xmp_first() -> None:
    def packet(media_type: str, title: str) -> bytes:
        return (
            "<x:xmpmeta xmlns:x='adobe:ns:meta/'><rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'>"
            "<rdf:Description xmlns:dc='http://purl.org/dc/elements/1.1/'>"
            f"<dc:format>{media_type}</dc:format><dc:title><rdf:Alt><rdf:li>{title}</rdf:li></rdf:Alt></dc:title>"
            "<dc:creator><rdf:Seq><rdf:li>Ärzte, Die</rdf:li><rdf:li>B</rdf:li></rdf:Seq></dc:creator>"
            "<dc:publisher><rdf:Bag><rdf:li>Verlag</rdf:li></rdf:Bag></dc:publisher>"
            "<dc:identifier>urn:isbn:1</dc:identifier></rdf:Description></rdf:RDF></x:xmpmeta>"
        ).encode()

    pdf = SmallPdf()
    pdf.page(lines("text"))
    pdf.info(Title="Info's title", Author="Info's author")
    pdf.stream(packet("application/pdf", "Old"), b"/Type /Metadata /Subtype /XML")
    pdf.stream(packet("application/pdf", "New"), b"/Type /Metadata /Subtype /XML")
    pdf.stream(packet("image/jpeg", "A picture"))
    document = book(pdf.write())
    assert (document.title, document.authors) == ("New", ("Ärzte, Die", "B"))
    assert (document.publisher, document.identifiers) == ("Verlag", ("urn:isbn:1",))


def test_without_metadata_the_name_is_the_title() -> None:
    assert book(one_page("text"), "a title.pdf").title == "a title"


def test_page_labels_stand_beside_page_numbers() -> None:
    pdf = SmallPdf()
    for text in ("preface", "more", "one"):
        pdf.page(lines(text))
    pdf.catalog += b"/PageLabels << /Nums [0 << /S /r >> 2 << /S /D /St 3 >>] >>"
    assert [s.place for s in book(pdf.write()).segments] == ["page 1 (i)", "page 2 (ii)", "page 3"]


def form_and_annotations() -> SmallPdf:
    pdf = SmallPdf()
    field = b"<< /Type /Annot /Subtype /Widget /FT /%s /T (f%d) /V %s /Rect [0 0 9 9] %s >>"
    fields = [
        pdf.add(field % (b"Tx", 1, text_string("typed in"), b"")),
        pdf.add(field % (b"Tx", 2, text_string("secret"), b"/Ff 8192")),
        pdf.add(field % (b"Ch", 3, text_string("chosen"), b"/Opt [(chosen) (not)]")),
        pdf.add(field % (b"Btn", 4, b"/Yes", b"")),
        pdf.add(field % (b"Tx", 5, text_string("hidden"), b"/F 2")),
    ]
    note = b"<< /Type /Annot /Subtype /%s /Contents %s /Rect [0 0 9 9] %s >>"
    notes = [
        pdf.add(note % (b"Text", text_string("I doubt it"), b"")),
        pdf.add(note % (b"FreeText", text_string("typed onto the page"), b"")),
        pdf.add(note % (b"Link", text_string("a link"), b"")),
    ]
    pdf.catalog += b"/AcroForm << /Fields [%s] >>" % b" ".join(b"%d 0 R" % number for number in fields)
    annotations = b" ".join(b"%d 0 R" % number for number in (*fields, *notes))
    pdf.page(lines("a form"), extra=b"/Annots [%s]" % annotations)
    return pdf


def test_form_fields_and_annotations_stand_behind_their_page() -> None:
    pdf = form_and_annotations()
    pdf.page(lines("next"))
    document = book(pdf.write())
    assert texts(document) == [
        ("page", "a form\n\n"),
        ("form_field", "typed in\nchosen\n\n"),
        ("annotation", "I doubt it\ntyped onto the page\n\n"),
        ("page", "next"),
    ]
    assert [s.unit for s in document.segments] == [0, 0, 0, 1]


def tagged() -> SmallPdf:
    """Headings and a figure, tagged (14.7): each piece of marked content has an element."""
    pdf = SmallPdf()
    content = b"".join(
        b"/%s << /MCID %d >> BDC %s EMC\n" % (tag, number, lines(text, top=700 - 20 * number))
        for number, (tag, text) in enumerate(
            [(b"H1", "Loomings"), (b"P", "Call me Ishmael."), (b"H1", "The Carpet-Bag"), (b"P", "I stuffed a shirt.")]
        )
    )
    page = pdf.page(content + b"/Figure << /MCID 4 >> BDC 10 10 20 20 re f EMC", extra=b"/StructParents 0")
    kinds = [(b"Heading1", b""), (b"P", b""), (b"H1", b""), (b"P", b""), (b"Figure", b"/Alt " + text_string("A whale"))]
    root = pdf.add(b"")
    element = b"<< /Type /StructElem /S /%s /P %d 0 R /Pg %d 0 R /K %d %s >>"
    elements = [pdf.add(element % (kind, root, page, number, extra)) for number, (kind, extra) in enumerate(kinds)]
    # The text of the second heading lies in an element of the heading.
    span = pdf.add(element % (b"Span", elements[2], page, 2, b""))
    pdf.objects[elements[2]] = pdf.objects[elements[2]].replace(b"/K 2", b"/K [%d 0 R]" % span)
    kids = b" ".join(b"%d 0 R" % number for number in elements)
    marked = kids.replace(b"%d 0 R" % elements[2], b"%d 0 R" % span)
    pdf.objects[root] = (
        b"<< /Type /StructTreeRoot /K [%s] /ParentTree << /Nums [0 [%s]] >> /RoleMap << /Heading1 /H1 >> >>"
        % (kids, marked)
    )
    pdf.catalog += b"/StructTreeRoot %d 0 R /MarkInfo << /Marked true >>" % root
    return pdf


def test_tags_name_chapters_and_describe_pictures() -> None:
    document = book(tagged().write())
    assert titles(document) == ["Loomings", "The Carpet-Bag"]
    assert texts(document) == [
        ("page", "Loomings\nCall me Ishmael.\n"),
        ("page", "The Carpet-Bag\nI stuffed a shirt.\n\n"),
        ("alt_text", "A whale"),
    ]


def test_attached_files_are_told_and_stay_unread() -> None:
    pdf = SmallPdf()
    pdf.page(lines("text"))
    stream = pdf.stream(b"attached text", b"/Type /EmbeddedFile")
    spec = pdf.add(b"<< /Type /Filespec /F (a.txt) /UF %s /EF << /F %d 0 R >> >>" % (text_string("a\x01.txt"), stream))
    pdf.catalog += b"/Names << /EmbeddedFiles << /Names [(a\\001.txt) %d 0 R] >> >>" % spec
    document = book(pdf.write())
    assert [(s.kind, s.reason, s.title) for s in document.segments][1:] == [("attachment", "attachment", "a\\x01.txt")]
    assert document.warnings == ("1 attached files are not read.",)


def test_gutenbergs_own_text_is_boilerplate() -> None:
    pdf = SmallPdf()
    header = lines("Title: Alice", "Author: Lewis Carroll", "*** START OF THIS PROJECT GUTENBERG EBOOK", "ALICE ***")
    pdf.page(header + lines("CHAPTER I. Down", top=600) + lines("She fell.", top=560))
    license_ = lines("*** END OF THIS PROJECT GUTENBERG EBOOK ***", "License", top=500)
    pdf.page(lines("CHAPTER II. The Pool") + lines("She swam.", "THE END", top=680) + license_)
    pdf.page(lines("CHAPTER III. A license has no chapters"))
    document = book(pdf.write())
    assert (document.title, document.authors) == ("Alice", ("Lewis Carroll",))
    assert [(s.kind, s.title) for s in document.segments] == [
        ("boilerplate", None),
        ("page", "CHAPTER I. Down"),
        ("page", "CHAPTER II. The Pool"),
        ("boilerplate", None),
        ("boilerplate", None),
    ]
    assert texts(document)[2:4] == [
        ("page", "CHAPTER II. The Pool\nShe swam.\nTHE END\n"),
        ("boilerplate", "*** END OF THIS PROJECT GUTENBERG EBOOK ***\nLicense\n\n"),
    ]


def test_a_pdf_under_another_name_is_read_as_one() -> None:
    raw = one_page("not plain")
    document = read_book(raw, path=Path("book.txt"))
    check_document(document, raw)
    assert document.text == b"not plain"
    assert document.warnings == ("The name book.txt promises plain text, but its content is PDF: read as that.",)


def test_what_is_no_pdf_has_a_reason() -> None:
    assert refused(b"%PDF-1.7\n% and nothing else\n").reason == "damaged"
    assert FORMATS["pdf"].connector_version.split("+")[2].startswith("pypdfium2-")


@pytest.mark.books
def test_alice_is_whole(books: Path) -> None:
    raw = (books / "alice.pdf").read_bytes()
    document = read_pdf(raw, path=books / "alice.pdf")
    check_document(document, raw)
    chapters = [title for title in titles(document) if title.startswith("CHAPTER")]
    assert chapters == [
        "CHAPTER I. Down the Rabbit-Hole",
        "CHAPTER II. The Pool of Tears",
        "CHAPTER III. A Caucus-Race and a Long Tale",
        "CHAPTER IV. The Rabbit Sends in a Little Bill",
        "CHAPTER V. Advice from a Caterpillar",
        "CHAPTER VI. Pig and Pepper",
        "CHAPTER VII. A Mad Tea-Party",
        "CHAPTER VIII. The Queen's Croquet-Ground",
        "CHAPTER IX. The Mock Turtle's Story",
        "CHAPTER X. The Lobster Quadrille",
        "CHAPTER XI. Who Stole the Tarts?",
        "CHAPTER XII. Alice's Evidence",
    ]
    assert (document.title, document.authors) == ("Alice's Adventures in Wonderland", ("Lewis Carroll",))
    pages = [segment.place for segment in document.segments if segment.is_content]
    assert list(dict.fromkeys(pages)) == [f"page {number}" for number in range(1, 70)]
    wanted = shingles(story((books / "alice.txt").read_text("utf-8-sig")))
    assert len(wanted & shingles(document.text.decode())) >= 0.99 * len(wanted)
    assert [place for place, text in mapped(document) if "hyphen" in place] == [
        f"page {number}, line-end hyphen" for number in (16, 33, 35, 44, 63, 64, 66, 68)
    ]
