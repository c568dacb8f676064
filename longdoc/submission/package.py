"""The archive that a job's working folder comes from: measured, listed, bounded, and the same for the same files.

Ray stores an archive by name, so equal archives are uploaded once: members are in order, with one time for all. Ray's
own packaging leaves out what .gitignore and .rayignore name (ray#33149) and whole `.git` folders count against its cap
unnamed (ray#45602); here every file that a job needs is a member, or there is no archive. Refuses more than Ray takes,
and a file that is no longer what was listed.
"""

import contextlib
import hashlib
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

from longdoc.errors import StartError
from longdoc.records import display
from longdoc.sizes import format_bytes
from longdoc.submission.cargo import CargoFile

#: What Ray stores of one package at most (GCS_STORAGE_MAX_SIZE and DASHBOARD_CLIENT_MAX_SIZE in Ray, 100 MiB each).
MOST_BYTES = 100 << 20
_CHUNK = 1 << 20
_NUM_NAMED = 5
# The first moment that an archive can state.
_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """One file as it stands in the archive: `num_bytes` as it is, `num_bytes_packed` of it that are uploaded."""

    name: str
    label: str
    num_bytes: int
    num_bytes_packed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A finished archive at `path`. `name` is what Ray calls it; `files` are the largest first."""

    path: Path
    name: str
    num_bytes: int
    files: tuple[Shipped, ...]


@contextlib.contextmanager
def working_folder() -> Iterator[Path]:
    """A temporary folder for what is made on the way. Raises `StartError` where there is no room for one."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="longdoc-submit-")
    except OSError as error:
        raise StartError(f"{tempfile.gettempdir()}: {error.strerror}. Make room there, or set TMPDIR.") from None
    with folder as path:
        yield Path(path)


def build(files: Sequence[CargoFile], path: Path) -> Package:
    """Write the archive to `path`. Raises `StartError` over the cap, and for a file that cannot be read or changed."""
    shipped: list[Shipped] = []
    try:
        with path.open("xb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for each in sorted(files, key=lambda each: each.name):
                before = file.tell()
                num_bytes = _add(archive, file, each, files)
                packed = file.tell() - before
                shipped.append(Shipped(name=each.name, label=each.label, num_bytes=num_bytes, num_bytes_packed=packed))
        num_bytes, digest = path.stat().st_size, _sha256(path)
    except OSError as error:
        raise StartError(f"{path}: {error.strerror or error}. Make room there, or set TMPDIR.") from None
    if num_bytes >= MOST_BYTES:
        raise _too_large(files)
    shipped.sort(key=lambda each: (-each.num_bytes_packed, each.name))
    return Package(path=path, name=f"_ray_pkg_{digest[:32]}.zip", num_bytes=num_bytes, files=tuple(shipped))


def _add(archive: zipfile.ZipFile, file: IO[bytes], each: CargoFile, files: Sequence[CargoFile]) -> int:
    """Add one member; returns its bytes before they were compressed."""
    about = zipfile.ZipInfo(each.name, date_time=_TIME)
    about.compress_type, about.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
    if each.path is None:
        archive.writestr(about, each.content)
        return len(each.content)
    digest, num_bytes = hashlib.sha256(), 0
    with _opened(each) as source, archive.open(about, "w", force_zip64=True) as member:
        while piece := source.read(_CHUNK):
            digest.update(piece)
            num_bytes += len(piece)
            member.write(piece)
            if file.tell() >= MOST_BYTES:
                break
    if file.tell() >= MOST_BYTES:
        raise _too_large(files)
    if each.sha256 not in (None, digest.hexdigest()):
        raise StartError(f"{each.label} changed while it was packed. Submit again when nothing writes to it.")
    return num_bytes


def _opened(each: CargoFile) -> BinaryIO:
    assert each.path is not None
    try:
        return each.path.open("rb")
    except OSError as error:
        raise StartError(f"{each.label} cannot be read: {error.strerror}. Give read access, or leave it out.") from None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _too_large(files: Sequence[CargoFile]) -> StartError:
    largest = sorted(files, key=lambda each: (-each.num_bytes, each.name))[:_NUM_NAMED]
    lines = [f"  {format_bytes(each.num_bytes):>10}  {display(each.label)}" for each in largest]
    more = f"\n  and {len(files) - len(largest):,} more files" if len(files) > len(largest) else ""
    total = format_bytes(sum(each.num_bytes for each in files))
    cause = f"what the job needs is {total}, and Ray takes {format_bytes(MOST_BYTES)} once it is compressed"
    action = "Put it where the cluster's nodes see it and name that with --remote-path, or name a repository's URL"
    return StartError(f"{cause}. {action}. The largest:\n" + "\n".join(lines) + more)
