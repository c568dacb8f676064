"""From the SOURCE arguments of a command to sources: which kind each one is, and who opens it.

Owns the decision between book, repository, list (`@list.txt`) and standard input (`-`), and what a mistake costs: on
the command line everything, in a list its own line. Reads no document, but for the copy of standard input.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from connectors.address import is_address, shown
from connectors.git import is_repository
from connectors.shipped import is_shipped, open_shipped, shipped_kind
from connectors.stdin import STDIN, open_stdin
from longdoc.errors import SourceError
from longdoc.records import Selection, Source, display
from pipelines.lists import MARK, Named, failed_source, named_sources
from pipelines.openers import open_books, open_repositories


def open_sources(arguments: Sequence[str], selection: Selection) -> list[Source]:
    """One source for each argument and for each line of a list, in order.

    `selection.kind` decides where it is not `auto`; else an address, a folder with `.git` in it, a bare repository and
    a path below one are repositories, and everything else is a book or a folder of books. Raises `SourceError` for the
    first argument that cannot be opened; a line of a list that cannot is a source of one `Unreadable`.
    """
    if not arguments:
        raise SourceError("No source was named. Name a book, a folder of books or a git repository.")
    _refuse_two_readers(arguments)  # before a list takes what a book was to have
    named = [each for argument in arguments for each in named_sources(argument)]
    check_named(arguments, named, selection)
    return [open_named(each, selection) for each in named]


def check_named(arguments: Sequence[str], named: Sequence[Named], selection: Selection, *, num_others: int = 0) -> None:
    """Raise `SourceError` for what is known to be wrong before any source is opened.

    `num_others` sources are named elsewhere and may be repositories.
    """
    _refuse_two_readers(arguments)
    for each in named:
        if each.listed is None and not _can_exist(each.argument, selection):
            raise _not_found(each.argument)
    if not num_others and not any(_may_be_repository(each, selection) for each in named):
        _refuse_repository_options(selection)


def _may_be_repository(named: Named, selection: Selection) -> bool:
    """Whether options for repositories can be meant for it: it is one, or was one when its line was written."""
    if _kind(named.argument, selection) == "repository":
        return True
    return selection.kind == "auto" and named.listed is not None and not _exists(named.argument)


def _refuse_two_readers(arguments: Sequence[str]) -> None:
    readers = [argument for argument in arguments if argument in (STDIN, f"{MARK}{STDIN}")]
    if len(readers) > 1:
        cause = f"{' and '.join(readers)} are the same standard input, which can be read once."
        raise SourceError(f"{cause} Name one of them, and files for the others.")


def open_named(named: Named, selection: Selection) -> Source:
    """What was named, opened. Raises `SourceError`, but for a line of a list: that becomes one `Unreadable`."""
    if named.listed is None:
        return _open_argument(named.argument, selection)
    if named.problem is not None:
        return failed_source(named, named.problem, selection)
    try:
        if not _can_exist(named.argument, selection):
            raise _not_found(named.argument)
        return _open_argument(named.argument, selection)
    except SourceError as error:
        return failed_source(named, error, selection)


def _open_argument(argument: str, selection: Selection) -> Source:
    if argument == STDIN:
        if selection.kind == "repository":
            raise SourceError("- is standard input, which holds no git repository. Name its folder or its URL.")
        return open_stdin(None if sys.stdin is None else sys.stdin.buffer)
    if is_shipped(argument):
        return open_shipped(argument, selection)
    if _kind(argument, selection) == "repository":
        return open_repositories(argument, selection)
    if is_address(argument) and not _exists(argument):
        message = f"{shown(argument)} is the address of a git repository, and --kind book says it is none."
        raise SourceError(f"{message} Books are read from files: download it, or leave out --kind.")
    return open_books(argument, selection)


def _kind(argument: str, selection: Selection) -> str:
    if is_shipped(argument):
        return shipped_kind(argument)
    if selection.kind != "auto":
        return selection.kind
    if _exists(argument):
        return "repository" if os.path.isdir(argument) and is_repository(argument) else "book"  # noqa: PTH112
    return "repository" if is_address(argument) or _may_be_in_a_commit(argument, selection) else "book"


def _can_exist(argument: str, selection: Selection) -> bool:
    if argument == STDIN or _exists(argument) or is_address(argument):
        return True
    return selection.kind != "book" and _may_be_in_a_commit(argument, selection)


def _may_be_in_a_commit(argument: str, selection: Selection) -> bool:
    """Whether a path that is not there lies in a repository: in a work tree only a user who says so can mean that."""
    if not argument or "\0" in argument or _names_a_revision(argument):
        return False
    folders = map(str, Path(os.path.abspath(argument)).parents)  # noqa: PTH100, Path.absolute keeps `..`
    found = next((folder for folder in folders if is_repository(folder)), None)
    has_tree = found is not None and os.path.lexists(os.path.join(found, ".git"))  # noqa: PTH118
    return found is not None and (selection.kind == "repository" or not has_tree)


def _names_a_revision(argument: str) -> bool:
    folder, at, _ = argument.rpartition("@")
    return bool(at) and _exists(folder)


def _exists(argument: str) -> bool:
    # Not Path.exists: "" would be the current folder, and a NUL raises ValueError.
    return bool(argument) and "\0" not in argument and os.path.lexists(argument)


def _not_found(argument: str) -> SourceError:
    if _names_a_revision(argument):
        folder, _, revision = argument.rpartition("@")
        message = f"No such file or folder: {shown(argument)}. For a revision of {shown(folder)}, use"
        return SourceError(f"{message} --revision {shown(revision)}.")
    message = f"No such file or folder: '{shown(argument)}'. Check the spelling; relative paths start at"
    return SourceError(f"{message} {display(str(Path.cwd()))}.")


def _refuse_repository_options(selection: Selection) -> None:
    for option, value in (
        ("--include", selection.include),
        ("--exclude", selection.exclude),
        ("--revision", selection.revision),
        ("--submodules", selection.submodules),
        ("--lfs", selection.lfs),
    ):
        if value:
            raise SourceError(f"{option} chooses within a git repository, but no source is one. Leave the option out.")
