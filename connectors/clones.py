"""The folders of the cache of clones: one for each address, in use or not, and no more of them than there is room for.

Each address has a folder named by a hash of it, without credentials. Beside the repositories that
`connectors.git_cache` keeps there lie `use`, which is locked as long as anything of the folder is read and whose time
says when that was last, and `size`, the bytes that were measured after the last fetch: only what was fetched into is
measured again, by whoever makes room where that fetch was cut short. Owns these, the bound on all folders together
(`$LONGDOC_CLONE_CACHE_SIZE`), and how a folder leaves: what was used longest ago first, what is in use never, renamed
first and deleted then, so that no reader ever finds a part of one. Fetches nothing.
"""

import contextlib
import fcntl
import functools
import hashlib
import itertools
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from connectors.address import Address
from connectors.git import DamagedError
from connectors.remote import note
from longdoc.files import cache_folder, make_folder, replace_file
from longdoc.sizes import cache_size, format_bytes

T = TypeVar("T")
CLONES = "LONGDOC_CLONE_CACHE_SIZE"
_USE, _SIZE, _LEAVING = "use", "size", ".leaving."


def clones_folder() -> Path:
    """The folder of all addresses' folders."""
    return cache_folder() / "git"


def cache_place(address: Address) -> Path:
    """The folder of one address. Its name shows the repository's, and tells addresses apart by their hash."""
    digest = hashlib.sha256(address.uri.encode("utf-8")).hexdigest()[:24]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", address.name)[:40].strip(".-")
    return clones_folder() / f"{name}-{digest}"


class Uses:
    """The folders that are being read, here until the block ends. They are not evicted meanwhile, by any process."""

    def __init__(self) -> None:
        self._held: dict[Path, int] = {}

    def __enter__(self) -> "Uses":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()

    def hold(self, address: Address, *, is_new: bool = True) -> None:
        """Hold the folder of an address, which is made if there is none and it may be new.

        One that cannot be written is not held: nobody can evict it either, and a fetch into it says what is wrong.
        """
        place = cache_place(address)
        if place not in self._held and (is_new or place.is_dir()):
            with contextlib.suppress(OSError):
                self._held[place] = _hold(place)

    def drop(self, git_dir: str) -> bool:
        """Give up a held folder of which a repository is damaged, and remove it, so that it is fetched anew.

        False where the repository is none of the cache. Another process may have been first; then nothing is removed.
        """
        place = Path(git_dir).parent
        descriptor = self._held.pop(place, None)
        if descriptor is None:
            return False
        try:
            if is_at(descriptor, place / _USE):
                note(f"{place}: what was fetched into it is damaged; it is removed, and fetched again")
                with contextlib.suppress(FileNotFoundError):
                    _delete(_set_aside(place))
        finally:
            os.close(descriptor)
        return True


def healed(attempt: Callable[[Uses], Iterator[T]]) -> Iterator[T]:
    """What `attempt` yields. Where it finds a repository of the cache damaged, that is fetched again, once.

    The second attempt must yield what the first one did; what the caller has already is left out.
    """
    num_given = 0
    with Uses() as uses:
        try:
            for each in attempt(uses):
                num_given += 1
                yield each
        except DamagedError as error:
            if not uses.drop(error.git_dir):
                raise
        else:
            return
    with Uses() as uses:
        yield from itertools.islice(attempt(uses), num_given, None)


def growing(address: Address) -> None:
    """Forget the size of an address's folder, which is fetched into now: a process that is killed measures nothing."""
    with contextlib.suppress(OSError):
        (cache_place(address) / _SIZE).unlink(missing_ok=True)


def grown(address: Address) -> None:
    """Measure the folder of an address after a fetch, and make room for it where all of them are too large.

    The folder is in use, so that it stays. What is not evicted for want of rights is said, and stops nothing.
    """
    place, most = cache_place(address), cache_size(CLONES)
    with contextlib.suppress(OSError):
        own = _measured(place)
        if own > most:
            _say_too_large(address.uri, own, most)
        _make_room(most)


@functools.cache
def _say_too_large(uri: str, num_bytes: int, most: int) -> None:
    note(
        f"{uri} alone takes {format_bytes(num_bytes)} in the cache of clones, more than its {format_bytes(most)} "
        f"({CLONES}); it stays until another repository is fetched"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clone:
    """One folder: when it was used last, and its bytes."""

    place: Path
    used: float
    num_bytes: int


def _make_room(most: int) -> None:
    folder = clones_folder()
    _sweep(folder)
    clones = sorted(_clones(folder), key=lambda clone: clone.used)
    total = sum(clone.num_bytes for clone in clones)
    evicted = []
    for clone in clones:
        if total <= most:
            break
        if _evict(clone):
            total -= clone.num_bytes
            evicted.append(clone)
    if evicted:
        names = ", ".join(clone.place.name.rpartition("-")[0] for clone in evicted)
        freed = format_bytes(sum(clone.num_bytes for clone in evicted))
        note(
            f"removed what was used longest ago from the cache of clones, {freed}, to keep it below "
            f"{format_bytes(most)} ({CLONES}): {names}"
        )


def _clones(folder: Path) -> Iterator[_Clone]:
    for place in folder.iterdir():
        if not place.name.startswith("."):
            with contextlib.suppress(OSError):  # another process evicts it
                yield _Clone(place=place, used=_last_use(place), num_bytes=_known_size(place))


def _last_use(place: Path) -> float:
    use = place / _USE
    if not use.exists():  # from before uses were noted
        made = place.stat().st_mtime
        use.touch()
        os.utime(use, (made, made))
    return use.stat().st_mtime


def _known_size(place: Path) -> int:
    try:
        return int((place / _SIZE).read_text("ascii"))
    except (OSError, ValueError):
        return _measured(place)  # from a fetch that was cut short, or from before sizes were kept


def _measured(place: Path) -> int:
    total = sum(path.lstat().st_size for path in place.rglob("*") if not path.is_dir())
    with contextlib.suppress(OSError):  # a full disk is when the sum is needed most
        replace_file(place / _SIZE, b"%d\n" % total)
    return total


def _evict(clone: _Clone) -> bool:
    """Remove a folder unless somebody uses it, or has used it since it was looked at."""
    with contextlib.suppress(OSError):
        use = clone.place / _USE
        descriptor = os.open(use, os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not is_at(descriptor, use) or os.fstat(descriptor).st_mtime > clone.used:
                return False
            aside = _set_aside(clone.place)
        finally:
            os.close(descriptor)
        _delete(aside)
        return True
    return False


def _set_aside(place: Path) -> Path:
    """Take a folder out of its name in one step. What dies before it is deleted is swept by the next process."""
    aside = place.with_name(f"{_LEAVING}{place.name}.{secrets.token_hex(8)}")
    place.rename(aside)
    return aside


def _sweep(folder: Path) -> None:
    for aside in folder.glob(f"{_LEAVING}*"):
        _delete(aside)


def _delete(aside: Path) -> None:
    shutil.rmtree(aside, ignore_errors=True)


def _hold(place: Path) -> int:
    """A descriptor of the folder's `use` that keeps it; the time of the file is that of this use."""
    while True:
        make_folder(place)
        use = place / _USE
        try:
            descriptor = os.open(use, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            continue  # evicted at this moment
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if is_at(descriptor, use):
                os.utime(descriptor)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file still has this name."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False
