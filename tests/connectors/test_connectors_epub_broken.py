"""EPUBs that are broken, protected or hostile: what can be read is, with a warning, and the rest has a reason."""

import re
from pathlib import Path

import pytest
from epub_books import BOMB, CONTAINER, PATH, Chapter, Epub, chapter, encryption, fault, read, reasons, texts
from zip_files import Record, handmade, zip_of

from connectors.books import read_book
from longdoc.errors import DocumentError

# --- Protection


AES = "http://www.w3.org/2001/04/xmlenc#aes128-cbc"


@pytest.mark.parametrize("algorithm", ["http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC"])
def test_font_obfuscation_is_no_drm(algorithm: str) -> None:
    members = {"OEBPS/f.otf": b"garbled", "META-INF/encryption.xml": encryption(algorithm, "OEBPS/f.otf")}
    document = read(Epub(chapters=[chapter(0)], members=members))
    assert texts(document) == [("text", None, "Text 0.")]
    assert reasons(document)["OEBPS/f.otf"] == "font"
    assert document.warnings == ()


@pytest.mark.parametrize(
    ("mark", "scheme"),
    [
        ("META-INF/rights.xml", " by Adobe ADEPT"),
        ("META-INF/sinf.xml", " by Apple FairPlay"),
        ("META-INF/license.lcpl", " by Readium LCP"),
        ("META-INF/other", ""),
    ],
)
def test_an_encrypted_page_is_drm(mark: str, scheme: str) -> None:
    members = {mark: b"<x/>", "META-INF/encryption.xml": encryption(AES, "OEBPS/ch%201.xhtml")}
    error = fault(Epub(chapters=[Chapter(name="ch 1.xhtml", content=bytes(range(256)))], members=members).raw())
    assert error.reason == "drm"
    assert f"protected by DRM: its page OEBPS/ch 1.xhtml is encrypted{scheme}. Get a copy without DRM" in str(error)


def test_garbage_beside_the_mark_of_a_scheme_is_drm_even_where_nothing_says_so() -> None:
    book = Epub(
        chapters=[Chapter(name="c.xhtml", content=bytes(range(256)) * 4)], members={"META-INF/rights.xml": b"<r/>"}
    )
    assert fault(book.raw()).reason == "drm"


def test_the_mark_of_a_scheme_beside_pages_that_can_be_read_stops_nothing() -> None:
    assert texts(read(Epub(chapters=[chapter(0)], members={"META-INF/rights.xml": b"<r/>"})))[0][2] == "Text 0."


def test_an_encrypted_picture_is_a_reason_and_no_drm() -> None:
    members = {"OEBPS/a.jpg": b"x", "META-INF/encryption.xml": encryption(AES, "OEBPS/a.jpg")}
    assert reasons(read(Epub(chapters=[chapter(0)], members=members)))["OEBPS/a.jpg"] == "encrypted"


def test_an_archive_with_a_password_says_so() -> None:
    records = [
        Record(name=name.encode(), content=content, flags=name.endswith("c0.xhtml"))
        for name, content in Epub(chapters=[chapter(0)]).parts().items()
    ]
    error = fault(handmade(records))
    assert (error.reason, error.needs) == ("encrypted", "a copy without a password")


# --- Broken books


def test_missing_mimetype_and_container_are_warnings() -> None:
    document = read(Epub(chapters=[chapter(0)], mimetype=None, container=None))
    assert texts(document) == [("text", None, "Text 0.")]
    assert document.warnings == (
        "The container has no mimetype file.",
        "There is no META-INF/container.xml: OEBPS/package.opf was taken for the package file.",
    )


def test_a_wrong_mimetype_is_a_warning() -> None:
    warnings = read(Epub(chapters=[chapter(0)], mimetype=b"text/plain")).warnings
    assert warnings == ("The container's mimetype file does not say that it is an EPUB.",)


@pytest.mark.parametrize(
    ("book", "cause"),
    [
        (zip_of({"mimetype": b"application/epub+zip"}), "there is neither META-INF/container.xml nor a package file"),
        (Epub(chapters=[], container="<container/>").raw(), "META-INF/container.xml names no package file"),
        (
            Epub(chapters=[], container=CONTAINER.replace("{path}", "x.opf")).raw(),
            "there is no package file x.opf",
        ),
        (Epub(chapters=[], container="not xml").raw(), "META-INF/container.xml: not well-formed XML"),
        (Epub(chapters=[], package="<package><spine>").raw(), "OEBPS/package.opf: not well-formed XML"),
        (Epub(chapters=[]).raw(), "none of its pages can be read"),
    ],
)  # fmt: skip
def test_what_is_no_whole_epub_is_damaged(book: bytes, cause: str) -> None:
    error = fault(book)
    assert error.reason == "damaged"
    assert cause in str(error)
    assert str(error).endswith((" copy of the book.", " copy of it."))


def test_pages_that_are_missing_or_damaged_leave_a_segment_and_a_warning() -> None:
    parts = Epub(chapters=[chapter(0), chapter(1), chapter(2)]).parts()
    del parts["OEBPS/c1.xhtml"]
    records = [
        Record(name=name.encode(), content=content, crc32=1 if name.endswith("c2.xhtml") else None)
        for name, content in parts.items()
    ]
    document = read(handmade(records))
    assert texts(document) == [("text", None, "Text 0.")]
    assert reasons(document)["OEBPS/c1.xhtml"] == "missing"
    assert reasons(document)["OEBPS/c2.xhtml"] == "damaged"
    assert document.warnings == (
        "The page OEBPS/c1.xhtml is not in the archive.",
        "OEBPS/c2.xhtml has another checksum than the directory states.",
    )


def test_duplicate_ids_unknown_references_and_pages_outside_are_warned_of() -> None:
    package = """<package><metadata/><manifest>
    <item id="c" href="c0.xhtml" media-type="application/xhtml+xml"/>
    <item id="c" href="c1.xhtml" media-type="application/xhtml+xml"/>
    <item id="r" href="https://example.org/c.xhtml" media-type="application/xhtml+xml"/>
    </manifest><spine><itemref idref="c"/><itemref idref="c"/><itemref idref="x"/><itemref idref="r"/></spine>
    </package>"""
    document = read(Epub(chapters=[chapter(0), chapter(1)], package=package))
    assert texts(document) == [("text", None, "Text 0.")]
    assert reasons(document)["OEBPS/c1.xhtml"] == "not_in_spine"
    assert document.warnings == (
        "The manifest has several items c: the first one holds.",
        "The spine names c more than once: it is read where it comes first.",
        "The spine names x, which the manifest does not have.",
        "The page r is outside the book and is not fetched.",
    )


def test_without_a_spine_the_manifest_decides() -> None:
    package = """<package><manifest><item id="b" href="c1.xhtml" media-type="application/xhtml+xml"/>
    <item id="a" href="c0.xhtml" media-type="application/xhtml+xml"/></manifest></package>"""
    document = read(Epub(chapters=[chapter(0), chapter(1)], package=package))
    assert [text for _, _, text in texts(document)] == ["Text 1.", "Text 0."]
    assert document.warnings == ("The package has no spine: its pages are read in the order of the manifest.",)


@pytest.mark.parametrize("media_type", ["text/html", "application/xml", "", "text/x-oeb1-document", "image/jpeg"])
def test_pages_with_a_wrong_media_type_are_read(media_type: str) -> None:
    assert texts(read(Epub(chapters=[chapter(0, media_type=media_type)]))) == [("text", None, "Text 0.")]


def test_a_picture_in_the_spine_falls_back_to_the_page_that_it_names() -> None:
    package = """<package><manifest><item id="p" href="p.jpg" media-type="image/jpeg" fallback="q"/>
    <item id="q" href="q.pdf" media-type="image/x-other" fallback="c"/>
    <item id="c" href="c0.xhtml" media-type="application/xhtml+xml" fallback="p"/>
    <item id="l" href="l.jpg" media-type="image/jpeg" fallback="l"/>
    </manifest><spine><itemref idref="p"/><itemref idref="l"/></spine></package>"""
    members = {"OEBPS/p.jpg": b"p", "OEBPS/l.jpg": b"l"}
    document = read(Epub(chapters=[chapter(0)], package=package, members=members))
    assert texts(document) == [("text", None, "Text 0.")]
    assert reasons(document)["OEBPS/p.jpg"] == "image"


def test_a_book_of_pictures_has_no_text_layer() -> None:
    error = fault(Epub(chapters=[chapter(0, '<img src="a.jpg"/>')], members={"OEBPS/a.jpg": b"x"}).raw())
    assert error.reason == "no_text_layer"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<p>a&nbsp;b &eacute; &mdash; &unknown;</p>", "a\u00a0b é — &unknown;"),
        ("<p>Simon & Schuster &amp; Sons</p>", "Simon & Schuster & Sons"),
        ("<p>open <b>bold<p>next", "open bold\n\nnext"),
        ("<p>text<br>more</p>", "text\nmore"),
        ("<p foo:bar='1'>prefix</p>", "prefix"),
        ("<script src='a.js'/><p>unclosed <i>after</p><![CDATA[<kept>]]>", None),
    ],
)
def test_pages_that_are_not_well_formed_are_read(body: str, text: str | None) -> None:
    document = read(Epub(chapters=[chapter(0, body)]))
    found = texts(document)[0][2]
    assert found == text if text is not None else ("unclosed after" in found and "<kept>" in found)


def test_html_fallback_is_warned_of_and_keeps_what_self_closing_elements_would_hide() -> None:
    content = (
        b'<html><head><title/><script src="a"/></head><body><p>All <i>of it</p><div/><p>is here.</p></body></html>'
    )
    document = read(Epub(chapters=[Chapter(name="c.xhtml", content=content)]))
    assert texts(document)[0][2] == "All of it\n\nis here."
    assert len(document.warnings) == 1
    assert document.warnings[0].startswith("OEBPS/c.xhtml: not well-formed XML (")
    assert document.warnings[0].endswith("). Read as HTML.")
    assert [e.num_bytes for e in document.ledger if e.kind == "text"] == [len("All of it") + len("is here.")]


def test_a_prefix_that_is_not_declared_keeps_its_meaning() -> None:
    content = b'<html><body><section epub:type="epilogue"><p>End.</p></section></body></html>'
    document = read(Epub(chapters=[Chapter(name="c.xhtml", content=content)], nav=[("The End", "c.xhtml", 0)]))
    assert texts(document) == [("section", "The End", "End.")]
    assert document.warnings[0].endswith("Read with what was meant.")


@pytest.mark.parametrize(
    ("doctype", "body"),
    [
        (BOMB + "]>", "&a8;"),
        ("<!DOCTYPE html [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>", "&x;"),
        ("<!DOCTYPE html [<!ENTITY x SYSTEM 'http://127.0.0.1:9/x'>]>", "&x;"),
        ("<!DOCTYPE html [<!ENTITY a '&b;'><!ENTITY b '&a;'>]>", "&a;"),
    ],
)
@pytest.mark.parametrize(
    "name", ["OEBPS/c0.xhtml", "OEBPS/package.opf", "META-INF/container.xml", "OEBPS/nav.xhtml", "OEBPS/toc.ncx"]
)
def test_entities_that_expand_or_reach_out_are_refused_wherever_they_stand(doctype: str, body: str, name: str) -> None:
    # A navigation document that names nothing, so that the NCX is read too.
    parts = Epub(chapters=[chapter(0)], nav=[], ncx=[("I", "c0.xhtml", 0)]).parts()
    text = re.sub("<!DOCTYPE[^>]*>", "", parts[name].decode())
    declaration, rest = re.match(r"(<\?xml.*?\?>)?(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    end = rest.rindex("</")
    parts[name] = f"{declaration or ''}{doctype}{rest[:end]}{body}{rest[end:]}".encode()
    error = fault(zip_of(parts))
    assert error.reason == "unsafe"
    assert name in str(error)


def test_a_dtd_that_is_only_named_is_not_fetched() -> None:
    content = (
        b'<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" "http://127.0.0.1:9/xhtml11.dtd">'
        b'<html xmlns="http://www.w3.org/1999/xhtml"><body><p>a&nbsp;b</p></body></html>'
    )
    assert texts(read(Epub(chapters=[Chapter(name="c.xhtml", content=content)])))[0][2] == "a\u00a0b"


def test_a_page_that_expands_without_bound_is_refused_before_it_does() -> None:
    book = Epub(chapters=[chapter(0), Chapter(name="big.xhtml", content=b"<p>" + b" " * (80 << 20))])
    error = fault(book.raw())
    assert error.reason == "too_large_when_expanded"


def test_deep_nesting_costs_no_recursion() -> None:
    content = b"<html><body>" + b"<div>" * 20_000 + b"deep" + b"</div>" * 20_000 + b"</body></html>"
    assert texts(read(Epub(chapters=[Chapter(name="c.xhtml", content=content)])))[0][2] == "deep"


def test_an_epub_under_another_name_is_read_with_a_warning() -> None:
    document = read_book(Epub(chapters=[chapter(0)]).raw(), path=Path("/books/alice.txt"))
    assert document.warnings == (
        "The name /books/alice.txt promises plain text, but its content is EPUB: read as that.",
    )


@pytest.mark.parametrize("raw", [b"<html><body><p>Not an EPUB.</p></body></html>", b"Just text."])
def test_another_format_under_the_name_of_an_epub_is_told(raw: bytes) -> None:
    try:
        document = read_book(raw, path=PATH)
    except DocumentError as error:
        assert error.reason == "damaged"  # noqa: PT017, either is right: what matters is that it is said
    else:
        assert document.warnings
