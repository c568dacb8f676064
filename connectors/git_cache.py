"""What was fetched from remote repositories, kept below the cache folder for the next run.

Each address has a folder (`connectors.clones`) with two bare repositories: `objects` holds the commits that were asked
for, each without its history, and the blobs that were needed; `history` holds commits alone, and only where a revision
such as `HEAD~3` had to be counted. Owns that layout, the lock that keeps two processes from fetching at once, what
killed processes leave behind, and what is fetched: never more than a server makes unavoidable. What is whole is decided
by looking for each object, so a fetch that was cut short is never mistaken for one that was not.
"""

import contextlib
import fcntl
import math
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from connectors.address import Address
from connectors.clones import CLONES, Uses, cache_place, growing, grown, is_at
from connectors.git import run
from connectors.git_objects import missing_objects
from connectors.remote import REMOTE, RemoteError, fetch, note
from longdoc.errors import InfrastructureError
from longdoc.files import make_folder
from longdoc.sizes import cache_size

ALL_HISTORY = 2**31 - 1  # what git takes for "without end"
ALL_REFS = ("+refs/heads/*:refs/longdoc/heads/*", "+refs/tags/*:refs/longdoc/tags/*")
# What was renamed to a name below its own (`a` to `a/b`) must go first.
_FOLLOW = ("--prune",)
_TELL_NOTHING = ("fetch.negotiationAlgorithm=noop",)
# A server of protocol 0 gives only what its refs name, and one that is a mere folder of files has no shallow clones.
_REFUSES_IDS = re.compile(r"unadvertised object|dumb http transport")
_NO_SHALLOW = "dumb http transport"
_UNKNOWN_ID = re.compile(r"not our ref|couldn't find remote ref|no such remote ref|expected old/new/ref")
# A lock of git's own that outlived its process. Ours is held, so no other longdoc is at work; git itself may be.
_STALE_SECONDS, _LOOK_SECONDS = 60.0, 0.5


def objects_dir(address: Address) -> str:
    """The bare repository of one address that holds the commits which were asked for."""
    return str(cache_place(address) / "objects")


def has_commit(address: Address, commit_id: str) -> bool:
    """Whether a commit and all its trees are in the cache: its ref is written after everything else of a fetch."""
    git_dir = objects_dir(address)
    return Path(git_dir).is_dir() and _holds(git_dir, commit_id)


def ensure_commit(address: Address, commit_id: str, ref: str | None = None) -> None:
    """Fetch a commit and its trees, not its blobs, unless they are here. `ref` is one that names it, if any does.

    Raises `RemoteError`, whose `said` is what the server answers where it does not have the commit.
    """
    if has_commit(address, commit_id):
        return
    with _locked(address):
        git_dir = _repository(address, "objects", commit_id)
        if not _holds(git_dir, commit_id):
            _fetch_commit(git_dir, address, commit_id, ref)


def fetch_blobs(address: Address, commit_id: str, object_ids: Iterable[str]) -> None:
    """Fetch blobs of a commit that were not here when they were looked for, in one go. Raises `RemoteError`."""
    git_dir = objects_dir(address)
    with _locked(address):
        missing = missing_objects(git_dir, object_ids)  # another process may have been first
        if missing:
            _fetch_blobs(git_dir, address, commit_id, missing)
            missing = missing_objects(git_dir, missing)
    if missing:
        message = f"{address.uri}: the server did not send {len(missing)} of the objects of commit {commit_id}"
        raise RemoteError(f"{message}, for instance {missing[0]}. Try `git fsck` there.")


@contextlib.contextmanager
def history(address: Address, tips: Iterable[str], depth: int, like: str) -> Iterator[str]:
    """A bare repository that holds the commits behind `tips` (refspecs), `depth` of them, for as long as it is used."""
    with _locked(address):
        git_dir = _repository(address, "history", like)
        options = ["--filter=tree:0", f"--depth={depth}", *_FOLLOW]
        try:
            fetch(git_dir, address, tips, options, what="fetching its history")
        except RemoteError as error:
            if not _REFUSES_IDS.search(error.said):
                raise
            fetch(git_dir, address, ALL_REFS, [*_deepest(error), *_FOLLOW], what="fetching its history")
        yield git_dir


def _fetch_commit(git_dir: str, address: Address, commit_id: str, ref: str | None) -> None:
    what, target = "fetching a commit", _ref_of(commit_id)
    try:
        fetch(git_dir, address, [f"+{commit_id}:{target}"], ["--filter=blob:none", "--depth=1"], what=what)
    except RemoteError as error:
        if not _REFUSES_IDS.search(error.said):
            raise
        note(f"{address.uri}: the server gives no commit by its id, so more is fetched than is needed")
        # Nor would it give blobs by their ids later, so they come along.
        if ref is not None and _NO_SHALLOW not in error.said:
            fetch(git_dir, address, [f"+{ref}:refs/longdoc/tip"], ["--no-filter", "--depth=1"], what=what)
        if not _resolves(git_dir, f"{commit_id}^{{commit}}"):
            fetch(git_dir, address, ALL_REFS, ["--no-filter", *_deepest(error), *_FOLLOW], what=what)
        if not _resolves(git_dir, f"{commit_id}^{{commit}}"):
            said = "not our ref: no branch or tag leads to it"
            raise RemoteError(f"{address.uri} has no commit {commit_id}: {said}.", said=said) from error
        run([f"--git-dir={git_dir}", "update-ref", target, commit_id])


def _fetch_blobs(git_dir: str, address: Address, commit_id: str, missing: list[str]) -> None:
    what = f"fetching {len(missing):,} files"
    try:
        # Told nothing of what is here: a server takes a commit that is here for all of its files.
        fetch(git_dir, address, missing, ["--no-filter"], settings=_TELL_NOTHING, what=what)
    except RemoteError as error:
        if not (_REFUSES_IDS.search(error.said) or is_unknown(error)):
            raise
        note(f"{address.uri}: the server gives no file by its id, so the whole commit is fetched")
        options = ["--no-filter", "--depth=1"]
        fetch(git_dir, address, [commit_id], options, settings=_TELL_NOTHING, what="fetching a commit")


def is_unknown(error: RemoteError) -> bool:
    """Whether a server said that it does not have what was asked for."""
    return _UNKNOWN_ID.search(error.said) is not None


def _deepest(error: RemoteError) -> list[str]:
    return [] if _NO_SHALLOW in error.said else [f"--depth={ALL_HISTORY}"]


def _ref_of(commit_id: str) -> str:
    return f"refs/longdoc/commits/{commit_id}"


def _holds(git_dir: str, commit_id: str) -> bool:
    return _resolves(git_dir, f"{_ref_of(commit_id)}^{{tree}}")


def _resolves(git_dir: str, name: str) -> bool:
    return run([f"--git-dir={git_dir}", "rev-parse", "--verify", "--quiet", "--end-of-options", name])[0] == 0


@contextlib.contextmanager
def _locked(address: Address) -> Iterator[None]:
    """Keep every other process from changing what is cached of one address. The lock ends with its process.

    What the fetch added is measured afterwards, and others make room for it. Raises `StartError` for a bound that is
    no size, `InfrastructureError` where the folder cannot be written.
    """
    cache_size(CLONES)
    folder = cache_place(address)
    with Uses() as uses:
        uses.hold(address)
        try:
            file = _lock_of(folder, address)
        except OSError as error:
            raise _unwritable(folder, error) from error
        with file:
            growing(address)
            try:
                yield
            except BaseException:
                _clear_packs(folder, older_than=0.0)  # git leaves them where it fails, on a full disk for example
                raise
            finally:
                grown(address)


def _lock_of(folder: Path, address: Address) -> IO[bytes]:
    """The lock of a folder, once it is ours: not that of a folder which was removed while we waited."""
    while True:
        make_folder(folder)
        folder.parent.chmod(0o700)  # private repositories lie here
        file = (folder / "lock").open("wb")
        try:
            _wait_for(file.fileno(), address)
            if is_at(file.fileno(), folder / "lock"):
                return file
        except BaseException:
            file.close()
            raise
        file.close()


def _unwritable(folder: Path, error: OSError) -> InfrastructureError:
    message = f"{folder} cannot be written: {error.strerror}. Name another cache folder with LONGDOC_CACHE,"
    return InfrastructureError(f"{message} or make room, then run again.")


def _wait_for(descriptor: int, address: Address) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        note(f"{address.uri}: another process is fetching from it; waiting")
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _repository(address: Address, name: str, like: str) -> str:
    """One of an address's bare repositories, made if there is none; ids are as long as `like`. The lock is held."""
    path = cache_place(address) / name
    try:
        _clear_leftovers(path, address)
        if not path.is_dir():
            _make_in_one_step(path, address, like)
    except OSError as error:
        raise _unwritable(path, error) from error
    return str(path)


def _make_in_one_step(path: Path, address: Address, like: str) -> None:
    # Made beside it and renamed, so that a folder of that name is always a whole repository.
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        _make_bare(temporary, address, "sha1" if len(like) == 40 else "sha256")
        temporary.rename(path)
    except InfrastructureError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        message = f"{path} cannot be made: {error} The cache folder is what LONGDOC_CACHE names."
        raise InfrastructureError(message) from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _clear_leftovers(path: Path, address: Address) -> None:
    """Remove what processes left that were killed while they made or fetched into a repository. The lock is held.

    A git that outlived the longdoc which started it may still be at work: its locks are waited for.
    """
    for unfinished in path.parent.glob(f".{path.name}.*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    for lock in [*path.glob("*.lock"), *path.glob("refs/longdoc/**/*.lock")]:
        _wait_until_stale(lock, address)
        lock.unlink(missing_ok=True)
    _clear_packs(path.parent, older_than=_STALE_SECONDS)


def _clear_packs(folder: Path, *, older_than: float) -> None:
    """Remove the packs that a fetch did not finish, none of which has been written to for some seconds."""
    for pack in folder.glob("*/objects/pack/tmp_*"):
        if _age(pack) >= older_than:
            with contextlib.suppress(OSError):
                pack.unlink()


def _wait_until_stale(lock: Path, address: Address) -> None:
    if _age(lock) < _STALE_SECONDS:
        note(f"{address.uri}: a git that was stopped may still be fetching from it; waiting up to a minute")
    deadline = time.monotonic() + _STALE_SECONDS  # clocks of two machines differ
    while _age(lock) < _STALE_SECONDS and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)


def _age(path: Path) -> float:
    """Seconds since a file was written; a file that is gone is as old as can be."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return math.inf


def _make_bare(folder: Path, address: Address, object_format: str) -> None:
    command = ["init", "-q", "--bare", "--template=", f"--object-format={object_format}", "--", str(folder)]
    status, _, error = run(command)
    if status != 0:
        raise InfrastructureError(f"{folder} cannot be made a repository: git says {error!r}. Run again.")
    quoted = address.uri.replace("\\", "\\\\").replace('"', '\\"')
    # A promisor: git then accepts that some of its objects were left at the remote.
    remote = f'[remote "{REMOTE}"]\n\turl = "{quoted}"\n\tpromisor = true\n'
    with (folder / "config").open("a", encoding="utf-8") as file:
        file.write(f"{remote}[core]\n\trepositoryFormatVersion = 1\n[extensions]\n\tpartialClone = {REMOTE}\n")
