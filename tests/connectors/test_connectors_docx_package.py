"""The package around a DOCX: its parts and their names, what it says of the book, and what becomes of faulty ones."""

import pytest
from book_checks import texts
from docx_reading import REFERENCE, book, refused, text
from small_docx import OFFICE, STRICT_W, W, members, p, r, relationships, write


def test_strict_documents_are_read() -> None:
    files = members(p("One", style="Heading1"), p("a", REFERENCE.format("footnote", 2)), footnotes={"2": p("note")})
    strict = {
        name: content.replace(W.encode(), STRICT_W.encode()).replace(
            OFFICE.encode(), b"http://purl.oclc.org/ooxml/officeDocument/relationships"
        )
        for name, content in files.items()
    }
    assert texts(book(strict)) == [("chapter", "One\n\na\n\n"), ("note", "note")]


def test_prefixes_and_places_of_parts_are_free() -> None:
    files = members(p("elsewhere"))
    moved = {name.replace("word/", "content/text/"): content for name, content in files.items()}
    moved["_rels/.rels"] = relationships({"d": ("officeDocument", "/content/text/document.xml")}).encode()
    renamed = files["word/document.xml"].replace(b"xmlns:w=", b"xmlns:ns0=").replace(b"w:", b"ns0:")
    moved["content/text/document.xml"] = renamed
    assert book(moved).text == b"elsewhere"


def test_parts_in_utf_16_are_counted_in_their_own_bytes() -> None:
    files = members(p("zwei Bytes"))
    document = files["word/document.xml"].decode().replace('encoding="UTF-8"', 'encoding="UTF-16"')
    files["word/document.xml"] = document.encode("utf-16")
    found = book(files)
    assert found.text == b"zwei Bytes"
    assert [e.num_bytes for e in found.ledger if e.kind == "text"] == [2 * len("zwei Bytes")]


def test_core_properties_say_what_the_book_is() -> None:
    core = (
        "<dc:title>Der Prozeß</dc:title><dc:creator>Franz Kafka; Max Brod</dc:creator><dc:language>de</dc:language>"
        "<dc:identifier>urn:x</dc:identifier><dcterms:created>2020-01-02T00:00:00Z</dcterms:created>"
    )
    document = book(members(p("text"), core=core))
    assert (document.title, document.authors, document.language) == ("Der Prozeß", ("Franz Kafka", "Max Brod"), "de")
    assert (document.identifiers, document.date) == (("urn:x",), "2020-01-02T00:00:00Z")
    assert book(members(p("text")), "a name.docx").title == "a name"


def test_the_language_of_the_styles_is_the_documents() -> None:
    language = '<w:docDefaults><w:rPrDefault><w:rPr><w:lang w:val="fr-FR"/></w:rPr></w:rPrDefault></w:docDefaults>'
    assert book(members(p("texte"), styles=language)).language == "fr-FR"


def test_every_member_has_a_segment() -> None:
    document = book(
        members(p("a"), more={"word/media/i.png": b"\x89PNG", "word/fonts/f.odttf": b"f", "word/theme/t.xml": "<t/>"})
    )
    reasons = {s.display_path: s.reason for s in document.segments if s.path}
    assert reasons == {
        "word/document.xml": None,
        "[Content_Types].xml": "metadata",
        "_rels/.rels": "metadata",
        "word/_rels/document.xml.rels": "metadata",
        "word/styles.xml": "style",
        "word/media/i.png": "image",
        "word/fonts/f.odttf": "font",
        "word/theme/t.xml": "style",
    }


def test_a_part_that_is_damaged_is_left_out_with_a_warning() -> None:
    document = book(members(p("a", REFERENCE.format("footnote", 1)), footnotes={"1": "<broken>"}))
    assert document.text == b"a"
    assert [s.reason for s in document.segments if s.path == b"word/footnotes.xml"] == ["damaged"]
    assert document.warnings[0].startswith("word/footnotes.xml is left unread: not well-formed XML")


def test_a_damaged_main_part_is_a_damaged_document() -> None:
    files = members(p("a"))
    assert refused(write(files | {"word/document.xml": b"<broken>"})).reason == "damaged"
    error = refused(write({name: content for name, content in files.items() if name != "word/document.xml"}))
    assert error.reason == "damaged"
    assert "its main part, word/document.xml, is missing" in str(error)


@pytest.mark.parametrize(
    "document_type", ['<!DOCTYPE x [<!ENTITY a "b">]>', '<!DOCTYPE x SYSTEM "file:///etc/passwd">']
)
def test_document_types_are_unsafe(document_type: str) -> None:
    files = members(p("a"))
    files["word/document.xml"] = files["word/document.xml"].replace(
        b"<w:document", document_type.encode() + b"<w:document"
    )
    assert refused(write(files)).reason == "unsafe"


def test_other_office_documents_are_told_apart() -> None:
    files = members(p("a"))
    files["word/document.xml"] = b"<workbook/>"
    error = refused(write(files))
    assert error.reason == "unknown_format"
    assert "is an Office document, but no text document (it begins with workbook)" in str(error)


def test_pictures_only_and_nothing_at_all_have_their_own_reasons() -> None:
    assert refused(write(members(p(), more={"word/media/i.png": b"\x89PNG"}))).reason == "no_text_layer"
    assert refused(write(members(p(), "<w:p/>"))).reason == "empty"


def test_old_documents_and_those_with_a_password_are_told_apart() -> None:
    old = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
    assert refused(old, "book.doc").reason == "unknown_format"
    assert refused(old + "EncryptedPackage".encode("utf-16-le"), "book.docx").reason == "encrypted"


def test_parts_that_expand_without_measure_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.docx_package.MOST_XML", 1 << 20)
    raw = write(members(*["<w:p/>" * 300_000], p("a")))
    assert len(raw) < 20_000
    error = refused(raw)
    assert error.reason == "too_large_when_expanded"
    assert "word/document.xml expands to more than 1 MiB of XML" in str(error)


def test_many_forms_of_one_thing_take_no_square_of_time() -> None:
    forms = (
        "<mc:AlternateContent>"
        + "<mc:Fallback/>" * 50_000
        + "<mc:Choice><w:t>c</w:t></mc:Choice></mc:AlternateContent>"
    )
    assert text(p(f"<w:r>{forms}</w:r>")) == "c"


def test_deep_trees_end_in_words() -> None:
    deep = "<w:ins>" * 1500 + r("deep") + "</w:ins>" * 1500
    assert text(p(deep)) == "deep"
    assert refused(write(members(p("<w:ins>" * 5000 + "</w:ins>" * 5000)))).reason == "damaged"
