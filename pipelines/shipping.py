"""From the SOURCE arguments of a command line to what a cluster is sent: files, addresses, paths of the cluster's own.

Owns the decision what is shipped: an address goes by name, a file, a folder of books, a repository of this machine or
standard input goes as bytes, and a list goes as a list in which each line is one or the other. What a mistake costs is
as in `pipelines.sources`. Refuses addresses that carry a name or a password, before anything leaves this machine.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from connectors.address import is_address, parse_address, shown, split_revision
from connectors.packing import pack
from longdoc.errors import SourceError
from longdoc.records import Selection, Source, display
from longdoc.reporting import skipped_files
from longdoc.submission.cargo import Cargo, CargoFile
from pipelines.lists import MARK, Named, named_sources
from pipelines.sources import check_named, open_named

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")
_FOLDER = "sources"


def pack_sources(arguments: Sequence[str], remote_paths: Sequence[str], selection: Selection, folder: Path) -> Cargo:
    """What carries the sources to a cluster; what must be made for it is made in `folder`.

    `remote_paths` are paths on the cluster's nodes. Raises `SourceError` for what `open_sources` refuses, for secrets,
    for addresses that only this machine can reach, and for repositories that cannot be sent alone.
    """
    for path in remote_paths:
        _check_remote(path)
    lists = [named_sources(argument) for argument in arguments]
    for named in (each for found in lists for each in found if _goes_by_name(each.argument)):
        _check_address(named)
    check_named(arguments, [each for found in lists for each in found], selection, num_others=len(remote_paths))
    packing = _Packing(selection, folder)
    for argument, found in zip(arguments, lists, strict=True):
        packing.add(argument, found)
    for path in remote_paths:
        packing.name(path)
    return packing.cargo()


class _Packing:
    """What has been packed so far. Each source that is shipped has a folder of its own, by number."""

    def __init__(self, selection: Selection, folder: Path) -> None:
        self._selection = selection
        self._folder = folder
        self._arguments: list[str] = []
        self._files: list[CargoFile] = []
        self._named: list[str] = []
        self._skipped: list[tuple[str, str]] = []
        self._num_sources = 0
        self._number = 0

    def cargo(self) -> Cargo:
        return Cargo(
            arguments=tuple(self._arguments),
            files=tuple(self._files),
            named=tuple(self._named),
            num_sources=self._num_sources,
            skipped=tuple(self._skipped),
        )

    def name(self, argument: str) -> None:
        self._arguments.append(argument)
        self._named.append(argument)
        self._num_sources += 1

    def add(self, argument: str, found: Sequence[Named]) -> None:
        if argument.startswith(MARK):
            self._add_list(argument.removeprefix(MARK), found)
        elif _goes_by_name(argument):
            self.name(argument)
        else:
            self._arguments.append(f"{_FOLDER}/{self._ship(open_named(found[0], self._selection))}")

    def _add_list(self, name: str, found: Sequence[Named]) -> None:
        """The same list with the same line numbers, in which each path is that of a shipped source."""
        lines: list[str] = []
        for each in found:
            if _goes_by_name(each.argument):
                line = each.argument
                self._num_sources += 1
            else:
                line = f"../{self._ship(open_named(each, self._selection))}"
            number = int(str(each.listed).rpartition(" ")[2])
            lines += [""] * (number - 1 - len(lines)) + [line]
        self._number += 1
        base = Path(name).name
        path = f"{_FOLDER}/list-{self._number:04d}/{base if _PLAIN_NAME.fullmatch(base) else 'list.txt'}"
        content = "".join(f"{line}\n" for line in lines).encode("utf-8", errors="surrogateescape")
        self._files.append(CargoFile(name=path, label=f"the list {display(name)}", content=content))
        self._arguments.append(f"{MARK}{path}")

    def _ship(self, source: Source) -> str:
        self._number += 1
        self._num_sources += 1
        place = f"{self._number:04d}"
        made = self._folder / place
        made.mkdir()
        for file in pack(source, made):
            self._files.append(
                CargoFile(
                    name=f"{_FOLDER}/{place}/{file.name}",
                    label=file.label,
                    path=file.path,
                    content=file.content,
                    sha256=file.sha256,
                )
            )
        self._skipped += skipped_files(source)
        return place


def _goes_by_name(argument: str) -> bool:
    # Not Path.exists: a NUL raises ValueError.
    return is_address(argument) and ("\0" in argument or not os.path.lexists(argument))


def _check_address(named: Named) -> None:
    where = "" if named.listed is None else f"{named.listed}: "
    url, _ = split_revision(named.argument)
    try:
        address = parse_address(url)
    except SourceError as error:
        if named.listed is None or "@" in url or "?" in url:
            raise SourceError(f"{where}{error}") from error
        return  # one line of a list that cannot be opened, here or there
    if address.username is not None or address.password is not None:
        cause = (
            f"{where}{address.uri} carries a name or a password, which would be readable to all who use the cluster."
        )
        action = "Leave it out, and let a credential helper or a key on the cluster's nodes give it to git"
        raise SourceError(f"{cause} {action}.")
    if address.scheme == "file":
        cause = f"{where}{shown(address.uri)} is a repository of this machine, and the cluster is another."
        raise SourceError(f"{cause} Name its folder, which is shipped, or push it and name its URL.")


def _check_remote(path: str) -> None:
    if is_address(path):
        cause = f"--remote-path {shown(path)} is an address, and it takes a path."
        raise SourceError(f"{cause} Name the address as a SOURCE: it goes by its name.")
    if not os.path.isabs(path) or "\0" in path or "\n" in path:  # noqa: PTH117
        cause = f"--remote-path {display(path)} is no absolute path."
        raise SourceError(f"{cause} It is taken as it stands on the cluster's nodes: write it from the root.")
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise SourceError(f"--remote-path {display(path)} is not UTF-8. Name a folder above it.") from None
