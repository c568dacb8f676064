r"""`@list.txt`: a text file that names sources, one a line. Owns what a line may be; opens no source.

A list is in UTF-8 (other bytes stand for themselves, as in file names). White space around a line is dropped; an empty
line, and one that begins with `#`, says nothing. A relative path starts at the list's own folder, for `@-` (the list
comes from standard input) at the current one; `~` is a home folder. URLs are as on the command line. Refused are lists
in lists and standard input; a path that begins with `#`, `@`, `-` or `~` is written `./#...`.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from connectors.address import is_address
from connectors.address import shown as shown_address
from connectors.faults import unreadable_message
from connectors.stdin import STDIN
from longdoc.errors import SourceError
from longdoc.records import Selection, Unreadable, display

#: What an argument that is a list begins with.
MARK = "@"
# No path is longer (PATH_MAX is 4,096), and no list of paths is one line without end.
_LONGEST_LINE = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A source as it was named. `listed` is the list and the line that name it, None on the command line.

    `problem` is why it cannot be opened, where that is known from its name.
    """

    argument: str
    listed: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedSource:
    """A line of a list that opens nothing: one document that cannot be read, so that the other lines go on."""

    failure: Unreadable

    @property
    def source_uri(self) -> str:
        """What the line names."""
        return self.failure.source_uri

    def documents(self) -> Iterator[Unreadable]:
        """The failure."""
        yield self.failure


def named_sources(argument: str) -> list[Named]:
    """What an argument names: itself, or for a list every source in it.

    Raises `SourceError` for a list that cannot be read, holds no source, or is no text.
    """
    if not argument.startswith(MARK):
        return [Named(argument=argument)]
    name = argument.removeprefix(MARK)
    shown = "standard input" if name == STDIN else display(name)
    folder = os.getcwd() if name == STDIN else os.path.dirname(os.path.abspath(name))  # noqa: PTH100, PTH109, PTH120
    if name == STDIN and (sys.stdin is None or sys.stdin.isatty()):
        raise SourceError("@- is a list on standard input, and nothing is piped into longdoc. Name the list's file.")
    try:
        if name == STDIN:
            found = list(_lines(sys.stdin.buffer, shown, folder))
        else:
            with Path(name).open("rb") as file:
                found = list(_lines(file, shown, folder))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise _no_list(argument, name, error) from error
    if not found:
        raise SourceError(f"The list {shown} names no source. Write one a line, or leave the list out.")
    return found


def failed_source(named: Named, error: Exception | str, selection: Selection) -> FailedSource:
    """A line of a list that cannot be opened, as a document at fault. Raises nothing."""
    uri, is_repository = _identity(named.argument, selection)
    failure = Unreadable(
        doc_id=f"git:{uri}" if is_repository else uri,
        kind="repository" if is_repository else "book",
        source_uri=uri,
        stage="read",
        reason="not_opened",
        error=f"{named.listed}: {error}",
    )
    return FailedSource(failure=failure)


def _identity(argument: str, selection: Selection) -> tuple[str, bool]:
    """The address of what cannot be opened, without credentials, and whether it is taken for a repository."""
    if is_address(argument):
        return shown_address(argument), True
    try:
        uri = Path(argument).absolute().as_uri()
    except ValueError:  # a NUL
        uri = display(argument)
    return uri, selection.kind == "repository"


def _lines(file: BinaryIO, shown: str, folder: str) -> Iterator[Named]:
    number = 0
    while raw := file.readline(_LONGEST_LINE):
        number += 1
        listed = f"{shown}, line {number}"
        if b"\0" in raw:
            raise SourceError(
                f"{listed} holds a NUL byte, so this is no list of sources. Name a book without the {MARK}."
            )
        if len(raw) == _LONGEST_LINE and not raw.endswith(b"\n"):
            cause = f"{listed} has more than {_LONGEST_LINE:,} bytes, so this is no list of sources."
            raise SourceError(f"{cause} Write one source a line.")
        line = os.fsdecode(raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw).strip()
        if line and not line.startswith("#"):
            yield _named(line, listed, folder)


def _named(line: str, listed: str, folder: str) -> Named:
    if is_address(line):
        return Named(argument=line, listed=listed)
    problem = None
    if line.startswith(MARK):
        problem = "a list inside a list is not read. Name it on the command line, or write ./@... for a file."
    elif line == STDIN:
        problem = "standard input is no line of a list. Name - on the command line, or write ./- for a file."
    argument = os.path.join(folder, os.path.expanduser(line))  # noqa: PTH111, PTH118, paths may hold any bytes
    return Named(argument=argument, listed=listed, problem=problem)


def _no_list(argument: str, name: str, error: OSError | ValueError) -> SourceError:
    shown = display(name)
    hint = f" For the file {display(argument)} itself, write ./{display(argument)}." if _exists(argument) else ""
    if isinstance(error, ValueError):
        return SourceError(f"No list of sources can be called {shown}.{hint}")
    if isinstance(error, FileNotFoundError):
        return SourceError(f"No such list of sources: {shown}. {MARK} stands before the name of a list.{hint}")
    return SourceError(f"The list of sources {unreadable_message(name, error)}{hint}")


def _exists(argument: str) -> bool:
    return "\0" not in argument and os.path.lexists(argument)
