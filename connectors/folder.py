"""Book files on disk: one named file, or the readable books of a folder.

Owns the order of a folder (by the bytes of the path). Refuses symlinks inside a folder
and folders that are repositories; whatever is passed over is kept with its reason in `skipped`, for the user to see.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from connectors.books import BookRef, list_book
from connectors.faults import unreadable_message
from connectors.formats import extensions, format_of_name, is_recognised
from connectors.git import is_repository
from longdoc.errors import SourceError
from longdoc.records import Unreadable, display


@dataclass(frozen=True, slots=True, kw_only=True)
class BookSource:
    """Book files in a stable order. `skipped` holds (path for people, reason) of what was found and is not read."""

    source_uri: str
    paths: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    closed: tuple[Unreadable, ...] = ()

    def documents(self) -> Iterator[BookRef | Unreadable]:
        """The books, each hashed; after them the folders that could not be listed."""
        for path in self.paths:
            yield list_book(Path(path))
        yield from self.closed


def open_book(path: Path, *, any_extension: bool = False) -> BookSource:
    """One file. Raises `SourceError` where neither its name nor its content is a book's, unless it is one anyhow."""
    # Not Path.is_file: it raises where a link leads into a closed folder.
    if not os.path.isfile(path):  # noqa: PTH113
        raise SourceError(
            f"{display(str(path))} is neither a file nor a folder. Name a book, a folder of books or a repository."
        )
    if not any_extension and not _is_book(path.name) and not _has_book_content(path):
        format_ = display(path.suffix) or "a file without extension"
        message = f"{display(str(path))}: cannot read {format_} yet; known: {_known()}."
        raise SourceError(f"{message} --kind book reads any file as text.")
    return BookSource(source_uri=path.resolve().as_uri(), paths=(str(path.resolve()),))


def open_folder(folder: Path) -> BookSource:
    """The readable books of a folder and of the folders in it. Raises `SourceError` where there is none."""
    folder = folder.resolve()
    found = _Found(paths=[], skipped=[], closed=[])
    found.walk(str(folder))
    if not found.paths and not found.closed:
        message = (
            f"{display(str(folder))} holds no book that can be read: looked for {_known()} in it and in the folders"
        )
        raise SourceError(f"{message} below. Name a file, or use --kind book with one to read it as text.")
    return BookSource(
        source_uri=folder.as_uri(),
        paths=tuple(sorted(found.paths, key=os.fsencode)),
        skipped=tuple((display(path), reason) for path, reason in sorted(found.skipped, key=_path_bytes)),
        closed=tuple(found.closed),
    )


def _path_bytes(skipped: tuple[str, str]) -> bytes:
    return os.fsencode(skipped[0])


def _is_book(name: str) -> bool:
    return format_of_name(name) is not None


def _has_book_content(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return is_recognised(file, str(path))
    except OSError:
        return False


def _known() -> str:
    return ", ".join(extensions())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What a walk through a folder has found so far."""

    paths: list[str]
    skipped: list[tuple[str, str]]
    closed: list[Unreadable]

    def walk(self, top: str) -> None:
        pending = [top]
        while pending:
            folder = pending.pop()
            try:
                entries = list(os.scandir(folder))
            except OSError as error:
                self._close(folder, error, is_top=folder == top)
                continue
            pending += [entry.path for entry in entries if self._takes_folder(entry)]

    def _takes_folder(self, entry: os.DirEntry[str]) -> bool:
        """Note a file, or what is passed over; True for a folder to go into."""
        if entry.is_symlink():
            self.skipped.append((entry.path, "a symbolic link, not followed"))
        elif entry.is_dir(follow_symlinks=False):
            if not is_repository(entry.path):
                return True
            self.skipped.append((entry.path, "a git repository: name it as a source of its own"))
        elif not entry.is_file(follow_symlinks=False):
            self.skipped.append((entry.path, "not a regular file"))
        elif not _is_book(entry.name):
            extension = os.path.splitext(entry.name)[1]  # noqa: PTH122, as in _is_book
            self.skipped.append((entry.path, f"not a known book: {display(extension) or 'no extension'}"))
        else:
            self.paths.append(entry.path)
        return False

    def _close(self, folder: str, error: OSError, *, is_top: bool) -> None:
        message = unreadable_message(folder, error, "listed")
        if is_top:
            raise SourceError(message)
        uri = Path(folder).as_uri()
        self.closed.append(
            Unreadable(doc_id=uri, kind="book", source_uri=uri, stage="read", reason="unreadable", error=message)
        )
