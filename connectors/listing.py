"""What a commit holds, path by path: in its own trees, in those of its submodules, and by its LFS pointers.

Owns which of it is wanted (`Choice`), and that all which is wanted is on this machine before any of it is read. The
paths stand in git's order; a submodule's stand behind the submodule, below its path. Reads attributes, `.gitmodules`,
`.lfsconfig` and pointers, and no other file. Refuses chains of submodules, and numbers of them, without end.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from connectors.address import parse_address
from connectors.attributes import FILE_NAME, Attributes
from connectors.clones import Uses
from connectors.git_cache import ensure_commit, fetch_blobs
from connectors.git_objects import SUBMODULE, SYMLINK, TreeEntry, list_tree, read_objects, read_settings
from connectors.globs import Globs
from connectors.home import Home
from connectors.lfs_pointers import LONGEST_POINTER, Pointer, parse_pointer
from connectors.submodules import Declared, SubmoduleRefused, find_submodule, read_declared
from longdoc.errors import SourceError
from longdoc.records import display

DEEPEST_SUBMODULE, MOST_SUBMODULES = 8, 1000
_LARGEST_RULES = 100 * 1024 * 1024  # git's own bound for .gitattributes
_MODULES, _LFS_CONFIG = b".gitmodules", b".lfsconfig"
# Shorter than any pointer: its three lines with an empty content.
_SHORTEST_POINTER = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which part of a repository is wanted. `below` is a path of the commit, empty for all of it."""

    globs: Globs = field(default_factory=Globs)
    below: bytes = b""
    submodules: bool = False
    lfs: bool = False

    def covers(self, path: bytes) -> bool:
        """Whether a path is part of the source at all; what is not leaves no trace in the document."""
        return not self.below or path == self.below or path.startswith(self.below + b"/")

    def wants(self, path: bytes) -> bool:
        """Whether a path is to be read."""
        return self.covers(path) and self.globs.wants(path)

    def may_want_below(self, path: bytes) -> bool:
        """Whether anything below the path of a submodule can be wanted, before its names are known."""
        if not self.covers(path) and not self.below.startswith(path + b"/"):
            return False
        # No file is called so: an exclude that takes it takes everything.
        return not any(map(self.globs.excludes, (path, path + b"/\0/\0")))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tree:
    """One commit whose paths are listed, the document's own or a submodule's. `path` is a submodule's place."""

    home: Home
    commit_id: str
    path: bytes
    attributes: Attributes
    lfs_server: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One path of a document. `path` starts at the document's root, that of `entry` at its own tree's.

    `reason` says why it is not read; a submodule whose files follow has none. `pointer` is set where the content that
    an LFS pointer stands for is read in its place.
    """

    tree: Tree
    entry: TreeEntry
    path: bytes
    reason: str | None = None
    title: str | None = None
    pointer: Pointer | None = None

    @property
    def is_read(self) -> bool:
        """Whether there is a content to read: a file's, or the text of a symbolic link."""
        return self.reason is None and self.entry.mode != SUBMODULE

    @property
    def num_bytes(self) -> int:
        """The size that git lists; what is not on this machine has none."""
        return self.entry.num_bytes or 0


def list_commit(home: Home, commit_id: str, choice: Choice, uses: Uses) -> list[Listed]:
    """Every path of a commit that the choice covers; what it wants is on this machine then, LFS content excepted.

    It stays as long as `uses` holds it. Raises `SourceError` where the commit or a submodule cannot be listed or
    fetched.
    """
    if home.address is not None:
        uses.hold(home.address)
        ensure_commit(home.address, commit_id)
    listed = list(_Lister(choice, uses).walk(home, commit_id, b"", 0))
    return _with_pointers(listed) if choice.lfs else listed


class _Lister:
    """Walks a commit and its submodules. How deep those go is bounded, so it calls itself."""

    def __init__(self, choice: Choice, uses: Uses) -> None:
        self._choice, self._uses = choice, uses
        self._num_submodules = 0

    def walk(self, home: Home, commit_id: str, place: bytes, depth: int) -> Iterator[Listed]:
        prefix = place + b"/" if place else b""
        entries = self._fetched(home, commit_id, prefix)
        special = {entry.path: entry for entry in entries if _is_rules(entry) and _is_readable(entry)}
        tree = self._tree(home, commit_id, place, special)
        modules = self._modules(home, special)
        for entry in entries:
            path = prefix + entry.path
            if entry.mode == SUBMODULE:
                yield from self._submodule(tree, entry, path, modules, depth)
            elif self._choice.covers(path):
                yield self._file(tree, entry, path)

    def _fetched(self, home: Home, commit_id: str, prefix: bytes) -> Sequence[TreeEntry]:
        """The paths of one commit, with the blobs that are needed on this machine."""
        entries = list_tree(home.git_dir, commit_id)
        missing = [
            entry.object_id
            for entry in entries
            if entry.num_bytes is None and (_is_rules(entry) or self._choice.wants(prefix + entry.path))
        ]
        if home.address is None or not missing:
            return entries
        fetch_blobs(home.address, commit_id, missing)
        return list_tree(home.git_dir, commit_id)

    def _tree(self, home: Home, commit_id: str, place: bytes, special: Mapping[bytes, TreeEntry]) -> Tree:
        files = [entry for entry in special.values() if entry.path.rpartition(b"/")[2] == FILE_NAME]
        contents = read_objects(home.git_dir, [entry.object_id for entry in files]) if files else ()
        attributes = Attributes(
            {entry.path: content for entry, content in zip(files, contents, strict=True) if content is not None}
        )
        server = None
        if self._choice.lfs and _LFS_CONFIG in special:
            server = _lfs_server(home, special[_LFS_CONFIG])
        return Tree(home=home, commit_id=commit_id, path=place, attributes=attributes, lfs_server=server)

    def _modules(self, home: Home, special: Mapping[bytes, TreeEntry]) -> dict[bytes, Declared]:
        if not self._choice.submodules or _MODULES not in special:
            return {}
        try:
            return read_declared(home.git_dir, special[_MODULES].object_id)
        except SourceError as error:
            message = f"{display(home.git_dir)}: .gitmodules cannot be read: {error}."
            raise SourceError(f"{message} Leave out --submodules to read the rest.") from error

    def _file(self, tree: Tree, entry: TreeEntry, path: bytes) -> Listed:
        if not self._choice.globs.wants(path):
            # Left at the remote even where an earlier run fetched it: the document must not depend on that.
            unread = entry if tree.home.address is None else replace(entry, num_bytes=None)
            return Listed(tree=tree, entry=unread, path=path, reason="excluded")
        reason = "object_missing" if entry.num_bytes is None else None
        return Listed(tree=tree, entry=entry, path=path, reason=reason)

    def _submodule(
        self, tree: Tree, entry: TreeEntry, path: bytes, modules: Mapping[bytes, Declared], depth: int
    ) -> Iterator[Listed]:
        """The submodule itself and, where it is asked for and may be read, its paths behind it."""
        title = f"commit {entry.object_id}"
        listed = Listed(tree=tree, entry=entry, path=path, title=title)
        if not self._choice.may_want_below(path):
            if self._choice.covers(path):
                yield replace(listed, reason="excluded")
        elif not self._choice.submodules:
            reason = "submodule" if self._choice.globs.wants(path) else "excluded"
            if self._choice.covers(path):
                yield replace(listed, reason=reason)
        else:
            try:
                home = self._found(tree, entry, path, modules.get(entry.path), depth)
            except SubmoduleRefused as refused:
                yield replace(listed, reason=refused.reason, title=f"{title}: {refused}")
                return
            if self._choice.covers(path):
                yield listed
            yield from self.walk(home, entry.object_id, path, depth + 1)

    def _found(self, tree: Tree, entry: TreeEntry, path: bytes, declared: Declared | None, depth: int) -> Home:
        self._num_submodules += 1
        if depth >= DEEPEST_SUBMODULE or self._num_submodules > MOST_SUBMODULES:
            bound = f"deeper than {DEEPEST_SUBMODULE} levels, or the one after {MOST_SUBMODULES:,}"
            raise SubmoduleRefused(bound, "submodule_refused")
        try:
            return find_submodule(tree.home, declared, entry.object_id, self._uses)
        except SubmoduleRefused:
            raise
        except SourceError as error:
            error.args = (f"submodule {display(path)}: {error} Or leave it out with --exclude {display(path)}.",)
            raise


def _is_rules(entry: TreeEntry) -> bool:
    """Whether a file says something of others. A link does not: git does not follow it either."""
    if entry.mode in (SYMLINK, SUBMODULE):
        return False
    return entry.path in (_MODULES, _LFS_CONFIG) or entry.path.rpartition(b"/")[2] == FILE_NAME


def _is_readable(entry: TreeEntry) -> bool:
    return entry.num_bytes is not None and entry.num_bytes <= _LARGEST_RULES


def _lfs_server(home: Home, entry: TreeEntry) -> str | None:
    """The server that a commit names. Raises `SourceError` for one that is not allowed."""
    url = read_settings(home.git_dir, entry.object_id).get("lfs.url")
    if url is None:
        return None
    address = parse_address(url)
    remote = home.remote()
    if address.scheme == "https" or (address.scheme == "http" and remote is not None and remote.scheme == "http"):
        return address.uri
    raise SourceError(
        f"{address.uri}, which .lfsconfig names, is not https. Leave out --lfs to read the pointers alone."
    )


def _with_pointers(listed: Sequence[Listed]) -> list[Listed]:
    """The same paths, each that is an LFS pointer with what it points at."""
    candidates = [
        each
        for each in listed
        if each.is_read and each.entry.mode != SYMLINK and _SHORTEST_POINTER <= each.num_bytes <= LONGEST_POINTER
    ]
    pointers: dict[int, Pointer] = {}  # not by path: a damaged tree may have one twice
    for each, content in zip(candidates, read_contents(candidates), strict=True):
        if content is not None and (pointer := parse_pointer(content)):
            pointers[id(each)] = pointer
    return [replace(each, pointer=pointers.get(id(each))) for each in listed]


def read_contents(listed: Sequence[Listed]) -> Generator[bytes | None, None, None]:
    """The content of each path in turn, one git process for each stretch of paths of one repository."""
    start = 0
    while start < len(listed):
        home, stop = listed[start].tree.home, start
        while stop < len(listed) and listed[stop].tree.home == home:
            stop += 1
        yield from read_objects(home.git_dir, [each.entry.object_id for each in listed[start:stop]])
        start = stop
