"""The one door to git: GitPython's command interface over the installed git, read-only, by object id.

Owns the environment that git runs in, every message that comes from git, and whether it means the repository or the
machine: a bad disk or a full memory is an `InfrastructureError`, whatever was being read. Refuses the network (no
protocol is allowed, no object is fetched on demand), the work tree, replacement objects, prompts and locks. Arguments
that a user gives are never read as options. Nothing here runs a hook: the commands used have none.
"""

import contextlib
import difflib
import errno
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from longdoc.errors import InfrastructureError, SourceError, ensure
from longdoc.records import display

if TYPE_CHECKING:
    from git import Git

# GIT_NO_LAZY_FETCH came with git 2.39.4; GIT_ALLOW_PROTOCOL with no protocol in it does the same in older ones.
_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}
# Set by git for its hooks, and by some users: they would point every command below at another repository.
_MISLEADING = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
)
_OPTIONS = ("--no-replace-objects", "--no-pager")
# To the last @ of what has no white space in it: passwords hold @, / and quotes. Taking too much shows nothing.
_CREDENTIALS = re.compile(r"(?<=://)\S*@")
# What git prints for these is the C library's text, because GitPython sets LC_ALL=C.
_MACHINE_ERRNOS = (
    *("EAGAIN", "EHOSTDOWN", "EIO", "EMFILE", "ENFILE", "ENOMEM", "ENOSPC", "ENOTCONN", "EREMOTEIO", "ESTALE"),
    "ETIMEDOUT",
)
_MACHINE_FAULTS = (
    "Out of memory",
    *(os.strerror(getattr(errno, name)) for name in _MACHINE_ERRNOS if hasattr(errno, name)),
)
_COMMAND_NOT_FOUND = 127
_MISSING = "git is not installed, or not on PATH. Install git 2.31 or newer to read repositories."
# Ids written at once must fit in a pipe (16 KiB on macOS), or git and its reader would wait for each other.
_IDS_AT_ONCE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """One path of a commit. `mode` is git's, in octal digits; `num_bytes` is None where the object is not here."""

    mode: str
    object_id: str
    path: bytes
    num_bytes: int | None


class GitMissingError(SourceError):
    """git is not installed, which is no fault of any repository."""


def without_credentials(text: str) -> str:
    """`text` with user names and passwords taken out of its URLs."""
    return _CREDENTIALS.sub("", text)


def is_repository(path: str) -> bool:
    """Whether a folder looks like the top of a repository: a work tree, a linked one, or a bare repository."""
    if os.path.lexists(os.path.join(path, ".git")):  # noqa: PTH118, path may hold bytes that are no text
        return True
    return all(os.path.exists(os.path.join(path, name)) for name in ("HEAD", "objects", "refs"))  # noqa: PTH110, PTH118


def find_git_dir(path: str) -> str:
    """The common git directory of the repository that holds `path`, absolute. Raises `SourceError` with git's words."""
    status, output, error = _run(["-C", path, "rev-parse", "--path-format=absolute", "--git-common-dir"])
    if status == 0:
        return os.path.realpath(os.fsdecode(output.removesuffix(b"\n")))
    if "dubious ownership" in error:
        raise SourceError(f"{display(path)} belongs to another user, so git does not trust it.\n{error}")
    message = (
        f"{display(path)} is not a git repository: git says {error!r}. Name a folder that git clone or git init made"
    )
    raise SourceError(f"{message}, or use --kind book for a folder of books.")


def resolve_commit(path: str, revision: str | None) -> str:
    """The commit id that a revision (None: HEAD, of this very work tree) names now. Raises `SourceError`."""
    wanted = "HEAD" if revision is None else revision
    if "\0" in wanted:
        raise SourceError(f"{display(path)} has no commit that {revision!r} names: no revision holds a NUL character.")
    command = ["-C", path, "rev-parse", "--verify", "--end-of-options", f"{wanted}^{{commit}}"]
    status, output, error = _run(command)
    if status != 0:
        raise _no_such_commit(path, revision, error)
    return output.decode("ascii").strip()


def _no_such_commit(path: str, revision: str | None, error: str) -> SourceError:
    names, shown = _names(path), display(path)
    if not names and _run(["-C", path, "rev-parse", "--verify", "HEAD"])[0] != 0:
        return SourceError(f"{shown} has no commits yet. Commit something, then run again.")
    if revision is None:
        return SourceError(f"{shown}: HEAD names no commit. Choose one with --revision, for example {names[0]!r}.")
    near = difflib.get_close_matches(revision, names, n=3)
    hint = f" Near it: {', '.join(near)}." if near else ""
    message = f"{shown} has no commit that {revision!r} names: git says {error!r}.{hint}"
    return SourceError(f"{message} `git branch -a`, `git tag` and `git log` list what it has.")


def _names(path: str) -> list[str]:
    _, output, _ = _run(["-C", path, "for-each-ref", "--format=%(refname:short)"])
    return output.decode("utf-8", errors="replace").split()


def list_tree(git_dir: str, commit_id: str) -> list[TreeEntry]:
    """Every path of a commit below its root, in git's order. Raises `SourceError` where the commit cannot be listed."""
    command = [f"--git-dir={git_dir}", "ls-tree", "-r", "-z", "--full-tree"]
    status, output, _ = _run([*command, "-l", commit_id])
    if status == 0:
        return [_tree_entry(line) for line in output.split(b"\0")[:-1]]
    # Where objects were left at the remote, git stops at the first of them for want of its size.
    status, output, error = _run([*command, commit_id])
    if status != 0:
        message = f"{display(git_dir)}: commit {commit_id} cannot be listed: git says {error!r}. Try `git fsck`;"
        raise SourceError(f"{message} for a partial clone, fetch the rest with `git fetch --refetch --no-filter`.")
    here = _sizes_here(git_dir)
    entries = []
    for line in output.split(b"\0")[:-1]:
        facts, path = line.split(b"\t", 1)
        size = str(here.get(facts.split()[2].decode("ascii"), "BAD"))
        entries.append(_tree_entry(facts + b" " + size.encode("ascii") + b"\t" + path))
    return entries


def _sizes_here(git_dir: str) -> dict[str, int]:
    command = [f"--git-dir={git_dir}", "cat-file", "--batch-all-objects", "--unordered"]
    status, output, error = _run([*command, "--batch-check=%(objectname) %(objectsize)"])
    if status != 0:
        raise SourceError(f"{display(git_dir)}: its objects cannot be listed: git says {error!r}. Try `git fsck`.")
    lines = (line.split() for line in output.splitlines())
    return {name.decode("ascii"): int(size) for name, size in lines}


def _tree_entry(line: bytes) -> TreeEntry:
    # <mode> SP <type> SP <object> SP+ <size> TAB <path>; the size is "-" for a commit, "BAD" for a missing blob.
    facts, path = line.split(b"\t", 1)
    mode, _, object_id, size = facts.decode("ascii").split()
    num_bytes = int(size) if size.isdigit() else 0 if mode == "160000" else None
    return TreeEntry(mode=mode, object_id=object_id, path=path, num_bytes=num_bytes)


def read_objects(git_dir: str, object_ids: Sequence[str]) -> Iterator[bytes | None]:
    """The content of each object in turn, None for one that is not here. One git process serves them all.

    Raises `SourceError` where git stops, for instance at a damaged object.
    """
    process = _execute([f"--git-dir={git_dir}", "cat-file", "--batch"], as_process=True, istream=subprocess.PIPE)
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
    error = _said(process.stderr.read())
    _refuse_killed(process.proc.wait() if process.proc else 0)
    raise SourceError(f"{display(git_dir)}: object {object_id} cannot be read: git says {error!r}. Try `git fsck`.")


def _end(process: "Git.AutoInterrupt") -> None:
    """Let git go, also in the middle of an answer: it ends at the end of its input, or for want of a reader."""
    from git.exc import GitCommandError

    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.stdout.close()
    with contextlib.suppress(GitCommandError):
        process.wait()
    process.stderr.close()


def _run(arguments: list[str]) -> tuple[int, bytes, str]:
    """One git command: its status, its output as bytes, and what it says on standard error, without credentials.

    Raises `InfrastructureError` where git was killed or complains of the machine.
    """
    status, output, error = _execute(
        arguments, with_extended_output=True, with_exceptions=False, stdout_as_string=False,
        strip_newline_in_stdout=False,
    )  # fmt: skip
    if status == _COMMAND_NOT_FOUND:
        raise GitMissingError(_MISSING)
    said = _said(str(error).encode("utf-8", errors="surrogateescape"))
    _refuse_killed(int(status))
    ensure(isinstance(output, bytes), "GitPython decoded what git wrote")
    return int(status), output, said


def _refuse_killed(status: int) -> None:
    if status < 0:
        raise InfrastructureError(f"git was killed by signal {-status}. Make room for it, then run again.")


def _said(raw: bytes) -> str:
    """What git says, for people. Raises `InfrastructureError` where it complains of the machine."""
    lines = raw.decode("utf-8", errors="surrogateescape").strip().split("\n")
    said = "\n".join(display(without_credentials(line)) for line in lines)
    if any(fault in said for fault in _MACHINE_FAULTS):
        raise InfrastructureError(f"git says {said!r}. Check the disk, mount or memory that it means, then run again.")
    return said


def _execute(arguments: list[str], **options: object) -> Any:
    """Run git by GitPython. Raises `GitMissingError`, or `InfrastructureError` where no process can be started."""
    git = _git()
    from git.exc import GitCommandNotFound

    try:
        return git.execute(_command(arguments), **options)  # type: ignore[call-overload]  # its overloads, one by one
    except GitCommandNotFound as error:
        raise GitMissingError(_MISSING) from error
    except OSError as error:
        raise InfrastructureError(f"git cannot be started: {error.strerror or error}. Run again.") from error


def _command(arguments: list[str]) -> list[str]:
    # GitPython hands on the whole environment and can add to it, not take from it.
    misleading = [name for name in _MISLEADING if name in os.environ]
    prefix = ["env", *(part for name in misleading for part in ("-u", name))] if misleading else []
    return [*prefix, "git", *_OPTIONS, *arguments]


def _git() -> "Git":
    # Importing GitPython looks for git and raises ImportError where there is none, so it waits until git is needed.
    try:
        from git import Git
    except ImportError as error:
        raise GitMissingError(_MISSING) from error
    git = Git()
    git.update_environment(**_ENVIRONMENT)
    return git
