"""The one door to files that are written: exclusive creation, hashing and durable closing on a local file system.

Object stores and remote sources will come through this door too; nothing else in longdoc opens a file for writing.
"""

import contextlib
import hashlib
import os
import secrets
from pathlib import Path

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


def create_exclusive(path: Path, content: bytes) -> bool:
    """Create `path` with `content` only if absent; False where it exists. Readers never see a half-written file.

    Written under a unique name beside it first, then linked: `link` fails where the name is taken, on every POSIX
    file system. Where links are not supported the file is created with O_EXCL, which readers may see while it grows.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
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
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    except OSError:
        if not _copy_exclusive(source, target):
            return False
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
    """Where pulled models and token ids are kept: $LONGDOC_CACHE, else $XDG_CACHE_HOME/longdoc, else ~/.cache/longdoc."""
    if chosen := os.environ.get("LONGDOC_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "longdoc"
