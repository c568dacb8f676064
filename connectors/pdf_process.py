"""Asks a process of its own what a PDF says, and turns whatever may happen to that process into a plain error.

Owns the life of the process: it is started for one file, fed, listened to, and gone at the end, however that comes.
A crash or a standstill of pdfium is the document's fault; a process that is killed from outside is the machine's.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, cast

from connectors.archive import FREELY_EXPANDED, MOST_EXPANDED, MOST_RATIO
from connectors.pdf_records import End, Fault, FileFacts, Page, from_wire
from connectors.pdf_worker import CPU_SECONDS_A_RECORD, MOST_MEMORY, NO_PDFIUM
from longdoc.errors import DocumentError, InfrastructureError
from longdoc.records import display

# -P: the present folder may be a stranger's, and hold modules of any name.
_WORKER = ("-P", "-m", "connectors.pdf_worker")
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_WHOLE_COPY = "Get a whole copy of it, or print it to a new PDF."
_ADVICE = {
    "encrypted": ("it is encrypted and needs a password", "Save a copy without one."),
    "drm": ("it is protected by digital rights management", "Get a copy without it."),
    "security_handler": ("it is encrypted in a way that only special programs open", "Save a copy without encryption."),
    "too_large_when_expanded": ("it is larger when expanded than is read", "Leave it out, or print it to a new PDF."),
}
# Filters of security handlers that sell books: Adobe's, FileOpen's, and Adobe LiveCycle's.
_DRM = (b"/EBX_HANDLER", b"/Adobe.APS", b"/FOPN_fLock", b"/FOPN_foweb")
# Only the dictionary matters, and it stands near the end or the start; others may quote the names in their text.
_ENDS = 1 << 16


def read_records(raw: bytes, subject: str) -> Iterator[FileFacts | Page]:
    """What pdfium says of the file `raw`, then of each page, as it comes. `subject` names the file in errors.

    Raises `DocumentError`: `encrypted`, `drm`, `damaged`, `too_large_when_expanded`. Raises `InfrastructureError`
    where the process is killed from outside or pdfium cannot be loaded.
    """
    bound = min(MOST_EXPANDED, max(FREELY_EXPANDED, MOST_RATIO * len(raw)))
    at = "before its first page"
    with _process(raw) as (process, stdout):
        while line := stdout.readline(bound + 1):
            bound -= len(line)
            if bound < 0:
                raise _fault(raw, subject, Fault(reason="too_large_when_expanded", cause=at))
            if not line.endswith(b"\n"):
                break
            record = from_wire(line)
            if isinstance(record, End):
                return
            if isinstance(record, Fault):
                raise _fault(raw, subject, record)
            yield record
            if isinstance(record, Page):
                at = f"behind page {record.index + 1:,}"
        raise _stopped(process.wait(), subject, at)


@contextmanager
def _process(raw: bytes) -> Iterator[tuple["subprocess.Popen[bytes]", BinaryIO]]:
    """The process, fed with the file, and what it writes."""
    # What this process can import, that one can too, however the path came about.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    process = subprocess.Popen(
        [sys.executable, *_WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    stdin, stdout = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)
    try:
        # A process that ended early is told by its exit code.
        with suppress(BrokenPipeError), stdin:
            stdin.write(raw)
        yield process, stdout
    finally:
        process.kill()
        process.wait()
        stdout.close()


def _fault(raw: bytes, subject: str, fault: Fault) -> DocumentError:
    reason = fault.reason
    if reason in ("security_handler", "encrypted") and any(name in raw[:_ENDS] + raw[-_ENDS:] for name in _DRM):
        reason = "drm"
    cause, advice = _ADVICE.get(reason, (f"it is damaged ({fault.cause})", _WHOLE_COPY))
    reason = "encrypted" if reason == "security_handler" else reason
    needs = "a copy without a password" if reason == "encrypted" else None
    return DocumentError(f"{display(subject)}: {cause}. {advice}", stage="read", reason=reason, needs=needs)


def _stopped(code: int, subject: str, at: str) -> DocumentError | InfrastructureError:
    """Why the process ended before the last page; `code` is its exit code, negative for a signal."""
    name = display(subject)
    if code == NO_PDFIUM:
        return InfrastructureError(f"{name}: pdfium cannot be loaded. Install the package pypdfium2.")
    if -code in _FROM_OUTSIDE:
        cause = f"{name}: the process that reads it was killed ({signal.Signals(-code).name}) {at}."
        return InfrastructureError(f"{cause} See whether the machine ran out of memory, then run again.")
    if -code == signal.SIGPROF:
        cause = f"makes pdfium stand still: {CPU_SECONDS_A_RECORD} processor seconds without a page"
    elif code < 0:
        cause = f"makes pdfium crash ({signal.Signals(-code).name}), or needs more than {MOST_MEMORY >> 30} GiB"
    else:
        cause = f"makes pdfium fail (exit code {code})"
    return DocumentError(f"{name}: it {cause} {at}. {_WHOLE_COPY}", stage="read", reason="damaged")
