"""The one door to files that are written: exclusive creation, hashing and durable closing on a local file system.

Object stores and remote sources will come through this door too; nothing else in longdoc opens a file for writing.
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


def make_folder(path: Path) -> None:
    """Make a folder and its parents, each durable before the next; one that exists is well."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    fsync_path(path.parent)


def create_exclusive(path: Path, content: bytes) -> bool:
    """Create `path` with `content` only if absent; False where it exists. Readers never see a half-written file.

    Written under a unique name beside it first, then linked: `link` fails where the name is taken, on every POSIX
    file system. Where links are not supported the file is created with O_EXCL, which readers may see while it grows.
    """
    make_folder(path.parent)
    temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}"
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        return link_exclusive(temporary, path)
    finally:
        temporary.unlink()


def link_exclusive(source: Path, target: Path) -> bool:
    """Give `source` the second name `target` only if absent; False where it exists."""
    make_folder(target.parent)
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    except OSError:
        if not _copy_exclusive(source, target):
            return False
    fsync_path(target.parent)
    return True


def place(source: Path, target: Path, scratch: Path) -> bool:
    """Give `target` the content of `source` only if absent, whole or not at all; False where it exists.

    Where links are not supported it is copied into the folder `scratch` and renamed. Rename replaces, so there two
    processes may both place it: only for files whose content does not depend on who places them.
    """
    make_folder(target.parent)
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    except FileNotFoundError:
        raise
    except OSError:
        if target.exists():
            return False
        copy = scratch / f"{target.name}.{secrets.token_hex(8)}"
        _copy_exclusive(source, copy)
        copy.rename(target)
    fsync_path(target.parent)
    return True


def _copy_exclusive(source: Path, target: Path) -> bool:
    try:
        with target.open("xb") as writer, source.open("rb") as reader:
            while piece := reader.read(_CHUNK):
                writer.write(piece)
            writer.flush()
            os.fsync(writer.fileno())
    except FileExistsError:
        return False
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            target.unlink()
        raise
    return True


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
