"""A book from standard input, in any format that its content tells.

Owns the copy: standard input can be read once and only here, while a document may be read later, again, and in another
process. The copy is a temporary file that goes when the source goes, and is bounded. Such a book has no address, so its
content names it: the same bytes are the same document. Refuses a terminal, and input that is not there.
"""

import contextlib
import errno
import hashlib
import os
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from connectors.books import connector_version_of, read_book
from connectors.faults import read_whole
from longdoc.errors import InfrastructureError, SourceError
from longdoc.records import Document, DocumentKind

#: The argument that means standard input.
STDIN = "-"
#: The longest book that is taken, in bytes.
MOST_BYTES = 1 << 30
_NAME = Path("stdin")
_CHUNK = 1 << 20
# Of the SHA-256 in the address: two books on the same 64 bits would still have two versions.
_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class StdinRef:
    """The book that came from standard input, copied to `path`. `version` is the SHA-256 of its bytes."""

    path: str
    version: str
    connector_version: str
    num_bytes_source: int
    kind: DocumentKind = "book"

    @property
    def doc_id(self) -> str:
        """`stdin:` and the beginning of the digest."""
        return f"stdin:{self.version[:_DIGITS]}"

    @property
    def source_uri(self) -> str:
        """The same."""
        return self.doc_id

    def read(self) -> Document:
        """The book. Raises `DocumentError`: `empty`, `unreadable`, or its reader's own."""
        return replace(read_book(read_whole(self.path), path=_NAME), source_uri=self.source_uri)


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class StdinSource:
    """Standard input as a source of one book. The copy is deleted when this is, or when the process ends."""

    ref: StdinRef

    @property
    def source_uri(self) -> str:
        """The address of its one book."""
        return self.ref.source_uri

    def documents(self) -> Iterator[StdinRef]:
        """The one book."""
        yield self.ref


def open_stdin(stream: BinaryIO | None) -> StdinSource:
    """Copy a stream to its end. Raises `SourceError` for a terminal, for none, and for more than `MOST_BYTES`."""
    if stream is None:
        raise SourceError("- is standard input, and there is none. Name a file, or pipe a book into longdoc.")
    if stream.isatty():
        raise SourceError("- is standard input, which is a terminal. Pipe a book into longdoc, or name a file.")
    handle, path = tempfile.mkstemp(prefix="longdoc-stdin-")
    try:
        with os.fdopen(handle, "w+b") as copy:
            num_bytes, digest = _copy(stream, copy)
            version = connector_version_of(copy, str(_NAME))
    except BaseException as error:
        _remove(path)
        if isinstance(error, OSError):
            raise _failure(error) from error
        raise
    source = StdinSource(ref=StdinRef(path=path, version=digest, connector_version=version, num_bytes_source=num_bytes))
    weakref.finalize(source, _remove, path)
    return source


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108, at the end of a process pathlib may be gone


def _copy(stream: BinaryIO, copy: BinaryIO) -> tuple[int, str]:
    """The number of bytes and their SHA-256."""
    digest, num_bytes = hashlib.sha256(), 0
    while piece := stream.read(_CHUNK):
        num_bytes += len(piece)
        if num_bytes > MOST_BYTES:
            cause = f"- is standard input, and holds more than {MOST_BYTES:,} bytes, which no book has."
            raise SourceError(f"{cause} Write it to a file and name that, if it is one.")
        digest.update(piece)
        copy.write(piece)
    copy.flush()
    return num_bytes, digest.hexdigest()


def _failure(error: OSError) -> InfrastructureError:
    cause = f"Standard input cannot be copied to {tempfile.gettempdir()}: {error.strerror or error}."
    action = "Make room there, or choose another folder with TMPDIR" if error.errno == errno.ENOSPC else "Check it"
    return InfrastructureError(f"{cause} {action}, then run again.")
