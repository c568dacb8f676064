"""Ctrl-C and SIGTERM where they must wait: while Ray, or a tick's run, starts, and while Ray is left.

Owns a context for each, for the main thread; in another thread, where Python delivers no signals, they do nothing.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Signals that arrive inside take effect at the end: what is half started cannot be stopped.

    Ray also takes SIGTERM for itself, and its handler dumps a stack and aborts; the handlers of before come back here.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        arrived.append(number)

    before = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        # Also where the block failed: whoever asked for the end must not be forgotten.
        if arrived:
            raise KeyboardInterrupt


@contextlib.contextmanager
def signals_ignored() -> Iterator[None]:
    """A second Ctrl-C must not stop the stopping."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
