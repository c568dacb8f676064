"""How something becomes visible in an output: created only if absent, whole or not at all, and looked at again.

The one door to where outputs live. Local folders only: an object store's conditional create has the same two verbs,
`stand` and `publish_file`, and is refused by name until it is here. Nothing in this file deletes or replaces what
stands: a write that reported a failure may have landed, and deleting it then loses a commit (iceberg#3717).
"""

import errno
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

from longdoc.errors import InfrastructureError, OutputError
from longdoc.files import create_exclusive, link_exclusive, sha256_file, write_new
from longdoc.records import display

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def local_folder(output: str) -> Path:
    """The folder that `output` names. Raises `OutputError` for an object store, another URL and what is no path."""
    if scheme := _SCHEME.match(output):
        raise OutputError(
            f"{display(output)}: outputs at {scheme.group()} are not supported yet. Give a local folder with --output."
        )
    if not output or "\0" in output:
        # As a path the empty text would be the current folder.
        raise OutputError(f"'{display(output)}' names no folder. Give one with --output.")
    folder = Path(output).absolute()
    try:
        str(folder).encode("utf-8")
    except UnicodeEncodeError:
        # Arrow takes paths in UTF-8 only.
        raise OutputError(f"{display(output)}: the path is not UTF-8. Give another folder with --output.") from None
    return folder


@contextmanager
def disk_faults(subject: str) -> Iterator[None]:
    """Turn an `OSError` inside the block into an `InfrastructureError` about `subject`."""
    try:
        yield
    except OSError as error:
        action = "Free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "Check the disk"
        cause = error.strerror or str(error)
        if error.filename is not None:
            cause += f" at {os.fspath(error.filename)!r}"
        raise InfrastructureError(f"{subject}: {cause}. {action} and run again; nothing committed is lost.") from error


def stand(path: Path, content: bytes) -> bytes:
    """Create `path` with `content` only if absent, and return what stands there: ours, or what was there first.

    Raises `OSError` only where something else than `content`, or nothing, stands there after a write that failed.
    """
    try:
        if create_exclusive(path, content):
            return content
    except OSError:
        if read_if_present(path) == content:
            return content
        raise
    return path.read_bytes()


def publish_file(source: Path, target: Path, *, num_bytes: int, sha256: str) -> None:
    """Make `target` a file of these bytes out of `source`; done already is well.

    Raises `InfrastructureError` where other bytes stand at `target`, `OSError` where neither file can be had.
    """
    try:
        is_placed = link_exclusive(source, target)
    except OSError:
        if not target.exists():
            raise
        is_placed = False
    if not is_placed and (target.stat().st_size != num_bytes or sha256_file(target) != sha256):
        raise InfrastructureError(
            f"{target} holds other bytes than were decided for it. Remove that file if it is not longdoc's, "
            "and run again."
        )


def publish_bytes(target: Path, content: bytes, *, scratch: Path) -> None:
    """Make `target` a file of `content`, never seen half-written and never beside a temporary file.

    Table roots hold finished Parquet files and nothing else, because pandas and Polars stumble over anything else.
    """
    source = scratch / f"{target.name}.{token_hex(8)}"
    write_new(source, content)
    try:
        publish_file(source, target, num_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    finally:
        source.unlink(missing_ok=True)


def read_if_present(path: Path) -> bytes | None:
    """The bytes of a file, or None where there is none. Raises `OSError` where it is there and cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
