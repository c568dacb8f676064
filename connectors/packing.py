"""Which files carry a source to another machine, where `connectors.shipped` reads them.

Owns the list of files and the pack of a repository: the objects of one commit, without its history, read by object id
from the repository as every other reading does. No ignore rule has a say. Refuses what needs more than the commit's own
objects: submodules and Git LFS.
"""

import json
import os
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from connectors.books import BookRef
from connectors.git import run
from connectors.repository import RepositoryRef, own_folder
from connectors.shipped import MARK, MARK_VERSION
from connectors.stdin import StdinRef
from longdoc.errors import SourceError
from longdoc.records import DocumentRef, Source, Unreadable, display

# By the length of its object ids, see gitrepository-layout(5) and git-config(1), extensions.objectFormat.
_CONFIGS = {
    40: b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n",
    64: b"[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectformat = sha256\n",
}
_BRANCH = "refs/heads/longdoc"
# A name becomes one of an archive's members and a folder elsewhere.
_PLAIN_NAME = re.compile(r"[^/\\\x00-\x1f\x7f\ud800-\udfff]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedFile:
    """One file of a shipped folder: `name` inside it, `label` for people, and the bytes, at `path` or in `content`.

    `sha256` is set where the bytes must be the ones that were listed.
    """

    name: str
    label: str
    path: Path | None = None
    content: bytes = b""
    sha256: str | None = None


def pack(source: Source, folder: Path) -> list[PackedFile]:
    """The files that carry a source; those that must be made are made in the empty `folder`.

    Raises `SourceError` for what cannot be read without more than the source holds itself.
    """
    files: list[PackedFile] = []
    entries, kind = [], "book"
    for number, ref in enumerate(source.documents(), 1):
        if isinstance(ref, Unreadable):
            entries.append({"unreadable": asdict(ref)})
        elif isinstance(ref, RepositoryRef):
            kind = "repository"
            entries.append(_pack_commit(ref, folder, files))
        else:
            entries.append(_pack_book(ref, f"{number:06d}", folder, files))
    mark = {"version": MARK_VERSION, "kind": kind, "source_uri": source.source_uri, "documents": entries}
    content = json.dumps(mark, indent=1).encode("ascii")
    return [PackedFile(name=MARK, label=f"list of {display(source.source_uri)}", content=content), *files]


def _pack_book(ref: DocumentRef, name: str, folder: Path, files: list[PackedFile]) -> dict[str, Any]:
    if isinstance(ref, StdinRef):
        # Its own copy goes when its source does.
        path, home = Path(shutil.copyfile(ref.path, folder / name)), "stdin"
    elif isinstance(ref, BookRef):
        path, home = Path(ref.path), ref.path
    else:
        raise SourceError(
            f"{display(ref.source_uri)} cannot be sent to another machine. Put it where that can read it."
        )
    files.append(PackedFile(name=name, label=display(home), path=path, sha256=ref.version))
    return {"file": name, "path": home, "uri": ref.doc_id, "sha256": ref.version}


def _pack_commit(ref: RepositoryRef, folder: Path, files: list[PackedFile]) -> dict[str, Any]:
    shown = display(ref.source_uri)
    if ref.choice.submodules or ref.choice.lfs:
        option = "--submodules" if ref.choice.submodules else "--lfs"
        cause = f"{shown}: with {option} it needs more than its own objects, and only those are sent."
        raise SourceError(f"{cause} Push it and name its URL, or leave out {option}.")
    name = os.path.basename(own_folder(ref.home.path))  # noqa: PTH119, the path may hold any bytes
    if _PLAIN_NAME.fullmatch(name) is None:
        cause = f"{shown}: its name, which is part of its text, cannot be a folder's everywhere."
        raise SourceError(f"{cause} Push it and name its URL.")
    git_dir = f"{name}/.git"
    small = {
        "HEAD": f"ref: {_BRANCH}\n".encode(),
        "config": _CONFIGS[len(ref.version)],
        "shallow": f"{ref.version}\n".encode(),
        _BRANCH: f"{ref.version}\n".encode(),
    }
    files += [
        PackedFile(name=f"{git_dir}/{inside}", label=f"{shown}: {inside}", content=small[inside]) for inside in small
    ]
    files += [
        PackedFile(name=f"{git_dir}/objects/pack/{path.name}", label=f"{shown}: objects ({path.suffix[1:]})", path=path)
        for path in _make_pack(ref, folder)
    ]
    return {"git_dir": git_dir, "uri": ref.source_uri, "commit": ref.version, "below": ref.choice.below.hex()}


def _make_pack(ref: RepositoryRef, folder: Path) -> list[Path]:
    """The pack and its index. What the repository lacks itself, a partial clone's blobs, is lacking in the pack too."""
    git_dir = f"--git-dir={ref.home.git_dir}"
    listing = folder / "objects.txt"
    arguments = ["rev-list", "--objects", "--no-object-names", "--no-walk", "--missing=allow-any", ref.version]
    status, output, error = run([git_dir, *arguments])
    if status == 0:
        listing.write_bytes(output)
        # One thread: the same commit makes the same pack, which is then uploaded once.
        with listing.open("rb") as stdin:
            status, _, error = run(
                [git_dir, "pack-objects", "--quiet", "--threads=1", str(folder / "pack")], stdin=stdin
            )
    if status != 0:
        message = f"{display(ref.source_uri)}: commit {ref.version[:12]} cannot be packed: git says {error!r}."
        raise SourceError(f"{message} `git fsck` names what is damaged.")
    return sorted(folder.glob("pack-*.pack")) + sorted(folder.glob("pack-*.idx"))
