r"""A git repository at one commit as a document: every path of the commit's tree, in git's order.

The text is `Repository: NAME\n\n`, then for each file `File: PATH\n`, its content, and one newline if the content is
not empty and does not end in one. NAME is the last part of the repository's own path without `.git`; neither the commit
nor the place of the clone is in the text, so equal trees give equal texts. PATH is the display path: a path holds
bytes, and control characters in it are escaped. Edges between files are offsets in the segments, never found by
searching.

Segments are `repository_header`, and for each file `file_header`, `file` (or `symlink`, whose text is the link's) and
`padding`, which share a unit. What is not text is one segment without text, with a reason: `binary` (see
`decode_unless_binary`), `lfs_pointer`, `submodule`, `object_missing`, or `excluded` by the globs.

Owns that layout and the ledger: source bytes are the sizes that git lists, and each must be what was read. Refuses the
work tree: what is not committed is not there.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from connectors.building import Origin, Tiles
from connectors.decode import decode_unless_binary, decoder_version
from connectors.git import GitMissingError, find_git_dir, resolve_commit
from connectors.git_objects import TreeEntry, list_tree, read_objects
from connectors.globs import Globs
from longdoc.errors import DocumentError, InfrastructureError, SourceError, ensure
from longdoc.records import Document, DocumentKind, Selection, display

# Raise it when the same commit would become another text or other segments.
_VERSION = "git-1"
_SYMLINK, _SUBMODULE = "120000", "160000"

# https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md: under 1024 bytes, `version` first, then sorted keys.
_LFS_LONGEST = 1024
_LFS_POINTER = re.compile(
    rb"version https://(?:git-lfs\.github\.com|hawser\.github\.com)/spec/v\d\n(?:[a-z0-9.-]+ [^\n]*\n)*?"
    rb"oid (?P<oid>sha256:[0-9a-f]{64})\n(?:[a-z0-9.-]+ [^\n]*\n)*?size (?P<size>\d+)\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryRef:
    """One commit of one repository, found but not read. `version` is the commit id."""

    git_dir: str
    source_uri: str
    revision: str
    version: str
    globs: Globs
    num_bytes_source: int
    kind: DocumentKind = "repository"

    @property
    def doc_id(self) -> str:
        """The repository's address and the globs, which together choose the text of any commit."""
        globs = [("include", p) for p in sorted(set(self.globs.include))]
        globs += [("exclude", p) for p in sorted(set(self.globs.exclude))]
        query = "&".join(f"{name}={_quoted(pattern)}" for name, pattern in globs)
        return f"git:{self.source_uri}{'?' if query else ''}{query}"

    @property
    def connector_version(self) -> str:
        """Changes whenever the same commit may become another text."""
        return f"{_VERSION}+{decoder_version()}"

    def read(self) -> Document:
        """The document. Raises `DocumentError` (reason `unreadable`) where git cannot give what it listed.

        Raises `InfrastructureError` where the machine is at fault, and where git is not installed on it.
        """
        try:
            entries = list_tree(self.git_dir, self.version)
            tiles = _tiles(self.git_dir, entries, self.globs)
        except GitMissingError as error:
            raise InfrastructureError(str(error)) from error
        except SourceError as error:
            raise DocumentError(str(error), stage="read", reason="unreadable") from error
        document = Document(
            kind="repository",
            source_uri=self.source_uri,
            revision=display(self.revision),
            commit_id=self.version,
            title=_name(self.git_dir),
            num_bytes_source=_num_bytes(entries),
            text=tiles.text(),
            segments=tuple(tiles.segments),
        )
        document.check()
        return document


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositorySource:
    """A repository resolved to one commit: a source of exactly one document."""

    ref: RepositoryRef

    @property
    def source_uri(self) -> str:
        """The repository's own folder as a URI; the same for all its work trees."""
        return self.ref.source_uri

    def documents(self) -> Iterator[RepositoryRef]:
        """The one document."""
        yield self.ref


def open_repository(path: str, selection: Selection) -> RepositorySource:
    """The repository that holds `path`, which may be its top, a folder inside, a linked work tree, or bare.

    Raises `SourceError`: not a repository, not trusted by git, without commits, unknown revision, or an include glob
    that matches nothing.
    """
    git_dir = find_git_dir(path)
    commit_id = resolve_commit(path, selection.revision)
    globs = Globs(include=selection.include, exclude=selection.exclude)
    entries = list_tree(git_dir, commit_id)
    if unmatched := globs.unmatched_includes([entry.path for entry in entries]):
        names = ", ".join(repr(pattern) for pattern in unmatched)
        message = f"{display(path)}: --include {names} matches no path of commit {commit_id[:12]}."
        raise SourceError(f"{message} Globs are over paths from the repository's root; `git ls-tree -r` lists them.")
    ref = RepositoryRef(
        git_dir=git_dir,
        source_uri=Path(_own_folder(git_dir)).as_uri(),
        revision=selection.revision or "HEAD",
        version=commit_id,
        globs=globs,
        num_bytes_source=_num_bytes(entries),
    )
    return RepositorySource(ref=ref)


def _own_folder(git_dir: str) -> str:
    folder, name = os.path.split(git_dir)
    return folder if name == ".git" else git_dir


def _name(git_dir: str) -> str:
    raw = os.fsencode(os.path.basename(_own_folder(git_dir)))  # noqa: PTH119, it may hold bytes that are no text
    return display(raw.removesuffix(b".git")) or "/"


def _quoted(pattern: str) -> str:
    return quote(pattern, safe="/*?[]!", errors="surrogatepass")


def _num_bytes(entries: Sequence[TreeEntry]) -> int:
    return sum(entry.num_bytes or 0 for entry in entries)


def _tiles(git_dir: str, entries: Sequence[TreeEntry], globs: Globs) -> Tiles:
    wanted = [entry for entry in entries if globs.wants(entry.path)]
    contents = read_objects(git_dir, [entry.object_id for entry in wanted if _is_here(entry)])
    unread = {entry.path for entry in entries} - {entry.path for entry in wanted}
    tiles = Tiles()
    # A unit needs an owner to name its spans after; the header has nothing but itself.
    tiles.add(f"Repository: {_name(git_dir)}\n\n", kind="repository_header", unit=0, is_content=True)
    for unit, entry in enumerate(entries, start=1):
        if entry.path in unread:
            _add_without_text(tiles, unit, entry, reason="excluded")
        elif entry.mode == _SUBMODULE:
            _add_without_text(tiles, unit, entry, reason="submodule", title=f"commit {entry.object_id}")
        elif not _is_here(entry):
            _add_without_text(tiles, unit, entry, reason="object_missing")
        else:
            _add_blob(tiles, unit, entry, _checked(entry, next(contents), git_dir))
    ensure(next(contents, None) is None, "git gave more objects than were asked for")
    return tiles


def _is_here(entry: TreeEntry) -> bool:
    return entry.mode != _SUBMODULE and entry.num_bytes is not None


def _checked(entry: TreeEntry, content: bytes | None, git_dir: str) -> bytes:
    """The content, if it is what was listed. `git cat-file` does not compare an object with its id, so this does."""
    if content is None or len(content) != entry.num_bytes:
        found = "is missing" if content is None else f"has {len(content)} bytes"
        message = (
            f"{display(git_dir)}: object {entry.object_id} was listed with {entry.num_bytes} bytes and {found} now."
        )
        raise SourceError(f"{message} Run again when nothing repacks the repository, or try `git fsck`.")
    if _object_id(content, like=entry.object_id) != entry.object_id:
        raise SourceError(
            f"{display(git_dir)}: object {entry.object_id} is damaged: its content has another id. Try `git fsck`."
        )
    return content


def _object_id(content: bytes, *, like: str) -> str:
    """Git's id of a blob, by the hash that the repository uses."""
    digest = hashlib.sha1(usedforsecurity=False) if len(like) == 40 else hashlib.sha256()
    # https://git-scm.com/book/en/v2/Git-Internals-Git-Objects
    digest.update(b"blob %d\0" % len(content))
    digest.update(content)
    return digest.hexdigest()


def _add_blob(tiles: Tiles, unit: int, entry: TreeEntry, content: bytes) -> None:
    sha256 = hashlib.sha256(content).hexdigest()
    if title := _lfs_title(entry, content):
        _add_without_text(tiles, unit, entry, reason="lfs_pointer", title=title, sha256=sha256)
        return
    decoded = decode_unless_binary(content)
    if decoded is None:
        _add_without_text(tiles, unit, entry, reason="binary", sha256=sha256)
        return
    origin = Origin(
        path=entry.path,
        encoding=decoded.encoding,
        encoding_source=decoded.encoding_source,
        num_bytes=len(content),
        sha256=sha256,
        blob_id=entry.object_id,
    )
    beside = Origin(path=entry.path)
    tiles.add(f"File: {display(entry.path)}\n", kind="file_header", unit=unit, origin=beside)
    # A byte-order mark alone is source bytes without text, and those carry a reason.
    reason = "empty" if content and not decoded.text else None
    tiles.add(decoded.text, kind=_kind(entry), unit=unit, is_content=True, reason=reason, origin=origin)
    if decoded.text and not decoded.text.endswith("\n"):
        tiles.add("\n", kind="padding", unit=unit, origin=beside)


def _add_without_text(
    tiles: Tiles, unit: int, entry: TreeEntry, *, reason: str, title: str | None = None, sha256: str | None = None
) -> None:
    origin = Origin(path=entry.path, num_bytes=entry.num_bytes or 0, sha256=sha256, blob_id=entry.object_id)
    tiles.add(kind=_kind(entry), unit=unit, is_content=True, title=title, reason=reason, origin=origin)


def _kind(entry: TreeEntry) -> str:
    return {_SYMLINK: "symlink", _SUBMODULE: "submodule"}.get(entry.mode, "file")


def _lfs_title(entry: TreeEntry, content: bytes) -> str | None:
    """What a Git LFS pointer points at, or None for any other file."""
    if entry.mode == _SYMLINK or len(content) >= _LFS_LONGEST or not (match := _LFS_POINTER.fullmatch(content)):
        return None
    return f"oid {match['oid'].decode('ascii')}, size {match['size'].decode('ascii')}"
