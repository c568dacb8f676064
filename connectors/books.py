"""Book files as documents: found, hashed, and read by whoever reads their format.

Owns the reference to a file on disk and what can go wrong before a reader sees its bytes: no access, a change since it
was listed, an empty file. Knows no format; `connectors.formats` does.
"""

import hashlib
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from connectors.faults import read_whole, unreadable_message
from connectors.formats import recognise
from longdoc.errors import DocumentError
from longdoc.files import sha256_file
from longdoc.records import Document, DocumentKind, Unreadable, display

# The connector version of a file that no reader takes; reading it says why.
_NO_READER = "none-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookRef:
    """One book file, found and hashed but not read. `version` is the SHA-256 of its bytes."""

    path: str
    doc_id: str
    version: str
    connector_version: str
    num_bytes_source: int
    kind: DocumentKind = "book"

    @property
    def source_uri(self) -> str:
        """The file's absolute path as a URI."""
        return self.doc_id

    def read(self) -> Document:
        """The book. Raises `DocumentError`: `empty`, `changed` since it was listed, `unreadable`, or its reader's own.

        Raises `InfrastructureError` where the machine is at fault.
        """
        raw = read_whole(self.path)
        if hashlib.sha256(raw).hexdigest() != self.version:
            message = f"{display(self.path)} changed between listing and reading. Run again when nothing writes to it."
            raise DocumentError(message, stage="read", reason="changed")
        return read_book(raw, path=Path(self.path))


def list_book(path: Path) -> BookRef | Unreadable:
    """One file as a document to be read later. A file without read access is `Unreadable`.

    Raises `InfrastructureError` where the machine is at fault.
    """
    path = path.resolve()
    uri = path.as_uri()
    try:
        with path.open("rb") as file:
            connector_version = connector_version_of(file, str(path))
        return BookRef(
            path=str(path),
            doc_id=uri,
            version=sha256_file(path),
            connector_version=connector_version,
            num_bytes_source=path.stat().st_size,
        )
    except OSError as error:
        message = unreadable_message(str(path), error)
        return Unreadable(doc_id=uri, kind="book", source_uri=uri, stage="read", reason="unreadable", error=message)


def connector_version_of(file: BinaryIO, name: str) -> str:
    """The connector version of a file that can be sought, whose `name` promises a format. Raises `OSError`."""
    try:
        return recognise(file, name).format.connector_version
    except DocumentError:
        return _NO_READER


def read_book(raw: bytes, *, path: Path) -> Document:
    """The bytes of a book as a document; `path` gives its address, what its name promises and a title of last resort.

    Raises `DocumentError` where the file is at fault.
    """
    if not raw:
        message = f"{display(str(path))} is empty: it holds no character of text. Leave it out, or fill it."
        raise DocumentError(message, stage="read", reason="empty")
    found = recognise(BytesIO(raw), str(path))
    document = found.format.read(raw, path=path)
    return replace(document, warnings=(*found.warnings, *document.warnings)) if found.warnings else document
