r"""How the paths of a repository become segments: a header, then for each file its path, its content and its padding.

The text is `Repository: NAME\n\n`, then for each file `File: PATH\n`, its content, and one newline if the content is
not empty and does not end in one. PATH is the display path: a path holds bytes, and control characters in it are
escaped. Edges between files are offsets in the segments, never found by searching.

Segments are `repository_header`, and for each file `file_header`, its content and `padding`, which share a unit. The
content is a `file`, `vendored_file`, `generated_file` (see `connectors.linguist`), or a `symlink`, whose text is the
link's. What is not text is one segment without text, with a reason: `binary` (see `decode_unless_binary`),
`binary_by_attribute`, `lfs_pointer`, `lfs_missing`, `submodule`, `submodule_refused`, `submodule_missing`,
`object_missing`, `excluded`, or `empty` for a byte-order mark alone.

Owns that layout. Refuses content that is not what git, or the pointer, said it would be.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from connectors.attributes import State
from connectors.building import Origin, Tiles
from connectors.clones import Uses, grown
from connectors.decode import Decoded, decode_unless_binary
from connectors.git import DamagedError
from connectors.git_objects import SUBMODULE, SYMLINK, TreeEntry
from connectors.lfs import LfsStore
from connectors.lfs_pointers import Pointer, parse_pointer
from connectors.linguist import kind_of
from connectors.listing import Listed, read_contents
from longdoc.encodings import MARKS
from longdoc.errors import SourceError, ensure
from longdoc.records import display

_CHUNK = 1 << 20


class Layer:
    """Lays the listed paths of one repository, one by one, onto `tiles`; counts the bytes it found.

    `num_bytes` is what git and the LFS pointers list, summed over the paths, whatever the segments say.
    """

    def __init__(self, tiles: Tiles, name: str) -> None:
        self._tiles = tiles
        self.num_bytes = 0
        # A unit needs an owner to name its spans after; the header has nothing but itself.
        tiles.add(f"Repository: {name}\n\n", kind="repository_header", unit=0, is_content=True)

    def lay(self, listed: Sequence[Listed], uses: Uses) -> Iterator[None]:
        """Lay every path; yields after each. Raises `SourceError` where git or LFS does not give what was listed."""
        stores, missing = _ensure_lfs(listed, uses)
        # Closed when anything fails: git would wait for a reader as long as the error is held.
        with contextlib.closing(read_contents([each for each in listed if each.is_read])) as contents:
            for unit, each in enumerate(listed, start=1):
                self.num_bytes += each.num_bytes
                if not each.is_read:
                    self._add_without_text(unit, each, kind=_kind(each, {}, None), reason=each.reason, title=each.title)
                elif each.pointer is None:
                    self._add_blob(unit, each, _checked(each, next(contents)), reason="lfs_pointer")
                elif each.pointer.oid in missing:
                    self._add_blob(unit, each, _checked(each, next(contents)), reason="lfs_missing")
                else:
                    content = _checked(each, next(contents))
                    self._add_lfs(unit, each, content, each.pointer, stores[id(each.tree)])
                yield
            ensure(next(contents, None) is None, "git gave more objects than were asked for")

    def _add_blob(self, unit: int, each: Listed, content: bytes, *, reason: str) -> None:
        """A file by its own content. `reason` is why a pointer has no other."""
        states = each.tree.attributes.of(each.entry.path)
        sha256 = hashlib.sha256(content).hexdigest()
        pointer = None if each.entry.mode == SYMLINK else parse_pointer(content)
        if pointer is not None:
            kind = _kind(each, states, None)
            self._add_without_text(unit, each, kind=kind, reason=reason, title=pointer.title, sha256=sha256)
            return
        self._add_content(unit, each, content, states, Origin(
            path=each.path, num_bytes=len(content), sha256=sha256, blob_id=each.entry.object_id
        ))  # fmt: skip

    def _add_lfs(self, unit: int, each: Listed, content: bytes, pointer: Pointer, store: LfsStore) -> None:
        """A file by the content that its pointer stands for, and the pointer, which is bytes of the source too."""
        self.num_bytes += pointer.size
        states = each.tree.attributes.of(each.entry.path)
        path = store.find(pointer)
        if path is None:
            raise SourceError(f"LFS object {pointer.oid} of {display(each.path)} is gone from the cache. Run again.")
        if _is_binary(path):
            origin = Origin(path=each.path, num_bytes=pointer.size, sha256=pointer.oid)
            kind = _kind(each, states, None)
            self._tiles.add(kind=kind, unit=unit, is_content=True, reason="binary", title=pointer.title, origin=origin)
        else:
            raw = path.read_bytes()
            # The id that the content would have in git: it names the content, as any blob id does.
            blob_id = _object_id(raw, like=each.entry.object_id)
            origin = Origin(path=each.path, num_bytes=len(raw), sha256=pointer.oid, blob_id=blob_id)
            self._add_content(unit, each, raw, states, origin)
        own = Origin(
            path=each.path,
            num_bytes=each.num_bytes,
            sha256=hashlib.sha256(content).hexdigest(),
            blob_id=each.entry.object_id,
        )
        self._tiles.add(kind="lfs_pointer", unit=unit, reason="lfs_pointer", title=pointer.title, origin=own)

    def _add_content(
        self, unit: int, each: Listed, content: bytes, states: Mapping[bytes, State], origin: Origin
    ) -> None:
        decoded = _decode(each.entry, content, states)
        if isinstance(decoded, str):
            kind = _kind(each, states, None)
            self._tiles.add(kind=kind, unit=unit, is_content=True, reason=decoded, origin=origin)
            return
        text, beside = decoded.text, Origin(path=each.path)
        whole = Origin(
            path=origin.path,
            encoding=decoded.encoding,
            encoding_source=decoded.encoding_source,
            num_bytes=origin.num_bytes,
            sha256=origin.sha256,
            blob_id=origin.blob_id,
        )
        self._tiles.add(f"File: {display(each.path)}\n", kind="file_header", unit=unit, origin=beside)
        # A byte-order mark alone is source bytes without text, and those carry a reason.
        reason = "empty" if content and not text else None
        utf8 = content if decoded.encoding == "utf-8" else None
        kind = _kind(each, states, text)
        self._tiles.add(text, kind=kind, unit=unit, is_content=True, reason=reason, origin=whole, utf8=utf8)
        if text and not text.endswith("\n"):
            self._tiles.add("\n", kind="padding", unit=unit, origin=beside)

    def _add_without_text(
        self,
        unit: int,
        each: Listed,
        *,
        kind: str,
        reason: str | None,
        title: str | None = None,
        sha256: str | None = None,
    ) -> None:
        origin = Origin(path=each.path, num_bytes=each.num_bytes, sha256=sha256, blob_id=each.entry.object_id)
        self._tiles.add(kind=kind, unit=unit, is_content=True, title=title, reason=reason, origin=origin)


def _decode(entry: TreeEntry, content: bytes, states: Mapping[bytes, State]) -> Decoded | str:
    """The text of a file, or the reason why it has none."""
    if entry.mode == SYMLINK:
        return decode_unless_binary(content) or "binary"
    encoding = states.get(b"working-tree-encoding")
    declared = encoding.decode("ascii", errors="replace") if isinstance(encoding, bytes) else None
    decoded = decode_unless_binary(content, declared=declared, is_text=states.get(b"text") is True)
    if decoded is None:
        return "binary"
    # What git's own `binary` stands for. Either alone says only how lines end, or that differences are not shown.
    is_said = states.get(b"diff") is False and states.get(b"text") is False
    return "binary_by_attribute" if is_said and content else decoded


def _kind(each: Listed, states: Mapping[bytes, State], text: str | None) -> str:
    if each.entry.mode == SUBMODULE:
        return "submodule"
    return "symlink" if each.entry.mode == SYMLINK else kind_of(each.entry.path, states, text)


def _checked(each: Listed, content: bytes | None) -> bytes:
    """The content, if it is what was listed. `git cat-file` does not compare an object with its id, so this does."""
    object_id, git_dir = each.entry.object_id, each.tree.home.git_dir
    place = display(git_dir)
    if content is None or len(content) != each.entry.num_bytes:
        found = "is missing" if content is None else f"has {len(content)} bytes"
        message = f"{place}: object {object_id} was listed with {each.entry.num_bytes} bytes and {found} now."
        raise DamagedError(f"{message} Run again when nothing repacks the repository, or try `git fsck`.", git_dir)
    if _object_id(content, like=object_id) != object_id:
        message = f"{place}: object {object_id} is damaged: its content has another id. Try `git fsck`."
        raise DamagedError(message, git_dir)
    return content


def _object_id(content: bytes, *, like: str) -> str:
    """Git's id of a blob, by the hash that the repository uses."""
    digest = hashlib.sha1(usedforsecurity=False) if len(like) == 40 else hashlib.sha256()
    # https://git-scm.com/book/en/v2/Git-Internals-Git-Objects
    digest.update(b"blob %d\0" % len(content))
    digest.update(content)
    return digest.hexdigest()


def _ensure_lfs(listed: Sequence[Listed], uses: Uses) -> tuple[dict[int, LfsStore], set[str]]:
    """The store of each tree that has pointers, with their content in it; and the oids that no server has."""
    by_tree: dict[int, list[Listed]] = {}
    for each in listed:
        if each.pointer is not None:
            by_tree.setdefault(id(each.tree), []).append(each)
    stores, missing = {}, set[str]()
    for tree_id, some in by_tree.items():
        tree = some[0].tree
        store = stores[tree_id] = tree.home.lfs_store(tree.lfs_server)
        if store.address is not None:
            uses.hold(store.address)
        missing |= store.ensure(each.pointer for each in some if each.pointer is not None)
        if store.address is not None:
            grown(store.address)
    return stores, missing


def _is_binary(path: Path) -> bool:
    """Whether a file, of any size, holds a NUL and no mark of an encoding that has them: it need not be read whole."""
    with path.open("rb") as file:
        first = file.read(_CHUNK)
        if any(first.startswith(mark) for mark, _, _ in MARKS):
            return False
        while first:
            if b"\0" in first:
                return True
            first = file.read(_CHUNK)
    return False
