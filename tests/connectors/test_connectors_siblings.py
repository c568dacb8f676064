"""What once went wrong in one format is looked for in all of them: the same content, wrapped in each."""

import gzip
import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from book_checks import read_or_refuse, texts
from epub_books import Chapter, Epub, chapter, reasons, xhtml
from every_format import BOOKS, fb2, read, refused
from small_docx import members, p, part, write
from small_pdf import SmallPdf, one_page
from zip_files import Record, handmade, zip_of

from connectors.books import read_book
from connectors.folder import open_folder
from connectors.stdin import open_stdin
from longdoc.errors import DocumentError

in_every_format = pytest.mark.parametrize("name", BOOKS)


# --- Characters


@in_every_format
@pytest.mark.parametrize("shift", [0, 1, 2])
def test_characters_across_the_edge_of_any_block_stay_whole(name: str, shift: int) -> None:
    # Three bytes each, so that each block of a power of two bytes ends inside one for two shifts of three.
    text = "x" * shift + "€" * 30_000
    assert read(BOOKS[name](text), name).text.decode() == text


@pytest.mark.parametrize("shift", [0, 1, 2])
def test_characters_across_the_pieces_of_standard_input_stay_whole(shift: int) -> None:
    text = "x" * shift + "€" * 400_000  # pieces are of 1 MiB
    source = open_stdin(io.BytesIO(text.encode()))
    (ref,) = source.documents()
    assert ref.read().text.decode() == text


@in_every_format
def test_text_that_looks_like_what_sets_others_apart_is_text(name: str) -> None:
    # Soft hyphens, ligatures and characters of private use are characters like others, where they are text already.
    text = (
        "Repository: r File: a.txt <|endoftext|> ]]> -- *** END OF CHAPTER I \ufeff co\u00adop \ufb03 \ue001 \ufffd x-"
    )
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


# --- Files


def test_ignore_rules_hide_no_book_of_a_folder(tmp_path: Path) -> None:
    for name in (".gitignore", ".ignore", ".git-blame-ignore-revs"):
        (tmp_path / name).write_text("*\n")
    for name in ("b.txt", "a.md", "sub/c.html"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("<html>words")
    found = [ref.source_uri for ref in open_folder(tmp_path).documents()]
    assert found == [(tmp_path / name).as_uri() for name in ("a.md", "b.txt", "sub/c.html")]


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


def test_rare_members_have_the_reasons_that_the_page_lists() -> None:
    parts = Epub(chapters=[chapter(0)], members={"OEBPS/m.mp4": b"m", "OEBPS/l.pls": b"<x/>"}).parts()
    records = [Record(name=name.encode(), content=content) for name, content in parts.items()]
    records += [Record(name=b"OEBPS/d/"), Record(name=b"OEBPS/c0.xhtml", content=parts["OEBPS/c0.xhtml"])]
    records += [Record(name=b"../out.xhtml", content=b"x"), Record(name=b"OEBPS/p.xhtml", content=b"x", method=14)]
    document = read(handmade(records), "a.epub")
    assert document.text == b"Text 0."
    found = reasons(document)
    assert found["OEBPS/c0.xhtml"] == "duplicate"
    assert {name: found[name] for name in ("OEBPS/m.mp4", "OEBPS/l.pls", "OEBPS/d/", "../out.xhtml")} == {
        "OEBPS/m.mp4": "video", "OEBPS/l.pls": "pronunciation", "OEBPS/d/": "directory", "../out.xhtml": "unsafe_name",
    }  # fmt: skip
    glossary = part("w:glossaryDocument", p("block"))
    docx = read(write(members(p("a"), more={"word/glossary/document.xml": glossary})), "a.docx")
    assert (docx.text, reasons(docx)["word/glossary/document.xml"]) == (b"a", "glossary")


def test_a_member_of_the_spine_that_no_program_packs_so_is_left_out_with_its_reason() -> None:
    parts = Epub(chapters=[chapter(0), chapter(1)]).parts()
    records = [
        Record(name=name.encode(), content=content, method=14 if name.endswith("c1.xhtml") else 8)
        for name, content in parts.items()
    ]
    document = read(handmade(records), "a.epub")
    assert (document.text, reasons(document)["OEBPS/c1.xhtml"]) == (b"Text 0.", "unsupported_compression")


def test_what_a_page_holds_beside_its_text_has_its_reason() -> None:
    beside = (
        "<math><semantics><mi>x</mi><annotation>source</annotation></semantics></math>"
        "<datalist><option>suggested</option></datalist><iframe>instead</iframe>"
    )
    for raw, name in ((f"<!DOCTYPE html><body>{beside}".encode(), "a.html"), (xhtml(beside), "a.xhtml"),
                      (Epub(chapters=[chapter(0, beside)]).raw(), "a.epub")):  # fmt: skip
        document = read(raw, name)
        assert document.text == b"x"
        unread = {entry.reason: entry.num_bytes for entry in document.ledger if entry.kind == "unread"}
        wanted = {"annotation": len("source"), "form": len("suggested"), "embedded": len("instead")}
        assert {reason: unread[reason] for reason in wanted} == wanted


def test_pdfs_that_are_read_at_once_keep_their_texts() -> None:
    files = [one_page(*(f"book {number} line {line}" for line in range(40))) for number in range(4)]
    with ThreadPoolExecutor(4) as threads:
        documents = list(threads.map(lambda raw: read_book(raw, path=Path("a.pdf")), files))
    for number, document in enumerate(documents):
        assert document.text.decode() == "\n".join(f"book {number} line {line}" for line in range(40))
