"""Notices that a cluster's head is gone, while a run depends on it, and ends the run with the code that says so.

Without its head nothing that was asked of Ray is answered any more, and after a minute Ray ends the process by itself:
with exit code 1, which means something else here. Owns how often the head is looked for and how long it may be out of
reach; a head that comes back in time (Ray's fault tolerance) is waited for.
"""

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

from longdoc.errors import InfrastructureError

#: Seconds between two looks, and without an answer after which the head counts as lost. Ray itself waits for 60
#: (`gcs_rpc_server_reconnect_timeout_s`).
LOOK_SECONDS, LOST_SECONDS = 5.0, 45.0


@contextlib.contextmanager
def watched_head(address: str, *, lost: Callable[[str], None] | None = None) -> Iterator[None]:
    """Look for the head at HOST:PORT until the block ends; `lost` is called, from another thread, once it is gone.

    By default that ends this process: the main thread waits for answers that no longer come.
    """
    left = threading.Event()
    thread = threading.Thread(
        target=_watch, args=(address, left, lost or _end_process), name="longdoc-head", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join(LOOK_SECONDS)


def _watch(address: str, left: threading.Event, lost: Callable[[str], None]) -> None:
    seen = time.monotonic()
    while not left.wait(LOOK_SECONDS):
        if answers(address):
            seen = time.monotonic()
        elif time.monotonic() - seen > LOST_SECONDS:
            lost(address)
            return


def answers(address: str) -> bool:
    """Whether anything listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=LOOK_SECONDS):
            return True
    except OSError:
        return False


def _end_process(address: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(  # noqa: T201, no reporter is of use any more
            f"Error: the cluster's head at {address} has not answered for {LOST_SECONDS:.0f} s. What was committed "
            "stays; run again once the cluster is up.",
            file=sys.stderr,
            flush=True,
        )
    os._exit(InfrastructureError.exit_code)
