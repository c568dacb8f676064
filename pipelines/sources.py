"""From the SOURCE arguments of a command to sources: which kind each one is, and who opens it.

Owns the decision between book and repository, and the refusal of what cannot be opened yet. Reads no document.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from connectors.git import is_repository, without_credentials
from longdoc.errors import SourceError
from longdoc.records import Selection, Source, display
from pipelines.books import open_books
from pipelines.repositories import open_repositories

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SCP_LIKE = re.compile(r"(?:[^/\s@]+@)[^/\s:]+:")


def open_sources(arguments: Sequence[str], selection: Selection) -> list[Source]:
    """One source for each argument, in order. Raises `SourceError` for the first that cannot be opened.

    `selection.kind` decides where it is not `auto`; else a folder with `.git` in it, or a bare repository, is a
    repository, and everything else is a book or a folder of books.
    """
    if not arguments:
        raise SourceError("No source was named. Name a book, a folder of books or a git repository.")
    kinds = [_kind(argument, selection) for argument in arguments]
    if "repository" not in kinds:
        _refuse_repository_options(selection)
    return [
        open_repositories(argument, selection) if kind == "repository" else open_books(argument, selection)
        for argument, kind in zip(arguments, kinds, strict=True)
    ]


def _kind(argument: str, selection: Selection) -> str:
    if not _exists(argument):
        raise _not_found(argument)
    if selection.kind != "auto":
        return selection.kind
    return "repository" if os.path.isdir(argument) and is_repository(argument) else "book"  # noqa: PTH112


def _exists(argument: str) -> bool:
    # Not Path.exists: "" would be the current folder, and a NUL raises ValueError.
    return bool(argument) and "\0" not in argument and os.path.lexists(argument)


def _not_found(argument: str) -> SourceError:
    shown = _shown(argument)
    if _URL.match(argument) or _SCP_LIKE.match(argument):
        message = f"{shown}: remote repositories cannot be read yet."
        return SourceError(f"{message} Clone it with git and name the folder of the clone.")
    folder, at, revision = argument.rpartition("@")
    if at and _exists(folder):
        message = f"No such file or folder: {shown}. For a revision of {_shown(folder)}, use"
        return SourceError(f"{message} --revision {_shown(revision)}.")
    message = f"No such file or folder: '{shown}'. Check the spelling; relative paths start at"
    return SourceError(f"{message} {display(str(Path.cwd()))}.")


def _shown(argument: str) -> str:
    return display(without_credentials(argument))


def _refuse_repository_options(selection: Selection) -> None:
    for option, value in (
        ("--include", selection.include),
        ("--exclude", selection.exclude),
        ("--revision", selection.revision),
    ):
        if value:
            raise SourceError(f"{option} chooses within a git repository, but no source is one. Leave the option out.")
