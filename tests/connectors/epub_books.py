"""EPUBs for tests, built part by part by the text of the standard: https://www.w3.org/TR/epub-33/ and OPF 2.0.1."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from urllib.parse import quote

import pytest
from book_checks import check_document
from zip_files import zip_of

from connectors.archive_layout import read_layout
from connectors.books import read_book
from longdoc.errors import DocumentError
from longdoc.records import Document

CONTAINER = """<?xml version="1.0"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">
<rootfiles><rootfile full-path="{path}" media-type="application/oebps-package+xml"/></rootfiles></container>"""
XHTML = """<?xml version="1.0" encoding="utf-8"?>
<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops">
<head><title>Not text</title></head>
<body>{body}</body></html>"""


#: The internal subset of a document type, without its end, whose entity `&a8;` is 10^8 times as long as its text.
BOMB = "<!DOCTYPE x [<!ENTITY a0 'dots'>" + "".join(
    f"<!ENTITY a{number} '{f'&a{number - 1};' * 10}'>" for number in range(1, 9)
)


def xhtml(body: str) -> bytes:
    """A content document with this body."""
    return XHTML.format(body=body).encode("utf-8")


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """A page of the spine. `name` is its member's name below the package file."""

    name: str
    content: bytes
    linear: bool = True
    media_type: str = "application/xhtml+xml"
    properties: str = ""
    in_spine: bool = True


@dataclass(frozen=True, kw_only=True)
class Epub:
    """What an EPUB is made of; `members` are further ones of the archive, `manifest` further lines of the manifest.

    `nav` and `ncx` are (label, reference, depth) in the order of the contents.
    """

    chapters: Sequence[Chapter]
    nav: Sequence[tuple[str, str, int]] | None = None
    ncx: Sequence[tuple[str, str, int]] | None = None
    folder: str = "OEBPS/"
    metadata: str = "<dc:title>Alice</dc:title><dc:language>en</dc:language>"
    manifest: str = ""
    guide: str = ""
    landmarks: str = ""
    version: str = "3.0"
    members: Mapping[str, bytes] = field(default_factory=dict)
    mimetype: bytes | None = b"application/epub+zip"
    container: str | None = CONTAINER
    package: str | None = None

    def parts(self) -> dict[str, bytes]:
        """The members, in the order in which they are written."""
        parts: dict[str, bytes] = {}
        if self.mimetype is not None:
            parts["mimetype"] = self.mimetype
        if self.container is not None:
            parts["META-INF/container.xml"] = self.container.format(path=f"{self.folder}package.opf").encode("utf-8")
        parts[f"{self.folder}package.opf"] = (self.package or self._package()).encode("utf-8")
        if self.nav is not None:
            parts[f"{self.folder}nav.xhtml"] = self._nav()
        if self.ncx is not None:
            parts[f"{self.folder}toc.ncx"] = self._ncx()
        for chapter in self.chapters:
            parts[f"{self.folder}{chapter.name}"] = chapter.content
        return {**parts, **self.members}

    def raw(self, **options: bool) -> bytes:
        """The archive."""
        return zip_of(self.parts(), **options)

    def _package(self) -> str:
        items = "".join(
            f'<item id="c{n}" href="{escape(quote(c.name))}" media-type="{c.media_type}" properties="{c.properties}"/>'
            for n, c in enumerate(self.chapters)
        )
        refs = "".join(
            f'<itemref idref="c{n}" linear="{"yes" if c.linear else "no"}"/>'
            for n, c in enumerate(self.chapters)
            if c.in_spine
        )
        if self.nav is not None:
            items += '<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>'
        if self.ncx is not None:
            items += '<item id="ncx" href="toc.ncx" media-type="application/x-dtbncx+xml"/>'
        toc = ' toc="ncx"' if self.ncx is not None else ""
        return f"""<?xml version="1.0"?>
<package xmlns="http://www.idpf.org/2007/opf" version="{self.version}" unique-identifier="uid">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:opf="http://www.idpf.org/2007/opf">{self.metadata}</metadata>
<manifest>{items}{self.manifest}</manifest><spine{toc}>{refs}</spine>{self.guide}</package>"""

    def _nav(self) -> bytes:
        html, depth = "", -1
        for label, reference, level in self.nav or ():
            html += "<ol>" * max(0, level - depth) if level > depth else "</li></ol>" * (depth - level) + "</li>"
            html += f'<li><a href="{escape(reference)}">{escape(label)}</a>'
            depth = level
        html += "</li></ol>" * (depth + 1)
        return xhtml(f'<nav epub:type="toc"><h1>Contents</h1>{html}</nav>{self.landmarks}')

    def _ncx(self) -> bytes:
        xml, depth = "", -1
        for number, (label, reference, level) in enumerate(self.ncx or ()):
            xml += "</navPoint>" * (depth - level + 1)
            xml += f'<navPoint id="n{number}" playOrder="{number}"><navLabel><text>{escape(label)}</text></navLabel>'
            xml += f'<content src="{escape(reference)}"/>'
            depth = level
        xml += "</navPoint>" * (depth + 1)
        return f"""<?xml version="1.0"?>
<!DOCTYPE ncx PUBLIC "-//NISO//DTD ncx 2005-1//EN" "http://www.daisy.org/z3986/2005/ncx-2005-1.dtd">
<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/" version="2005-1"><head/><docTitle><text>Alice</text></docTitle>
<navMap>{xml}</navMap><pageList><pageTarget><navLabel><text>1</text></navLabel><content src="c0.xhtml"/></pageTarget>
</pageList></ncx>""".encode()


def chapter(number: int, body: str | None = None, **fields: object) -> Chapter:
    """Page `number`, whose text is `Text <number>.` unless it has a body of its own."""
    content = xhtml(f"<p>Text {number}.</p>" if body is None else body)
    return Chapter(name=f"c{number}.xhtml", content=content, **fields)  # type: ignore[arg-type]  # fields of Chapter


PATH = Path("/books/alice.epub")


def read(book: Epub | bytes) -> Document:
    raw = book if isinstance(book, bytes) else book.raw()
    document = read_book(raw, path=PATH)
    check_document(document, raw)
    return document


def boundaries(raw: bytes) -> tuple[int, ...]:
    """Where the parts of an archive begin and end, and the data of its members."""
    layout = read_layout(raw, "archive")
    edges = {edge for extent in layout.extents for edge in (extent.start, extent.stop)}
    return tuple(sorted(edges | {member.data_start for member in layout.members}))


def texts(document: Document) -> list[tuple[str, str | None, str]]:
    """Kind, title and text of every segment with text."""
    return [
        (segment.kind, segment.title, document.segment_text(segment).decode().rstrip("\n"))
        for segment in document.segments
        if segment.reason is None
    ]


def reasons(document: Document) -> dict[str, str]:
    return {segment.display_path: segment.reason for segment in document.segments if segment.reason and segment.path}


def fault(raw: bytes) -> DocumentError:
    with pytest.raises(DocumentError) as refused:
        read_book(raw, path=PATH)
    assert refused.value.stage == "read"
    assert str(refused.value).startswith("/books/alice.epub")
    return refused.value


EPUB3 = """<dc:identifier id="isbn">urn:isbn:1</dc:identifier><dc:identifier id="uid">urn:uuid:2</dc:identifier>
<dc:title id="sub">A Tale</dc:title><dc:title id="main">  Alice
 in Wonderland </dc:title><meta refines="#main" property="title-type">main</meta>
<dc:creator id="a1">Lewis Carroll</dc:creator><meta refines="#a1" property="role" scheme="marc:relators">aut</meta>
<meta refines="#a1" property="file-as">Carroll, Lewis</meta>
<dc:creator id="i1">John Tenniel</dc:creator><meta refines="#i1" property="role">ill</meta>
<dc:creator>Second Author</dc:creator><dc:contributor>Nobody</dc:contributor>
<dc:language>en-GB</dc:language><dc:language>fr</dc:language><dc:publisher>Macmillan</dc:publisher>
<dc:date>1865-11-26</dc:date><meta property="dcterms:modified">2020-01-01T00:00:00Z</meta>"""
EPUB2 = """<dc:identifier id="uid" opf:scheme="UUID">urn:uuid:2</dc:identifier><dc:identifier>urn:isbn:1</dc:identifier>
<dc:title>Alice in Wonderland</dc:title><dc:creator opf:role="ill">John Tenniel</dc:creator>
<dc:creator opf:role="aut" opf:file-as="Carroll, Lewis">Lewis Carroll</dc:creator><dc:creator>Second Author</dc:creator>
<dc:language>en-GB</dc:language><dc:publisher>Macmillan</dc:publisher>
<dc:date opf:event="modification">2020</dc:date><dc:date opf:event="publication">1865-11-26</dc:date>"""


def encryption(algorithm: str, uri: str) -> bytes:
    return f"""<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container"
    xmlns:enc="http://www.w3.org/2001/04/xmlenc#"><enc:EncryptedData><enc:EncryptionMethod Algorithm="{algorithm}"/>
    <enc:CipherData><enc:CipherReference URI="{uri}"/></enc:CipherData></enc:EncryptedData></encryption>""".encode()
