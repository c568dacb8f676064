"""One paragraph as a book of every format that is not drawn page by page, for what must hold in all of them."""

import gzip
from collections.abc import Callable
from pathlib import Path

from book_checks import check_document, read_or_refuse
from epub_books import Epub, chapter, xhtml
from small_docx import members, p, write
from zip_files import zip_of

from connectors.books import read_book
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


def read(raw: bytes, name: str) -> Document:
    document = read_book(raw, path=Path(name))
    check_document(document, raw)
    return document


def refused(raw: bytes, name: str) -> DocumentError:
    outcome = read_or_refuse(raw, name)
    assert isinstance(outcome, DocumentError)
    return outcome
