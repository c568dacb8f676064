"""Reads DOCX books of known make, and holds each to what every book is held to."""

from pathlib import Path

import pytest
from book_checks import check_document, check_fault
from small_docx import members, write

from connectors.books import read_book
from longdoc.errors import DocumentError
from longdoc.records import Document

REFERENCE = '<w:r><w:{}Reference w:id="{}"/></w:r>'


def book(files: dict[str, bytes] | bytes, name: str = "book.docx") -> Document:
    raw = files if isinstance(files, bytes) else write(files)
    document = read_book(raw, path=Path(name))
    check_document(document, raw)
    return document


def text(*body: str, **parts: object) -> str:
    """The text of a document with this body."""
    return book(members(*body, **parts)).text.decode()  # type: ignore[arg-type]  # passed on


def refused(raw: bytes, name: str = "book.docx") -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        read_book(raw, path=Path(name))
    check_fault(caught.value)
    assert name in str(caught.value)
    return caught.value


def unread(document: Document, path: bytes = b"word/document.xml") -> dict[str, int]:
    """Bytes of one part that are unread, by reason."""
    data = next(e.entry_index for e in document.ledger if e.kind == "data" and e.path == path)
    return {e.reason: e.num_bytes for e in document.ledger if e.parent == data and e.reason}
