"""The one door to files that are written: whole or not at all, durable, on a local file system.

Whatever fits in memory is written here, and Parquet parts through `HashingFile`. Three things are not: a model's
weights, streamed by `longdoc.model.safetensors_file` into a folder that appears by one rename, the token cache, which
SQLite writes, and what pip and zipfile unpack. Object stores and remote sources will come through this door too.
"""

import contextlib
import hashlib
import os
import secrets
from pathlib import Path
from typing import BinaryIO

_CHUNK = 1 << 20


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes, hexadecimal, read in pieces of 1 MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_CHUNK):
            digest.update(piece)
    return digest.hexdigest()


def fsync_path(path: Path) -> None:
    """Make a file's content, or a folder's entries, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path, *, parents: bool = True) -> None:
    """Make a folder, each of its parents durable before the next; one that exists is well.

    Without `parents` a parent that is missing is a `FileNotFoundError`.
    """
    if path.is_dir():
        return
    if parents:
        make_folder(path.parent)
    path.mkdir(exist_ok=True)
    fsync_path(path.parent)


def write_new(path: Path, content: bytes) -> None:
    """Write a file that must not exist yet and make it durable; where that fails, nothing stays behind."""
    file = path.open("xb")
    try:
        with file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        # The error that led here is the one to report.
        with contextlib.suppress(OSError):
            path.unlink()
        raise


def create_exclusive(path: Path, content: bytes) -> bool:
    """Create `path` with `content` only if absent; False where it exists. Readers never see a half-written file.

    Written under a unique name beside it first, then linked: `link` fails where the name is taken, on every POSIX
    file system that has hard links.
    """
    make_folder(path.parent)
    temporary = _beside(path)
    write_new(temporary, content)
    try:
        return link_exclusive(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def link_exclusive(source: Path, target: Path) -> bool:
    """Give `source` the second name `target` only if absent, durably; False where it exists.

    Raises `OSError` where the file system has no hard links; there is no other way to make a whole file appear under
    a name only if that is free.
    """
    make_folder(target.parent)
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    fsync_path(target.parent)
    return True


def replace_file(path: Path, content: bytes) -> None:
    """Make `path` a file of `content` in one step, whatever stands there; readers see the old or the new one."""
    make_folder(path.parent)
    temporary = _beside(path)
    write_new(temporary, content)
    try:
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _beside(path: Path) -> Path:
    return path.parent / f".{path.name}.{secrets.token_hex(8)}"


def cache_folder() -> Path:
    """Where pulled models and token ids are kept: $LONGDOC_CACHE, $XDG_CACHE_HOME/longdoc or ~/.cache/longdoc."""
    if chosen := os.environ.get("LONGDOC_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "longdoc"


class HashingFile:
    """A new file that is hashed as it is written, so that what reached the disk can be compared with what was meant.

    Created exclusively. Has what `pyarrow.PythonFile` asks for: `write`, `tell`, `flush`, `close`, `closed`.
    """

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("xb")
        self._digest = hashlib.sha256()

    def write(self, content: bytes) -> int:
        """Append `content`; the number of bytes written is always its length."""
        view = memoryview(content)
        self._digest.update(view)
        self._file.write(view)
        return view.nbytes

    def tell(self) -> int:
        """Bytes written so far."""
        return self._file.tell()

    def flush(self) -> None:
        """Hand what is buffered to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Flush, make durable and close; a second call does nothing."""
        if self._file.closed:
            return
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        finally:
            self._file.close()

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return self._file.closed

    @property
    def sha256(self) -> str:
        """SHA-256 of everything handed to `write`, hexadecimal."""
        return self._digest.hexdigest()
