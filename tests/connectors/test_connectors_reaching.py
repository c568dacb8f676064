"""Books that reach for files beside them, or grow when they are read: refused or passed over in every format alike."""

import gzip
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from epub_books import BOMB, Epub, chapter, reasons, xhtml
from every_format import fb2, read, refused
from small_docx import members, p, relationships, write
from small_pdf import SmallPdf, lines
from zip_files import zip_of


@pytest.fixture
def private(tmp_path: Path) -> str:
    (tmp_path / "private.txt").write_text("SECRET OF THE HOST")
    return (tmp_path / "private.txt").as_uri()


def test_nothing_beside_the_file_is_read(private: str) -> None:
    include = f'<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="{private}" parse="text"/>'
    body = (
        f'<p>a{include}</p><img src="{private}"/><iframe src="{private}"></iframe><object data="{private}">b</object>'
        f'<embed src="{private}"/><link rel="import" href="{private}"/>'
    )
    item = f'<item id="z" href="{private}" media-type="application/xhtml+xml"/>'
    external = relationships({"k": ("aFChunk", private), "n": ("footnotes", private), "h": ("header", private)})
    package = members(p("a", "<w:r><w:footnoteReference w:id='1'/></w:r>"), '<w:altChunk r:id="k"/>', include)
    package["word/_rels/document.xml.rels"] = external.encode()
    marked = external.replace("/>", ' TargetMode="External"/>').encode()
    files = {
        "a.html": f"<!DOCTYPE html><body>{body}".encode(),
        "a.xhtml": xhtml(body),
        "a.epub": Epub(chapters=[chapter(0, body)], manifest=item).raw(),
        "a.fb2": fb2(f'<p>a{include}</p><image l:href="{private}"/>').encode(),
        "a.docx": write(package),
        "b.docx": write(package | {"word/_rels/document.xml.rels": marked}),
    }
    for name, raw in files.items():
        document = read(raw, name)
        assert document.text.startswith(b"a"), name
        assert b"SECRET" not in document.text, name


def with_link(parts: Mapping[str, bytes], name: str, target: str) -> bytes:
    """An archive in which one member is a symbolic link, as Info-ZIP writes them."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for each, content in (parts | {name: target.encode()}).items():  # type: ignore[operator]  # both are dicts
            info = zipfile.ZipInfo(each)
            info.create_system, info.external_attr = 3, (0o120777 if each == name else 0o100644) << 16
            archive.writestr(info, content)
    return file.getvalue()


def test_links_in_archives_are_never_followed(tmp_path: Path, private: str) -> None:
    target = str(tmp_path / "private.txt")
    epub = with_link(Epub(chapters=[chapter(0), chapter(1)]).parts(), "OEBPS/c1.xhtml", target)
    document = read(epub, "a.epub")
    assert document.text.decode() == f"Text 0.\n\n{target}"
    for name, raw in (
        ("a.fb2.zip", with_link({"b.jpg": b"x"}, "a.fb2", target)),
        ("a.docx", with_link(members(p("a")), "word/document.xml", target)),
    ):
        assert refused(raw, name).reason == "damaged"


def with_entities(content: bytes, doctype: str) -> bytes:
    """XML with a document type, and with `&a8;` before its last end tag."""
    text = content.decode()
    start = text.index("?>") + 2 if text.startswith("<?xml") else 0
    end = text.rindex("</") if "</" in text else len(text)
    return f"{text[:start]}{doctype}{text[start:end]}{'&a8;' if '</' in text else ''}{text[end:]}".encode()


OUTSIDE = "<!DOCTYPE x [<!ENTITY a8 SYSTEM 'file:///etc/passwd'>]>"


@pytest.mark.parametrize("doctype", [f"{BOMB}]>", OUTSIDE], ids=["bomb", "outside"])
def test_entities_are_refused_through_every_wrapping(doctype: str) -> None:
    book, page = fb2("<p>&a8;</p>", doctype=doctype).encode(), with_entities(xhtml("<p>x</p>"), doctype)
    page = page.replace(b"<!DOCTYPE x", b"<!DOCTYPE html")
    files = {"a.fb2": book, "a.fb2.zip": zip_of({"a.fb2": book}), "a.fb2.gz": gzip.compress(book), "a.xhtml": page,
             "a.xhtml.gz": gzip.compress(page), "a.txt": page}  # fmt: skip
    assert {name: refused(raw, name).reason for name, raw in files.items()} == dict.fromkeys(files, "unsafe")


@pytest.mark.parametrize("doctype", [f"{BOMB}]>", OUTSIDE], ids=["bomb", "outside"])
def test_no_part_of_a_document_expands_entities(doctype: str) -> None:
    files = members(p("a"), footnotes={"1": p("f")}, core="<dc:title>T</dc:title>")
    for name in files:
        raw = write(files | {name: with_entities(files[name], doctype)})
        if name == "word/document.xml":
            assert refused(raw, "a.docx").reason == "unsafe"
        elif name != "[Content_Types].xml":  # nothing of it is read
            document = read(raw, "a.docx")
            assert document.text.startswith(b"a")
            assert reasons(document)[name] == "unsafe"
            assert f"{name} is left unread: it declares a document type" in "".join(document.warnings)


@pytest.mark.parametrize("doctype", [f"{BOMB}]>", OUTSIDE], ids=["bomb", "outside"])
def test_metadata_of_a_pdf_expands_no_entities(doctype: str) -> None:
    pdf = SmallPdf()
    pdf.page(lines("text"))
    pdf.info(Title="Plain")
    packet = (
        f"<?xpacket begin=''?>{doctype}<x:xmpmeta xmlns:x='adobe:ns:meta/' xmlns:dc='http://purl.org/dc/elements/1.1/'>"
        "<dc:format>application/pdf</dc:format><dc:title>&a8;</dc:title></x:xmpmeta>"
    )
    pdf.stream(packet.encode(), b"/Type /Metadata /Subtype /XML")
    assert read(pdf.write(), "a.pdf").title == "Plain"
