"""A git repository at one commit as a document: every path of the commit's tree, in git's order.

How paths become text stands in `connectors.laying`. Neither the commit nor the place of the clone is in the text, so
equal trees give equal texts; NAME is the last part of the repository's own path or address without `.git`. Owns the
reference to a commit, its identity, and the ledger: source bytes are the sizes that git lists, and each must be what
was read. Refuses the work tree: what is not committed is not there.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from connectors.address import Address
from connectors.building import Tiles
from connectors.clones import Uses, healed
from connectors.decode import decoder_version
from connectors.git import GitMissingError, find_git_dir, find_prefix, resolve_commit
from connectors.git_cache import is_unknown
from connectors.globs import Globs
from connectors.home import Home
from connectors.laying import Layer
from connectors.listing import Choice, list_commit
from connectors.remote import RemoteError
from connectors.revisions import resolve_remote
from longdoc.errors import DocumentError, InfrastructureError, SourceError
from longdoc.records import Document, DocumentKind, Segment, Selection, display

# Raise it when the same commit would become another text or other segments.
_VERSION = "git-2"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryRef:
    """One commit of one repository, found but not read. `version` is the commit id."""

    home: Home
    source_uri: str
    revision: str
    version: str
    choice: Choice = field(default_factory=Choice)
    num_bytes_source: int
    kind: DocumentKind = "repository"

    @property
    def doc_id(self) -> str:
        """The repository's address and what was chosen of it, which together choose the text of any commit."""
        chosen = self.choice
        fields = [("path", os.fsdecode(chosen.below))] if chosen.below else []
        fields += [("include", p) for p in sorted(set(chosen.globs.include))]
        fields += [("exclude", p) for p in sorted(set(chosen.globs.exclude))]
        fields += [(name, "1") for name in ("submodules", "lfs") if getattr(chosen, name)]
        query = "&".join(f"{name}={_quoted(value)}" for name, value in fields)
        return f"git:{self.source_uri}{'?' if query else ''}{query}"

    @property
    def connector_version(self) -> str:
        """Changes whenever the same commit may become another text."""
        return f"{_VERSION}+{decoder_version()}"

    @property
    def title(self) -> str:
        """The repository's name, and the path in it that was chosen."""
        below = display(self.choice.below)
        return f"{self._name}/{below}" if below else self._name

    @property
    def _name(self) -> str:
        address = self.home.address
        raw = os.fsencode(os.path.basename(own_folder(self.home.path)) if address is None else address.name)  # noqa: PTH119
        return display(raw.removesuffix(b".git")) or "/"

    def read(self) -> Document:
        """The document. Raises `DocumentError` (reason `unreadable`) where git cannot give what it listed.

        Raises `InfrastructureError` where the machine is at fault, and where git is not installed on it.
        """
        segments: list[Segment] = []
        pieces: list[bytes] = []
        num_bytes = 0
        for laid, tiles in self._lay():
            num_bytes = laid
            for segment, text in tiles:
                segments.append(segment)
                pieces.append(text)
        document = Document(
            kind="repository",
            source_uri=self.source_uri,
            revision=display(self.revision),
            commit_id=self.version,
            title=self.title,
            num_bytes_source=num_bytes,
            text=b"".join(pieces),
            segments=tuple(segments),
        )
        document.check()
        return document

    def stream(self) -> Iterator[tuple[Segment, bytes]]:
        """Every segment with its text in UTF-8, as `read` has them; one file is held at a time. Raises as `read`."""
        for _, tiles in self._lay():
            yield from tiles

    def _lay(self) -> Iterator[tuple[int, list[tuple[Segment, bytes]]]]:
        """Lay the document path by path: the bytes of the source so far, and the path's segments with their text."""
        try:
            yield from healed(self._lay_once)
        except GitMissingError as error:
            raise InfrastructureError(str(error)) from error
        except RemoteError as error:
            if not error.is_lasting:
                raise InfrastructureError(str(error)) from error
            if is_unknown(error):
                message = (
                    f"{self.source_uri} no longer has commit {self.version}, or one that it needs: its history was"
                )
                message = f"{message} rewritten since. Run again to read what is there now.\n{error}"
                raise DocumentError(message, stage="read", reason="unreadable") from error
            raise DocumentError(str(error), stage="read", reason="unreadable") from error
        except SourceError as error:
            raise DocumentError(str(error), stage="read", reason="unreadable") from error

    def _lay_once(self, uses: Uses) -> Iterator[tuple[int, list[tuple[Segment, bytes]]]]:
        tiles = Tiles()
        layer = Layer(tiles, self._name)
        yield layer.num_bytes, tiles.take()
        for _ in layer.lay(list_commit(self.home, self.version, self.choice, uses), uses):
            yield layer.num_bytes, tiles.take()


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositorySource:
    """A repository resolved to one commit: a source of exactly one document."""

    ref: RepositoryRef

    @property
    def source_uri(self) -> str:
        """The repository's own folder as a URI, the same for all its work trees; or its address."""
        return self.ref.source_uri

    def documents(self) -> Iterator[RepositoryRef]:
        """The one document."""
        yield self.ref


def open_repository(path: str, selection: Selection, inside: bytes = b"") -> RepositorySource:
    """The repository that holds the folder `path`: its top, a folder inside, a linked work tree, or bare.

    A folder inside chooses what the commit has below it, and `inside` (a path below the folder) what lies below that.
    Raises `SourceError`: not a repository, not trusted by git, without commits, unknown revision, no such path in the
    commit, or an include glob that matches nothing.
    """
    git_dir = find_git_dir(path)
    commit_id = resolve_commit(path, selection.revision)
    below = b"/".join(part for part in (find_prefix(path), inside) if part)
    uri = Path(own_folder(git_dir)).as_uri()
    with Uses() as uses:  # submodules may be in the cache
        return _open(Home(path=git_dir), uri, commit_id, selection, below, uses, shown=display(path))


def open_remote(address: Address, selection: Selection) -> RepositorySource:
    """The repository at an address, fetched into the cache as far as it is wanted.

    Raises `SourceError`: unknown revision, an include glob that matches nothing; `RemoteError` for what the network
    or the server refuse.
    """

    def open_once(uses: Uses) -> Iterator[RepositorySource]:
        uses.hold(address, is_new=False)
        unread = _reference(Home(address=address), address.uri, "", selection, b"")
        commit_id = resolve_remote(
            address,
            selection.revision,
            lambda commit_id: selection.known(unread.doc_id, commit_id) is not None,
        )
        yield _open(Home(address=address), address.uri, commit_id, selection, b"", uses, shown=address.uri)

    (source,) = healed(open_once)
    return source


def open_commit(home: Home, uri: str, commit_id: str, selection: Selection, below: bytes) -> RepositorySource:
    """A commit whose objects are on this machine, under the address `uri` that it has elsewhere."""
    with Uses() as uses:
        return _open(home, uri, commit_id, selection, below, uses, shown=uri)


def _open(
    home: Home, uri: str, commit_id: str, selection: Selection, below: bytes, uses: Uses, *, shown: str
) -> RepositorySource:
    ref = _reference(home, uri, commit_id, selection, below)
    num_bytes = selection.known(ref.doc_id, commit_id)
    if num_bytes is None:
        num_bytes = _listed_bytes(ref, uses, shown)
    return RepositorySource(ref=replace(ref, num_bytes_source=num_bytes))


def _reference(home: Home, uri: str, commit_id: str, selection: Selection, below: bytes) -> RepositoryRef:
    """A commit of which nothing is known yet but what is wanted of it."""
    globs = Globs(include=selection.include, exclude=selection.exclude)
    return RepositoryRef(
        home=home,
        source_uri=uri,
        revision=selection.revision or "HEAD",
        version=commit_id,
        choice=Choice(globs=globs, below=below, submodules=selection.submodules, lfs=selection.lfs),
        num_bytes_source=0,
    )


def _listed_bytes(ref: RepositoryRef, uses: Uses, shown: str) -> int:
    """The bytes of source of a commit, by its listing. Raises `SourceError` where nothing of it was chosen."""
    commit_id, globs, below = ref.version, ref.choice.globs, ref.choice.below
    listed = list_commit(ref.home, commit_id, ref.choice, uses)
    if below and not listed:
        message = f"{shown}: commit {commit_id[:12]} has no path {display(below)}. Choose another with --revision,"
        raise SourceError(f"{message} or check the spelling; `git ls-tree -r` lists its paths.")
    if unmatched := globs.unmatched_includes([each.path for each in listed]):
        names = ", ".join(repr(pattern) for pattern in unmatched)
        message = f"{shown}: --include {names} matches no path of commit {commit_id[:12]}."
        raise SourceError(f"{message} Globs are over paths from the repository's root; `git ls-tree -r` lists them.")
    return sum(each.num_bytes + (each.pointer.size if each.pointer else 0) for each in listed)


def own_folder(git_dir: str) -> str:
    """The folder that a person calls the repository: the one that holds `.git`, or the bare repository itself."""
    folder, name = os.path.split(git_dir)
    return folder if name == ".git" else git_dir


def _quoted(value: str) -> str:
    # A path of bytes that are no UTF-8 came with lone surrogates; a pattern may hold them as well.
    return quote(value, safe="/*?[]!", errors="surrogatepass")
