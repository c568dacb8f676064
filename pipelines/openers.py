"""How an argument is opened: as books, or as a git repository. Which of the two it is decides `pipelines.sources`."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from connectors.address import is_address, parse_address, split_revision
from connectors.folder import BookSource, open_book, open_folder
from longdoc.errors import SourceError
from longdoc.records import Selection

if TYPE_CHECKING:
    from connectors.repository import RepositorySource


def open_books(argument: str, selection: Selection) -> BookSource:
    """A file or the books of a folder. Raises `SourceError` where nothing can be read.

    A single file of an unknown extension is read as text where the user says that it is a book.
    """
    path = Path(argument)
    # Not Path.is_dir: it raises where a link leads into a closed folder.
    if os.path.isdir(argument):  # noqa: PTH112
        return open_folder(path)
    return open_book(path, any_extension=selection.kind == "book")


def open_repositories(argument: str, selection: Selection) -> "RepositorySource":
    """The repository that the argument names or lies in, at the chosen revision. Raises `SourceError`.

    An address may carry its revision (`URL@revision`). A path inside a repository chooses what a commit has there; it
    need not be in the work tree.
    """
    # Not at the top: books need nothing of it, and it takes longer to import than most of them take to be read.
    from connectors.repository import open_repository

    if is_address(argument) and not os.path.lexists(argument):
        return _open_address(argument, selection)
    folder, inside = _nearest_folder(argument)
    return open_repository(folder, selection, inside)


def _open_address(argument: str, selection: Selection) -> "RepositorySource":
    from connectors.repository import open_remote

    url, revision = split_revision(argument)
    address = parse_address(url)
    if revision is not None and selection.revision not in (None, revision):
        raise SourceError(f"{address.uri} carries a revision, and --revision is another. Leave one of them out.")
    if revision == "":
        raise SourceError(f"{address.uri} ends in @, and no revision follows. Add one, or leave the @ out.")
    return open_remote(address, selection if revision is None else replace(selection, revision=revision))


def _nearest_folder(argument: str) -> tuple[str, bytes]:
    """The folder that an argument is, or the nearest one that holds it, and what of the argument lies below that."""
    # Not Path.is_dir: it raises where a link leads into a closed folder.
    folder, inside = os.path.abspath(argument), ""  # noqa: PTH100, Path.absolute keeps `..`
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):  # noqa: PTH112, PTH120
        folder, name = os.path.split(folder)
        inside = os.path.join(name, inside) if inside else name  # noqa: PTH118
    return folder, os.fsencode(inside)
