"""Submodules: what `.gitmodules` says of them, and where their commits are found.

Owns the rules for what a repository may make longdoc read. A submodule of a local repository is taken from
`.git/modules`, where `git submodule update` put it; else it is fetched from its address, relative ones resolved as git
does. Refuses addresses of files, whoever names them: a repository could have its reader's other files read. Refuses
http where the repository itself came by something better. A password goes on to the same host only.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from connectors.address import Address, parse_address, resolve_relative
from connectors.clones import Uses
from connectors.git import has_object
from connectors.git_cache import ensure_commit, is_unknown
from connectors.git_objects import read_settings
from connectors.home import Home
from connectors.remote import RemoteError
from longdoc.errors import SourceError


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One submodule as `.gitmodules` has it."""

    name: str
    url: str


class SubmoduleRefused(SourceError):
    """A submodule that is not read, by a rule or because its commit is nowhere; `reason` is a stable word."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return (SubmoduleRefused, (str(self), self.reason))


def read_declared(git_dir: str, object_id: str) -> dict[bytes, Declared]:
    """The submodules of a `.gitmodules` by their paths. Raises `SourceError` where it is in no format of git's."""
    settings = read_settings(git_dir, object_id)
    declared = {}
    for key, path in settings.items():
        section, _, variable = key.rpartition(".")
        if section.startswith("submodule.") and variable == "path":
            name = section.removeprefix("submodule.")
            url = settings.get(f"{section}.url", "")
            declared[os.fsencode(path).rstrip(b"/")] = Declared(name=name, url=url)
    return declared


def find_submodule(parent: Home, declared: Declared | None, commit_id: str, uses: Uses) -> Home:
    """Where a submodule's commit is, on this machine by then, and as long as `uses` holds it.

    Raises `SubmoduleRefused`, or `RemoteError`.
    """
    if declared is None:
        raise SubmoduleRefused(".gitmodules does not name it", "submodule_refused")
    if home := _beside(parent, declared.name, commit_id):
        return home
    address = _address(parent, declared.url)
    uses.hold(address)
    try:
        ensure_commit(address, commit_id)
    except RemoteError as error:
        if is_unknown(error):
            raise SubmoduleRefused(f"{address.uri} does not have it", "submodule_missing") from error
        raise
    return Home(address=address)


def _beside(parent: Home, name: str, commit_id: str) -> Home | None:
    """The repository that git made for a submodule of a local one, if it has the commit."""
    if parent.address is not None or not name or {"", ".", ".."} & set(name.split("/")) or "\0" in name:
        return None
    modules = os.path.realpath(Path(parent.git_dir) / "modules")
    folder = os.path.realpath(os.path.join(modules, name))  # noqa: PTH118, it may hold bytes that are no text
    if not folder.startswith(modules + os.sep) or not os.path.isdir(folder):  # noqa: PTH112
        return None
    return Home(path=folder) if has_object(folder, f"{commit_id}^{{commit}}") else None


def _address(parent: Home, url: str) -> Address:
    base = parent.remote()
    if not url or (base is None and url.startswith(("./", "../"))):
        raise SubmoduleRefused("its address in .gitmodules leads nowhere", "submodule_refused")
    try:
        address = parse_address(url if base is None else resolve_relative(base, url))
    except SourceError as error:
        raise SubmoduleRefused(str(error), "submodule_refused") from error
    if address.scheme == "file":
        raise SubmoduleRefused("its address is a file of this machine", "submodule_refused")
    if address.scheme == "http" and (base is None or base.scheme != "http"):
        raise SubmoduleRefused(f"{address.uri} is not https", "submodule_refused")
    if base is not None and address.password is None and address.origin == base.origin:
        return replace(address, username=base.username, password=base.password)
    return address
