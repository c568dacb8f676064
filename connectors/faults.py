"""Whose fault a failed read is: the document's, which is then left out, or the machine's, which is then run again.

Owns that decision for files and folders, and its words. A file that is gone, closed or no file is at fault itself;
every other failure (a bad disk, a stale network mount, no descriptors left) says nothing about the document.
"""

import errno
from pathlib import Path

from longdoc.errors import DocumentError, InfrastructureError
from longdoc.records import display

_ITS_OWN_FAULT = frozenset(
    {
        errno.EACCES,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.ENXIO,
        errno.EPERM,
    }
)


def unreadable_message(path: str, error: OSError, verb: str = "read") -> str:
    """Why a path cannot be read (or listed), for its quarantine.

    Raises `InfrastructureError` where the machine is at fault.
    """
    cause = f"{display(path)} cannot be {verb}: {error.strerror or error}."
    if error.errno not in _ITS_OWN_FAULT:
        raise InfrastructureError(f"{cause} Check the disk or network mount that holds it, then run again.") from error
    return f"{cause} Give read access to it, or leave it out."


def read_whole(path: str) -> bytes:
    """The bytes of a file that is a document. Raises `DocumentError` (`unreadable`) where the file is at fault.

    Raises `InfrastructureError` where the machine is.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise DocumentError(unreadable_message(path, error), stage="read", reason="unreadable") from error
