"""How something becomes visible in an output: created only if absent, whole or not at all, and looked at again.

The one door to where outputs live. Local folders only: an object store's conditional create has the same two verbs,
`stand` and `publish_file`, and is refused by name until it is here. Nothing in this file deletes or replaces what
stands: a write that reported a failure may have landed, and deleting it then loses a commit (iceberg#3717).
"""

import errno
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

from longdoc.errors import InfrastructureError, OutputError
from longdoc.files import create_exclusive, place, sha256_file

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_REREADS = 20
_REREAD_SECONDS = 0.05


def local_folder(output: str) -> Path:
    """The folder that `output` names. Raises `OutputError` for an object store or another URL."""
    if scheme := _SCHEME.match(output):
        raise OutputError(
            f"{output}: outputs at {scheme.group()} are not supported yet. Give a local folder with --output."
        )
    return Path(output).absolute()


@contextmanager
def disk_faults(subject: str) -> Iterator[None]:
    """Turn an `OSError` inside the block into an `InfrastructureError` about `subject`."""
    try:
        yield
    except OSError as error:
        action = "Free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "Check the disk"
        cause = error.strerror or str(error)
        raise InfrastructureError(f"{subject}: {cause}. {action} and run again; nothing committed is lost.") from error


def stand(path: Path, content: bytes) -> bytes:
    """Create `path` with `content` only if absent, and return what stands there: ours, or what was there first.

    Raises `OSError` only where nothing, or a torn piece of `content`, stands there afterwards.
    """
    try:
        if create_exclusive(path, content):
            return content
    except OSError:
        if _read_if_present(path) == content:
            return content
        raise
    return _read_complete(path)


def publish_file(source: Path, target: Path, *, scratch: Path, num_bytes: int, sha256: str) -> None:
    """Make `target` a file of these bytes out of `source`; done already is well.

    Raises `InfrastructureError` where other bytes stand at `target`, `OSError` where neither file can be had.
    """
    try:
        placed = place(source, target, scratch)
    except OSError:
        if not target.exists():
            raise
        placed = False
    if not placed and (target.stat().st_size != num_bytes or sha256_file(target) != sha256):
        raise InfrastructureError(
            f"{target} holds other bytes than the commit that decided it. Remove that file if it is not longdoc's, "
            "and run again."
        )


def publish_bytes(target: Path, content: bytes, *, scratch: Path) -> None:
    """Make `target` a file of `content`, never seen half-written and never beside a temporary file.

    Table roots hold finished Parquet files and nothing else, because pandas and Polars stumble over anything else.
    """
    source = scratch / f"{target.name}.{token_hex(8)}"
    create_exclusive(source, content)
    try:
        if not place(source, target, scratch) and target.read_bytes() != content:
            raise InfrastructureError(
                f"{target} holds other bytes than were decided for it. Remove that file if it is not longdoc's, "
                "and run again."
            )
    finally:
        source.unlink(missing_ok=True)


def _read_if_present(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _read_complete(path: Path) -> bytes:
    # Without hard links a winner's file grows in sight; it is never empty once its writer is done.
    for _ in range(_REREADS):
        if content := path.read_bytes():
            return content
        time.sleep(_REREAD_SECONDS)
    return b""
