"""Builds git repositories for tests out of exact bytes, through git's own plumbing."""

import hashlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from book_checks import check_reasons

from connectors.repository import open_repository
from longdoc.records import Document, Segment, Selection

_ENVIRONMENT = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_AUTHOR_DATE": "2001-02-03T04:05:06Z",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_COMMITTER_DATE": "2001-02-03T04:05:06Z",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}

REGULAR, EXECUTABLE, SYMLINK, SUBMODULE = "100644", "100755", "120000", "160000"


def run_git(folder: Path, *arguments: str | bytes, stdin: bytes = b"", **environment: str) -> bytes:
    """One git command in a folder; its output. Raises where git fails."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        input=stdin,
        capture_output=True,
        check=True,
        env=env | _ENVIRONMENT | environment,
    )
    return done.stdout


def new_repository(folder: Path, *, bare: bool = False) -> Path:
    """An empty repository with the branch main, in which paths of any bytes are allowed."""
    folder.mkdir(parents=True)
    run_git(folder, "init", "-q", "-b", "main", *(["--bare"] if bare else []))
    run_git(folder, "config", "core.protectNTFS", "false")
    run_git(folder, "config", "core.protectHFS", "false")
    return folder


def write_blob(folder: Path, content: bytes) -> str:
    """Store one object; its id."""
    return run_git(folder, "hash-object", "-w", "--stdin", stdin=content).decode().strip()


def commit_entries(
    folder: Path, entries: Mapping[bytes, tuple[str, str]], *, branch: str = "main", parents: Sequence[str] = ()
) -> str:
    """Commit exactly these paths, each with its mode and object id; the commit id. The work tree is not touched."""
    git_dir = folder / os.fsdecode(run_git(folder, "rev-parse", "--git-dir").strip())
    index = {"GIT_INDEX_FILE": str(git_dir / "test-index"), "GIT_DIR": str(git_dir)}
    (git_dir / "test-index").unlink(missing_ok=True)
    lines = b"".join(f"{mode} {name}\t".encode() + path + b"\0" for path, (mode, name) in entries.items())
    run_git(folder, "update-index", "-z", "--index-info", stdin=lines, **index)
    tree = run_git(folder, "write-tree", "--missing-ok", **index).decode().strip()
    before = [part for each in parents for part in ("-p", each)]
    commit = run_git(folder, "commit-tree", tree, "-m", "test", *before).decode().strip()
    run_git(folder, "update-ref", f"refs/heads/{branch}", commit)
    return commit


def commit_files(
    folder: Path, files: Mapping[str | bytes, bytes], *, branch: str = "main", parents: Sequence[str] = ()
) -> str:
    """Commit regular files of these contents."""
    return commit_entries(
        folder,
        {os.fsencode(path): (REGULAR, write_blob(folder, content)) for path, content in files.items()},
        branch=branch,
        parents=parents,
    )


def read(path: Path, **selection: object) -> Document:
    """The document of a repository."""
    document = open_repository(str(path), Selection(**selection)).ref.read()  # type: ignore[arg-type]  # shorthand
    check_reasons(document)
    return document


def content_segments(document: Document) -> dict[bytes, Segment]:
    """The segments of a document's files by path."""
    return {s.path: s for s in document.segments if s.is_content and s.path is not None}


def git_blob_id(content: bytes) -> str:
    """Git's id of a blob, by its definition."""
    # https://git-scm.com/book/en/v2/Git-Internals-Git-Objects
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
