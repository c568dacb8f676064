"""Trees and blobs of a repository, read by object id: what a commit holds, and the content of any of it.

Owns the formats of `git ls-tree` and `git cat-file`. Refuses to fetch: an object that is not here is missing, even
where the repository knows a remote that would have it.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from connectors.git import DamagedError, execute, refuse_killed, run, said
from longdoc.errors import SourceError
from longdoc.records import display

if TYPE_CHECKING:
    from git import Git

SYMLINK, SUBMODULE = "120000", "160000"
# Ids written at once must fit in a pipe (16 KiB on macOS), or git and its reader would wait for each other.
_IDS_AT_ONCE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """One path of a commit. `mode` is git's, in octal digits; `num_bytes` is None where the object is not here."""

    mode: str
    object_id: str
    path: bytes
    num_bytes: int | None


def list_tree(git_dir: str, commit_id: str) -> list[TreeEntry]:
    """Every path of a commit below its root, in git's order. Raises `DamagedError` where it cannot be listed."""
    command = [f"--git-dir={git_dir}", "ls-tree", "-r", "-z", "--full-tree"]
    status, output, _ = run([*command, "-l", commit_id])
    if status == 0:
        return [_tree_entry(line) for line in output.split(b"\0")[:-1]]
    # Where objects were left at the remote, git stops at the first of them for want of its size.
    status, output, error = run([*command, commit_id])
    if "not a git repository" in error:
        message = f"{display(git_dir)} is no git repository any more: it was moved or removed since it was found."
        raise DamagedError(f"{message} Run again with the place where it is now.", git_dir)
    if status != 0:
        message = f"{display(git_dir)}: commit {commit_id} cannot be listed: git says {error!r}. Try `git fsck`;"
        advice = "for a partial clone, fetch the rest with `git fetch --refetch --no-filter`."
        raise DamagedError(f"{message} {advice}", git_dir)
    here = _sizes_here(git_dir)
    entries = []
    for line in output.split(b"\0")[:-1]:
        facts, path = line.split(b"\t", 1)
        size = str(here.get(facts.split()[2].decode("ascii"), "BAD"))
        entries.append(_tree_entry(facts + b" " + size.encode("ascii") + b"\t" + path))
    return entries


def _sizes_here(git_dir: str) -> dict[str, int]:
    # All of them, because git 2.39 dies of the first missing one that it is asked for in a partial clone.
    command = [f"--git-dir={git_dir}", "cat-file", "--batch-all-objects", "--unordered"]
    status, output, error = run([*command, "--batch-check=%(objectname) %(objectsize)"])
    if status != 0:
        message = f"{display(git_dir)}: its objects cannot be listed: git says {error!r}. Try `git fsck`."
        raise DamagedError(message, git_dir)
    lines = (line.split() for line in output.splitlines())
    return {name.decode("ascii"): int(size) for name, size in lines}


def _tree_entry(line: bytes) -> TreeEntry:
    # <mode> SP <type> SP <object> SP+ <size> TAB <path>; the size is "-" for a commit, "BAD" for a missing blob.
    facts, path = line.split(b"\t", 1)
    mode, _, object_id, size = facts.decode("ascii").split()
    num_bytes = int(size) if size.isdigit() else 0 if mode == SUBMODULE else None
    return TreeEntry(mode=mode, object_id=object_id, path=path, num_bytes=num_bytes)


def read_objects(git_dir: str, object_ids: Sequence[str]) -> Iterator[bytes | None]:
    """The content of each object in turn, None for one that is not here. One git process serves them all.

    Raises `DamagedError` where git stops, for instance at a damaged object.
    """
    process = execute([f"--git-dir={git_dir}", "cat-file", "--batch"], as_process=True, istream=subprocess.PIPE)
    try:
        for start in range(0, len(object_ids), _IDS_AT_ONCE):
            batch = object_ids[start : start + _IDS_AT_ONCE]
            with contextlib.suppress(BrokenPipeError):  # the answer that then fails to come says why
                process.stdin.write("".join(f"{object_id}\n" for object_id in batch).encode("ascii"))
                process.stdin.flush()
            for object_id in batch:
                yield _read_object(process, git_dir, object_id)
    finally:
        _end(process)


def _read_object(process: "Git.AutoInterrupt", git_dir: str, object_id: str) -> bytes | None:
    # <object> SP <type> SP <size> LF <content> LF, or <object> SP missing LF.
    header = process.stdout.readline().split()
    if header[1:] == [b"missing"]:
        return None
    if len(header) == 3:
        num_bytes = int(header[2])
        content: bytes = process.stdout.read(num_bytes + 1)
        if len(content) == num_bytes + 1:
            return content[:-1]
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()  # so that git ends, and with it what it says
    error = said(process.stderr.read())
    refuse_killed(process.proc.wait() if process.proc else 0, git_dir)
    message = f"{display(git_dir)}: object {object_id} cannot be read: git says {error!r}. Try `git fsck`."
    raise DamagedError(message, git_dir)


def _end(process: "Git.AutoInterrupt") -> None:
    """Let git go, also in the middle of an answer: it ends at the end of its input, or for want of a reader."""
    from git.exc import GitCommandError

    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.stdout.close()
    with contextlib.suppress(GitCommandError):
        process.wait()
    process.stderr.close()


def missing_objects(git_dir: str, object_ids: Iterable[str]) -> list[str]:
    """The ids of which there is no object here, in the order given, each once."""
    here = _sizes_here(git_dir)
    return [object_id for object_id in dict.fromkeys(object_ids) if object_id not in here]


def read_settings(git_dir: str, object_id: str) -> dict[str, str]:
    """A file in the format of git's own configuration (`.gitmodules`, `.lfsconfig`); the last value of each name.

    Nothing that it includes is read. Raises `SourceError` where the file is not in that format.
    """
    command = [f"--git-dir={git_dir}", "config", f"--blob={object_id}", "-z", "--no-includes", "--list"]
    status, output, error = run(command)
    if status != 0:
        raise SourceError(f"git says {error!r}")
    # <name> LF <value> NUL, or <name> NUL for a name without a value.
    pairs = (record.partition(b"\n") for record in output.split(b"\0")[:-1])
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
