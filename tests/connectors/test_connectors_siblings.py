"""What once went wrong in one format is looked for in all of them: the same content, wrapped in each."""

import gzip
import io
import zipfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from book_checks import check_document, read_or_refuse, texts
from epub_books import BOMB, Chapter, Epub, chapter, reasons, xhtml
from small_docx import members, p, part, relationships, write
from small_pdf import SmallPdf, lines, one_page
from zip_files import zip_of

from connectors.books import read_book
from connectors.stdin import open_stdin
from longdoc.errors import DocumentError
from longdoc.records import Document

_FB2 = (
    '<?xml version="1.0" encoding="{encoding}"?>{doctype}<FictionBook xmlns:l="http://www.w3.org/1999/xlink" '
    'xmlns="http://www.gribuser.ru/xml/fictionbook/2.0"><body><section>{body}</section></body>{more}</FictionBook>'
)


def fb2(body: str, *, doctype: str = "", more: str = "", encoding: str = "utf-8") -> str:
    return _FB2.format(body=body, doctype=doctype, more=more, encoding=encoding)


# By the name of a file: a book whose text is one paragraph of characters that need no escape.
BOOKS: dict[str, Callable[[str], bytes]] = {
    "a.txt": str.encode,
    "a.md": str.encode,
    "a.html": lambda text: f"<!DOCTYPE html><title>T</title><p>{text}".encode(),
    "a.xhtml": lambda text: xhtml(f"<p>{text}</p>"),
    "a.epub": lambda text: Epub(chapters=[chapter(0, f"<p>{text}</p>")]).raw(),
    "a.fb2": lambda text: fb2(f"<p>{text}</p>").encode(),
    "a.fb2.zip": lambda text: zip_of({"a.fb2": fb2(f"<p>{text}</p>").encode()}),
    "a.docx": lambda text: write(members(p(text))),
    "a.txt.gz": lambda text: gzip.compress(text.encode(), 1),
    "a.html.gz": lambda text: gzip.compress(f"<!DOCTYPE html><p>{text}".encode(), 1),
}
in_every_format = pytest.mark.parametrize("name", BOOKS)


def read(raw: bytes, name: str) -> Document:
    document = read_book(raw, path=Path(name))
    check_document(document, raw)
    return document


def refused(raw: bytes, name: str) -> DocumentError:
    outcome = read_or_refuse(raw, name)
    assert isinstance(outcome, DocumentError)
    return outcome


# --- Characters


@in_every_format
@pytest.mark.parametrize("shift", [0, 1, 2])
def test_characters_across_the_edge_of_any_block_stay_whole(name: str, shift: int) -> None:
    # Three bytes each, so that each block of a power of two bytes ends inside one for two shifts of three.
    text = "x" * shift + "€" * 30_000
    assert read(BOOKS[name](text), name).text.decode() == text


def test_characters_across_the_pieces_of_standard_input_stay_whole() -> None:
    text = "x" + "€" * 400_000  # pieces are of 1 MiB
    source = open_stdin(io.BytesIO(text.encode()))
    (ref,) = source.documents()
    assert ref.read().text.decode() == text


@in_every_format
def test_text_that_looks_like_what_sets_others_apart_is_text(name: str) -> None:
    text = "Repository: r File: a.txt <|endoftext|> ]]> -- *** END OF CHAPTER I \ufeff"
    raw = BOOKS[name](
        text if name.endswith((".txt", ".md", ".txt.gz")) else text.replace("<", "&lt;").replace(">", "&gt;")
    )
    if name == "a.docx":
        raw = BOOKS[name](text)
    document = read(raw, name)
    assert document.text.decode() == text
    assert len([segment for segment in document.segments if segment.num_lines]) == 1


@in_every_format
def test_half_a_surrogate_pair_never_becomes_text(name: str) -> None:
    wide = BOOKS["a.html"]("ab").decode().encode("utf-16") + b"\x00\xd8"
    for raw in (BOOKS[name]("a&#xD800;b"), b"a\xed\xa0\x80b", wide):
        outcome = read_or_refuse(raw, name)
        assert isinstance(outcome, DocumentError) or "\ud800" not in outcome.text.decode("utf-8")


@pytest.mark.parametrize("name", ["a.xhtml", "a.fb2", "a.epub", "a.docx"])
@pytest.mark.parametrize(
    ("codec", "declared"),
    [
        ("utf-16", "windows-1251"),  # the mark says it, whatever is declared
        ("utf-8-sig", "windows-1251"),
        ("utf-8", "windows-1251"),  # strict UTF-8 comes before a declaration
        ("koi8-r", "koi8-r"),
    ],
)
def test_mark_then_utf8_then_what_is_declared(name: str, codec: str, declared: str) -> None:
    pages = {
        "a.xhtml": xhtml("<p>Привет</p>").decode(),
        "a.fb2": fb2("<p>Привет</p>"),
        "a.epub": xhtml("<p>Привет</p>").decode(),
        "a.docx": members(p("Привет"))["word/document.xml"].decode(),
    }
    page = pages[name].replace('encoding="utf-8"', f'encoding="{declared}"').replace("UTF-8", declared).encode(codec)
    if name == "a.epub":
        raw = Epub(chapters=[Chapter(name="c.xhtml", content=page)]).raw()
    elif name == "a.docx":
        raw = write(members() | {"word/document.xml": page})
    else:
        raw = page
    document = read(raw, name)
    assert document.text.decode() == "Привет"
    assert {"utf-8-sig", "utf-8", "utf-16", "koi8-r"} & {entry.encoding for entry in document.ledger} == {codec}


# --- Size


LONG = ("x" * 4_095 + " ") * 2_600 + "end"  # libxml2 stops at 10,000,000 bytes of one node unless it is told not to


@pytest.mark.parametrize("name", ["a.epub", "a.fb2.zip", "a.docx", "a.txt.gz", "a.md"])
def test_a_paragraph_of_any_length_is_whole(name: str) -> None:
    assert len(LONG) > 10_000_000
    assert read_book(BOOKS[name](LONG), path=Path(name)).text.decode() == LONG


@pytest.mark.parametrize("num_bytes", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_gzip_that_is_packed_tightly_is_whole(num_bytes: int) -> None:
    # More than a mebibyte from one piece of the file: zlib then hands the content out in several turns.
    content = b"word " * (num_bytes // 5) + b"x" * (num_bytes % 5)
    for raw in (gzip.compress(content), gzip.compress(content) + gzip.compress(b"end") + b"junk"):
        document = read(raw, "a.txt.gz")
        assert document.text in (content, content + b"end")
        assert (document.segments[-1].reason == "trailing_bytes") == raw.endswith(b"junk")


# --- Every kind of text, by one walk


@pytest.mark.parametrize(
    "body",
    [
        "<ul><li>a</li><li>b<ol><li>c</li></ol></li></ul><dl><dt>d</dt><dd>e</dd></dl>",
        "<table><caption>C</caption><tbody><tr><th>a</th><td>b</td></tr><tr><td>c</td><td>d</td></tr></tbody></table>",
        '<figure><img src="i.png" alt="A"/><figcaption>F</figcaption></figure><blockquote><p>q</p></blockquote>',
        "<p><ruby><rb>漢</rb><rb>字</rb><rt>かん</rt><rt>じ</rt><rtc><rt>kanji</rt></rtc></ruby>の</p>",
        '<p>a<a epub:type="noteref" href="#n">1</a></p><aside epub:type="footnote" id="n"><p>N</p></aside>',
    ],
)
def test_a_page_has_the_same_text_alone_and_in_a_book(body: str) -> None:
    alone = texts(read(xhtml(body), "a.xhtml"))
    assert texts(read(f"<!DOCTYPE html><title>T</title><body>{body}".encode(), "a.html")) == alone
    assert texts(read(gzip.compress(xhtml(body)), "a.xhtml.gz")) == alone
    assert texts(read(Epub(chapters=[chapter(0, body)]).raw(), "a.epub")) == alone
    assert len(alone) > 1 or "\n" in alone[0][1]


def test_readings_of_every_form_stay_out_of_the_flow() -> None:
    body = "<p><ruby><rb>漢</rb><rb>字</rb><rt>かん</rt><rt>じ</rt><rtc><rt>kanji</rt></rtc></ruby>の</p>"
    assert texts(read(xhtml(body), "a.xhtml")) == [("text", "漢字の\n\n"), ("ruby", "かん\nじ\nkanji")]


def test_contents_and_links_in_other_folders_are_resolved_against_their_own_files() -> None:
    package = """<package><metadata/><manifest>
    <item id="c" href="text/c.xhtml" media-type="application/xhtml+xml"/>
    <item id="nav" href="toc/{0}" media-type="{1}" properties="nav"/></manifest>
    <spine toc="nav"><itemref idref="c"/></spine></package>"""
    links = '<p id="p">Text <a epub:type="noteref" href="../more/n.xhtml#n">1</a></p>'
    pages = {
        "OEBPS/text/c.xhtml": xhtml(links),
        "OEBPS/more/n.xhtml": xhtml('<p id="n">Note</p><p><a href="../text/c.xhtml#p">back</a></p>'),
        "OEBPS/toc/nav.xhtml": xhtml('<nav epub:type="toc"><ol><li><a href="../text/c.xhtml">One</a></li></ol></nav>'),
        "OEBPS/toc/toc.ncx": b'<ncx><navMap><navPoint><navLabel><text>One</text></navLabel>'
        b'<content src="../text/c.xhtml"/></navPoint></navMap></ncx>',
    }  # fmt: skip
    for name, media_type in (("nav.xhtml", "application/xhtml+xml"), ("toc.ncx", "application/x-dtbncx+xml")):
        book = Epub(chapters=[], package=package.format(name, media_type), members=pages)
        found = [(s.kind, s.title) for s in read(book.raw(), "a.epub").segments if s.num_lines]
        assert found == [("chapter", "One"), ("note", None), ("auxiliary", None)]


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.txt.gz", "a.docx"])
def test_gutenbergs_own_text_is_labelled_and_kept(name: str) -> None:
    blocks = ["Legal", "*** START OF THE PROJECT GUTENBERG EBOOK SEA ***", "Words.",
              "*** END OF THE PROJECT GUTENBERG EBOOK SEA ***", "Licence."]  # fmt: skip
    text = "\n\n".join(blocks)
    raw = write(members(*map(p, blocks))) if name == "a.docx" else BOOKS[name](text)
    document = read(raw, name)
    assert document.text.decode() == text
    labelled = [(s.kind, document.segment_text(s).decode().split()[0]) for s in document.segments if s.num_lines]
    assert labelled == [("boilerplate", "Legal"), ("text", "Words."), ("boilerplate", "***")]


# --- What is no text


def test_pictures_only_are_no_text_layer_in_every_format_that_holds_pictures() -> None:
    picture = '<binary id="c.png" content-type="image/png">iVBORw0KGgo=</binary>'
    book = fb2('<image l:href="#c.png"/>', more=picture).encode()
    pdf = SmallPdf()
    pdf.page(b"10 10 200 300 re f")
    files = {
        "a.epub": Epub(chapters=[chapter(0, '<img src="a.jpg"/>')], members={"OEBPS/a.jpg": b"x"}).raw(),
        "a.fb2": book,
        "a.fb2.zip": zip_of({"a.fb2": book}),
        "a.fb2.gz": gzip.compress(book),
        "a.docx": write(members(p(), more={"word/media/i.png": b"\x89PNG"})),
        "a.pdf": pdf.write(),
    }
    assert {name: refused(raw, name).reason for name, raw in files.items()} == dict.fromkeys(files, "no_text_layer")
    assert refused(fb2("").encode(), "a.fb2").reason == "empty"


@pytest.mark.parametrize("name", [*BOOKS, "a.pdf", "a"])
def test_a_pointer_of_git_lfs_is_no_book(name: str) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d" * 32 + b"\nsize 12345\n"
    error = refused(pointer, name)
    assert error.reason == "lfs_pointer"
    assert str(error) == (
        f"{name} is a Git LFS pointer to 12,345 bytes that are not here. "
        "Run `git lfs pull` in its repository, or leave it out."
    )
    assert not isinstance(read_or_refuse(pointer + b"and more\n", "a.txt"), DocumentError)


@pytest.mark.parametrize("name", ["a.txt.gz", "a.html.gz", "a.fb2.gz"])
def test_what_is_no_gzip_file_is_not_called_an_empty_one(name: str) -> None:
    error = refused(b"Words that a browser has expanded already.", name)
    assert error.reason == "damaged"
    assert "it does not begin like one; if it was expanded already, name it without .gz" in str(error)


def test_headers_that_no_section_shows_have_their_reason_whatever_they_are_called() -> None:
    files = members(p("a"), more={"word/x.xml": part("w:ftr", p("never shown"))}, related={"f": ("footer", "x.xml")})
    assert reasons(read(write(files), "a.docx"))["word/x.xml"] == "not_referenced"


# --- What reaches out, and what grows


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


def test_pdfs_that_are_read_at_once_keep_their_texts() -> None:
    files = [one_page(*(f"book {number} line {line}" for line in range(40))) for number in range(4)]
    with ThreadPoolExecutor(4) as threads:
        documents = list(threads.map(lambda raw: read_book(raw, path=Path("a.pdf")), files))
    for number, document in enumerate(documents):
        assert document.text.decode() == "\n".join(f"book {number} line {line}" for line in range(40))
