"""The one door to git: GitPython's command interface over the installed git, read-only, by object id.

Owns the environment that git runs in, every message that comes from git, and whether it means the repository or the
machine: a bad disk or a full memory is an `InfrastructureError`, whatever was being read. Refuses the network (no
protocol is allowed but where `connectors.remote` asks for one, and no object is fetched on demand), the work tree,
replacement objects, prompts and locks. Arguments that a user gives are never read as options. Nothing here runs a hook
or what a repository's configuration names: the commands used read neither, and both are switched off.
"""

import difflib
import errno
import os
import signal
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

from longdoc.errors import InfrastructureError, SourceError, ensure
from longdoc.records import display, without_credentials

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
_OPTIONS = (
    *("--no-replace-objects", "--no-pager", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}"),
)
# What git prints for these is the C library's text, because GitPython sets LC_ALL=C.
_MACHINE_ERRNOS = (
    *("EAGAIN", "EHOSTDOWN", "EIO", "EMFILE", "ENFILE", "ENOMEM", "ENOSPC", "ENOTCONN", "EREMOTEIO", "ESTALE"),
    "ETIMEDOUT",
)
_MACHINE_FAULTS = (
    "Out of memory",
    *(os.strerror(getattr(errno, name)) for name in _MACHINE_ERRNOS if hasattr(errno, name)),
)
# git 2.39 dereferences a tree that it could not read.
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)
_COMMAND_NOT_FOUND = 127
_MISSING = "git is not installed, or not on PATH. Install git 2.31 or newer to read repositories."


class GitMissingError(SourceError):
    """git is not installed, which is no fault of any repository."""


class DamagedError(SourceError):
    """A repository of this machine, `git_dir`, does not give what is in it. One of the cache is fetched again."""

    def __init__(self, message: str, git_dir: str) -> None:
        super().__init__(message)
        self.git_dir = git_dir

    def __reduce__(self) -> tuple[object, ...]:
        return (DamagedError, (str(self), self.git_dir))


def is_repository(path: str) -> bool:
    """Whether a folder looks like the top of a repository: a work tree, a linked one, or a bare repository."""
    if os.path.lexists(os.path.join(path, ".git")):  # noqa: PTH118, path may hold bytes that are no text
        return True
    return all(os.path.exists(os.path.join(path, name)) for name in ("HEAD", "objects", "refs"))  # noqa: PTH110, PTH118


def find_git_dir(path: str) -> str:
    """The common git directory of the repository that holds `path`, absolute. Raises `SourceError` with git's words."""
    status, output, error = run(["-C", path, "rev-parse", "--path-format=absolute", "--git-common-dir"])
    if status == 0:
        return os.path.realpath(os.fsdecode(output.removesuffix(b"\n")))
    if "dubious ownership" in error:
        raise SourceError(f"{display(path)} belongs to another user, so git does not trust it.\n{error}")
    message = (
        f"{display(path)} is not a git repository: git says {error!r}. Name a folder that git clone or git init made"
    )
    raise SourceError(f"{message}, or use --kind book for a folder of books.")


def find_prefix(path: str) -> bytes:
    """Where a folder lies below the top of its work tree: empty at the top, and in a repository without work tree.

    Raises `SourceError` where it lies in no repository.
    """
    status, output, error = run(["-C", path, "rev-parse", "--show-prefix"])
    if status != 0:
        raise SourceError(f"{display(path)} is not a git repository: git says {error!r}.")
    return output.removesuffix(b"\n").removesuffix(b"/")


def find_remote(git_dir: str) -> str | None:
    """The URL of the remote that a local repository was cloned from, as it stands in its configuration, or None."""
    status, output, _ = run(
        [f"--git-dir={git_dir}", "config", "--local", "--no-includes", "--get", "remote.origin.url"]
    )
    return os.fsdecode(output.removesuffix(b"\n")) if status == 0 else None


def has_object(git_dir: str, object_id: str) -> bool:
    """Whether an object is here, and its repository too."""
    return run([f"--git-dir={git_dir}", "cat-file", "-e", object_id])[0] == 0


def resolve_commit(path: str, revision: str | None) -> str:
    """The commit id that a revision (None: HEAD, of this very work tree) names now. Raises `SourceError`."""
    wanted = "HEAD" if revision is None else revision
    if "\0" in wanted:
        raise SourceError(f"{display(path)} has no commit that {revision!r} names: no revision holds a NUL character.")
    command = ["-C", path, "rev-parse", "--verify", "--end-of-options", f"{wanted}^{{commit}}"]
    status, output, error = run(command)
    if status != 0:
        raise _no_such_commit(path, revision, error)
    return output.decode("ascii").strip()


def _no_such_commit(path: str, revision: str | None, error: str) -> SourceError:
    names, shown = _names(path), display(path)
    if not names and run(["-C", path, "rev-parse", "--verify", "HEAD"])[0] != 0:
        return SourceError(f"{shown} has no commits yet. Commit something, then run again.")
    if revision is None:
        return SourceError(f"{shown}: HEAD names no commit. Choose one with --revision, for example {names[0]!r}.")
    near = difflib.get_close_matches(revision, names, n=3)
    hint = f" Near it: {', '.join(near)}." if near else ""
    if run(["-C", path, "rev-parse", "--is-shallow-repository"])[1] == b"true\n":
        hint += " Its history was cut off when it was cloned: `git fetch --unshallow` there gets the rest."
    message = f"{shown} has no commit that {revision!r} names: git says {error!r}.{hint}"
    return SourceError(f"{message} `git branch -a`, `git tag` and `git log` list what it has.")


def _names(path: str) -> list[str]:
    _, output, _ = run(["-C", path, "for-each-ref", "--format=%(refname:short)"])
    return output.decode("utf-8", errors="replace").split()


def run(
    arguments: list[str], *, stdin: IO[bytes] | None = None, environment: Mapping[str, str] | None = None
) -> tuple[int, bytes, str]:
    """One git command: its status, its output as bytes, and what it says on standard error, without credentials.

    Raises `InfrastructureError` where git was killed or complains of the machine.
    """
    status, output, error = execute(
        arguments, environment=environment, istream=stdin, with_extended_output=True, with_exceptions=False,
        stdout_as_string=False, strip_newline_in_stdout=False,
    )  # fmt: skip
    if status == _COMMAND_NOT_FOUND:
        raise GitMissingError(_MISSING)
    message = said(str(error).encode("utf-8", errors="surrogateescape"))
    refuse_killed(int(status), _git_dir(arguments))
    ensure(isinstance(output, bytes), "GitPython decoded what git wrote")
    return int(status), output, message


def _git_dir(arguments: list[str]) -> str:
    option = "--git-dir="
    return next((argument.removeprefix(option) for argument in arguments if argument.startswith(option)), "")


def refuse_killed(status: int, git_dir: str) -> None:
    """Raise `InfrastructureError` where git was ended by a signal, `DamagedError` where it crashed on a repository."""
    if -status in _CRASHES and git_dir not in ("", os.devnull):
        raise DamagedError(f"{display(git_dir)}: git crashed on it, by signal {-status}. Try `git fsck`.", git_dir)
    if status < 0:
        raise InfrastructureError(f"git was killed by signal {-status}. Make room for it, then run again.")


def said(raw: bytes) -> str:
    """What git says, for people. Raises `InfrastructureError` where it complains of the machine."""
    message = cleaned(raw)
    if any(fault in message for fault in _MACHINE_FAULTS):
        raise InfrastructureError(
            f"git says {message!r}. Check the disk, mount or memory that it means, then run again."
        )
    return message


def cleaned(raw: bytes) -> str:
    """What git says, for people: without credentials, and with nothing in it that could drive a terminal."""
    lines = raw.decode("utf-8", errors="surrogateescape").strip().split("\n")
    return "\n".join(display(without_credentials(line.strip())) for line in lines)


def execute(arguments: list[str], *, environment: Mapping[str, str] | None = None, **options: object) -> Any:
    """Run git by GitPython. Raises `GitMissingError`, or `InfrastructureError` where no process can be started."""
    git = _git()
    from git.exc import GitCommandNotFound

    git.update_environment(**(environment or {}))
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
