"""Which format a file is in: its content decides, its name comes second, and what is no book is told apart."""

import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from book_checks import check_document, check_fault
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.books import BookRef, list_book, read_book
from connectors.folder import open_book
from connectors.formats import FORMATS, extensions, format_of_name, is_recognised, recognise
from longdoc.errors import DocumentError, SourceError


def archive_of(*names: str) -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return file.getvalue()


def refused(raw: bytes, name: str) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        read_book(raw, path=Path(name))
    check_fault(caught.value)
    assert name in str(caught.value)
    return caught.value


def test_every_extension_belongs_to_one_format() -> None:
    assert len(set(extensions())) == len(extensions())
    assert all(extension == extension.lower() and extension.startswith(".") for extension in extensions())


def test_every_format_has_a_reader_and_a_version() -> None:
    for format_ in FORMATS.values():
        with pytest.raises(DocumentError):
            format_.read(b"", path=Path("empty"))
        assert format_.connector_version.startswith(format_.version)


@pytest.mark.parametrize(
    ("name", "key"),
    [("a.TXT", "text"), ("a.md", "text"), ("a.HTM", "html"), ("a.txt.gz", "gzip"), ("a.html.GZ", "gzip"),
     ("a.tar.gz", ""), ("txt", ""), ("a.txt.bak", "")],
)  # fmt: skip
def test_names_promise_formats(name: str, key: str) -> None:
    assert format_of_name(name) is (FORMATS[key] if key else None)


@pytest.mark.parametrize(
    "raw",
    [
        b"<!DOCTYPE html><p>Words",
        b"\xef\xbb\xbf \n<!-- c --> <?x?> <!doctype HTML public ''><p>Words",
        b"<html><p>Words",
        b"<HTML lang=en><p>Words",
        '<?xml version="1.0" encoding="utf-16"?>\n<html><p>Words</p></html>'.encode("utf-16"),
    ],
)
def test_a_page_under_another_name_is_read_as_one_with_a_warning(raw: bytes) -> None:
    for name in ("book.txt", "book.md"):
        document = read_book(raw, path=Path(name))
        check_document(document, raw)
        assert document.text == b"Words"
        assert document.warnings == (f"The name {name} promises plain text, but its content is HTML: read as that.",)
    for name in ("book.html", "book.htm", "book"):
        assert read_book(raw, path=Path(name)).warnings == ()


@pytest.mark.parametrize(
    "text", ["<div>Markdown</div>\n", "<htmlish>\n", "A page begins with <html>.\n", "%PDF is a mark"]
)
def test_text_that_only_looks_like_markup_stays_text(text: str) -> None:
    document = read_book(text.encode(), path=Path("book.md"))
    assert (document.text.decode(), document.warnings) == (text, ())


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n0000", "a PNG picture"),
        (b"\xff\xd8\xff\xe0", "a JPEG picture"),
        (b"{\\rtf1 x}", "a Rich Text Format file"),
        (b"Rar!\x1a\x07\x00", "a RAR archive"),
        (b"\0" * 60 + b"BOOKMOBI", "a Kindle book (MOBI)"),
        (archive_of("a.png", "b.png"), "a ZIP archive of 2 members, none of which makes it a book"),
    ],
)
@pytest.mark.parametrize("name", ["book.txt", "book.xyz"])
def test_what_is_no_book_is_named(raw: bytes, kind: str, name: str) -> None:
    error = refused(raw, name)
    assert error.reason == "unknown_format"
    assert str(error).startswith(f"{name} is {kind}, which cannot be read as a book. Convert it to one of .txt, ")


def test_office_documents_with_a_password_and_old_ones_differ() -> None:
    compound = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 500
    error = refused(compound + "EncryptedPackage".encode("utf-16-le"), "a.docx")
    assert (error.reason, error.needs) == ("encrypted", "a copy without a password")
    error = refused(compound, "a.doc")
    assert error.reason == "unknown_format"
    assert "Save it as .docx." in str(error)


def test_a_broken_archive_that_no_name_explains_is_damaged() -> None:
    assert refused(archive_of("META-INF/container.xml")[:-30], "a.txt").reason == "damaged"


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html", "a.xhtml", "a.txt.gz"])
def test_an_empty_file_has_its_reason(name: str) -> None:
    assert refused(b"", name).reason == "empty"


def test_a_reference_carries_the_version_of_its_reader(tmp_path: Path) -> None:
    versions = {}
    for name, content in (
        ("a.txt", "x"),
        ("b.txt", "<html>x"),
        ("c.html", "x"),
        ("d.txt.gz", "x"),
        ("e.txt", "{\\rtf"),
    ):
        (tmp_path / name).write_text(content)
        ref = list_book(tmp_path / name)
        assert isinstance(ref, BookRef)
        versions[name[0]] = ref.connector_version
    assert versions["a"].startswith("text-2+charset-normalizer-")
    assert versions["b"] == versions["c"]
    assert versions["c"].startswith("html-1+charset-normalizer-")
    assert set(versions["c"].split("+")) < set(versions["d"].split("+"))
    assert versions["e"] == "none-1"
    for format_ in FORMATS.values():
        assert set(format_.connector_version.split("+")) <= set(FORMATS["gzip"].connector_version.split("+"))


def test_a_file_is_opened_for_its_content_where_its_name_says_nothing(tmp_path: Path) -> None:
    for name, content in (("page", b"<html>x"), ("picture", b"\x89PNG\r\n\x1a\n"), ("words", b"x")):
        (tmp_path / name).write_bytes(content)
    assert len(list(open_book(tmp_path / "page").documents())) == 1
    for name in ("picture", "words"):
        with pytest.raises(SourceError, match="cannot read a file without extension yet"):
            open_book(tmp_path / name)


HEADS = st.sampled_from(
    [b"PK\x03\x04", b"PK\x05\x06" + b"\0" * 18, b"\x1f\x8b\x08", b"%PDF-1.7", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
     b"<!DOCTYPE", b"<?xml ", b"<html>", b"\xff\xfe<\0h\0", b"{\\rtf", b"", archive_of("word/document.xml"),
     archive_of("x.fb2")]
)  # fmt: skip


@settings(max_examples=200)
@given(head=HEADS, rest=st.binary(max_size=60), name=st.sampled_from(["a", "a.txt", "a.html", "a.epub", "a.gz"]))
def test_any_bytes_are_recognised_or_refused(head: bytes, rest: bytes, name: str) -> None:
    file = BytesIO(head + rest)
    assert is_recognised(file, name) in (True, False)
    try:
        assert recognise(file, name).format in FORMATS.values()
    except DocumentError as error:
        check_fault(error)


def test_a_prologue_of_any_length_takes_linear_time() -> None:
    for piece in (b"<!-- ", b"<?x ", b" ", b"<!-- -->", b"<"):
        assert not is_recognised(BytesIO(piece * 500_000), "a")
