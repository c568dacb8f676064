"""The books job: how an argument that is a book, or a folder of books, is opened."""

import os
from pathlib import Path

from connectors.folder import BookSource, open_book, open_folder
from longdoc.records import Selection


def open_books(argument: str, selection: Selection) -> BookSource:
    """A file or the books of a folder. Raises `SourceError` where nothing can be read.

    A single file of an unknown extension is read as text where the user says that it is a book.
    """
    path = Path(argument)
    # Not Path.is_dir: it raises where a link leads into a closed folder.
    if os.path.isdir(argument):  # noqa: PTH112
        return open_folder(path)
    return open_book(path, any_extension=selection.kind == "book")
