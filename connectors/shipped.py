"""Sources that were packed on one machine and are read on another: a folder with `longdoc-shipped.json` in it.

Owns that folder as it is read; `connectors.packing` makes it. A document keeps the address, the version and the name
that it has at home, so that its rows are those of a run there, and a second run finds them done. Every book is compared
with the digest under which it was sent. Refuses folders that are not whole.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from connectors.books import connector_version_of, read_book
from connectors.faults import read_whole
from longdoc.errors import InfrastructureError, SourceError
from longdoc.files import sha256_file
from longdoc.records import Document, DocumentKind, Selection, Unreadable, display

if TYPE_CHECKING:
    from connectors.repository import RepositorySource

#: The file that makes a folder a shipped source, and the version of its form.
MARK = "longdoc-shipped.json"
MARK_VERSION = 1
_INSIDE = re.compile(r"(?:(?!\.\.?/)[^/\\\0]+/)*(?!\.\.?$)[^/\\\0]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedBookRef:
    """A book that is `path` at home and lies at `copy` here. `version` is the SHA-256 under which it was sent."""

    copy: str
    path: str
    doc_id: str
    version: str
    connector_version: str
    num_bytes_source: int
    kind: DocumentKind = "book"

    @property
    def source_uri(self) -> str:
        """The file's address at home; of a book from standard input, what its digest makes of it."""
        return self.doc_id

    def read(self) -> Document:
        """The book. Raises `DocumentError`: `empty`, `unreadable`, or its reader's own.

        Raises `InfrastructureError` where the copy is not what was sent.
        """
        raw = read_whole(self.copy)
        if hashlib.sha256(raw).hexdigest() != self.version:
            raise _damaged(self.path)
        return replace(read_book(raw, path=Path(self.path)), source_uri=self.doc_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedSource:
    """Books that were shipped, and what could not be read at home."""

    source_uri: str
    folder: str
    entries: tuple[dict[str, Any], ...]

    def documents(self) -> Iterator[ShippedBookRef | Unreadable]:
        """The documents, in the order that they have at home. Raises `InfrastructureError` where one did not arrive."""
        for entry in self.entries:
            yield Unreadable(**entry["unreadable"]) if "unreadable" in entry else _listed(self.folder, entry)


def is_shipped(path: str) -> bool:
    """Whether a path is the folder of a shipped source."""
    return bool(path) and "\0" not in path and os.path.isfile(os.path.join(path, MARK))  # noqa: PTH113, PTH118


def shipped_kind(path: str) -> str:
    """`book` or `repository`. Raises `SourceError` for a folder that is not whole."""
    return str(_read_mark(path).get("kind"))


def open_shipped(path: str, selection: Selection) -> "ShippedSource | RepositorySource":
    """A shipped source. Raises `SourceError` where the folder is not whole."""
    mark, folder = _read_mark(path), os.path.abspath(path)  # noqa: PTH100, the folder may hold any bytes
    try:
        if mark["kind"] == "repository":
            (entry,) = mark["documents"]
            return _open_commit(folder, entry, selection)
        entries = tuple(_checked(entry) for entry in mark["documents"])
        return ShippedSource(source_uri=mark["source_uri"], folder=folder, entries=entries)
    except (KeyError, TypeError, ValueError) as error:
        raise _not_whole(path, error) from error


def _open_commit(folder: str, entry: dict[str, Any], selection: Selection) -> "RepositorySource":
    # Not at the top: books need nothing of it, and it takes longer to import than most of them take to be read.
    from connectors.home import Home
    from connectors.repository import open_commit

    home = Home(path=os.path.join(folder, _inside(entry["git_dir"])))  # noqa: PTH118
    return open_commit(home, entry["uri"], entry["commit"], selection, bytes.fromhex(entry["below"]))


def _listed(folder: str, entry: dict[str, Any]) -> ShippedBookRef:
    copy = Path(folder, entry["file"])
    try:
        with copy.open("rb") as file:
            connector_version = connector_version_of(file, entry["path"])
        version, num_bytes = sha256_file(copy), copy.stat().st_size
    except OSError as error:
        raise _damaged(entry["path"]) from error
    if version != entry["sha256"]:
        raise _damaged(entry["path"])
    return ShippedBookRef(
        copy=str(copy),
        path=entry["path"],
        doc_id=entry["uri"],
        version=version,
        connector_version=connector_version,
        num_bytes_source=num_bytes,
    )


def _read_mark(path: str) -> dict[str, Any]:
    try:
        mark: dict[str, Any] = json.loads(Path(path, MARK).read_bytes())
        if mark["version"] != MARK_VERSION:
            raise ValueError(f"version {mark['version']}, and this longdoc reads {MARK_VERSION}")
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise _not_whole(path, error) from error
    return mark


def _checked(entry: dict[str, Any]) -> dict[str, Any]:
    if "unreadable" in entry:
        Unreadable(**entry["unreadable"])
    else:
        _inside(entry["file"])
        for name in ("path", "uri", "sha256"):
            if not isinstance(entry[name], str):
                raise ValueError(f"{name} is {entry[name]!r}")
    return entry


def _inside(name: str) -> str:
    if _INSIDE.fullmatch(name) is None:
        raise ValueError(f"{name!r} leads out of the folder")
    return name


def _not_whole(path: str, error: Exception) -> SourceError:
    cause = f"{display(path)} is a shipped source that is not whole: {MARK}: {error or type(error).__name__}."
    return SourceError(f"{cause} Submit it again, or delete the folder.")


def _damaged(path: str) -> InfrastructureError:
    cause = f"{display(path)} did not arrive as it was sent: its copy is missing or has other bytes."
    return InfrastructureError(f"{cause} Check the disk of the node that runs the job, then submit again.")
