"""The process in which pdfium reads one PDF: the file comes in on stdin, records go out on stdout, one a line.

Owns the bounds that the operating system keeps for it: memory by the size of the file, and time by progress, as
processor seconds without a record. Either ends the process, never the one that asked. Run by `connectors.pdf_process`.
"""

import contextlib
import signal
import sys

#: Beside what the file itself takes. A page of a book needs a few MB; pdfium expands one stream to at most 1 GiB.
MOST_MEMORY = 4 << 30
#: The slowest page of a book takes a second.
CPU_SECONDS_A_RECORD = 60
#: The exit code where pdfium cannot be loaded at all: nothing that a document is to blame for.
NO_PDFIUM = 69


def main() -> None:
    """Read stdin to its end, then write records until `End` or a fault."""
    raw = sys.stdin.buffer.read()
    _bound_memory(len(raw))
    _expect_progress()
    try:
        from connectors.pdf_records import End, Fault, to_wire
        from connectors.pdfium import records
    except (ImportError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        sys.exit(NO_PDFIUM)
    out = sys.stdout.buffer
    try:
        for record in records(raw):
            out.write(to_wire(record))
            out.flush()
            _expect_progress()
        last: End | Fault = End()
    except MemoryError:
        last = Fault(reason="too_large_when_expanded", cause=f"it needs more than {MOST_MEMORY >> 30} GiB of memory")
    out.write(to_wire(last))
    out.flush()


def _bound_memory(num_bytes: int) -> None:
    try:
        import resource
    except ImportError:
        return  # not a POSIX system
    most = MOST_MEMORY + 4 * num_bytes
    for kind, bound in ((resource.RLIMIT_AS, most), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(kind)
        # Some systems have the name and not the bound.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (bound if hard == resource.RLIM_INFINITY else min(bound, hard), hard))


def _expect_progress() -> None:
    """Ask the system to end this process after so many processor seconds, unless this is called again before."""
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS_A_RECORD)


if __name__ == "__main__":
    main()
