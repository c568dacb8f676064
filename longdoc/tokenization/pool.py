"""Processes that encode texts, for whoever has no Ray at hand; threads stall (tiktoken#530).

Owns their number, how they come by the vocabulary, and the batches: texts go out in UTF-8 and come back as one array,
so that handing over costs little. Where this process has one thread they are forked from it, with the vocabulary
already there; where it has more, which a fork would leave behind in the middle of their work, they start anew.
"""

import contextlib
import gc
import multiprocessing
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import numpy as np

from longdoc.errors import InfrastructureError
from longdoc.machine import num_cores
from longdoc.records import Int32s
from longdoc.tokenization.vocabulary import Vocabulary

#: Bytes of a batch: about 15 ms of work, so that all processes are kept busy to the end.
BATCH_BYTES = 400_000
#: Bytes of sources from which on a pool is worth its start.
WORTH_BYTES = 8_000_000
# What a text costs beside its bytes, in bytes that could be encoded in that time.
_BYTES_A_TEXT = 100

# The ids of a batch as bytes, which are unpickled without a copy, and how many each text has.
_Encoded = tuple[bytes, list[int]]
_vocabulary: Vocabulary | None = None


class EncodingPool:
    """Processes with one model's vocabulary. They start with the block that it is the context of, and end with it.

    Open it before anything that talks to another process through a pipe: what is forked holds the pipe open too.
    """

    def __init__(self, folder: Path, *, num_processes: int | None = None) -> None:
        self.is_forked = sys.platform == "linux" and threading.active_count() == 1
        if self.is_forked:
            _load(folder)  # before they are forked, so that all share it
            # What is there now stays; to look for garbage in it again and again would take time in every process.
            gc.freeze()
        self._executor = ProcessPoolExecutor(
            num_processes or num_cores(),
            multiprocessing.get_context("fork" if self.is_forked else "spawn"),
            initializer=_begin,
            initargs=(folder,),
        )
        # Forked processes start all together with the first call, whatever it is; others with the calls.
        self._executor.submit(_encode, [])

    def submit(self, texts: Sequence[bytes]) -> "Future[_Encoded]":
        """Have texts encoded: their ids end to end as int32, and how many each has.

        Raises `InfrastructureError` where a process was killed before.
        """
        try:
            return self._executor.submit(_encode, list(texts))
        except BrokenProcessPool as error:
            raise _killed() from error

    def __enter__(self) -> "EncodingPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)
        if self.is_forked:
            gc.unfreeze()


@contextlib.contextmanager
def pool_where_worth_it(folder: Path, num_bytes: int) -> "Iterator[EncodingPool | None]":
    """A pool for sources of that many bytes; None for so few that they are encoded before it would be there."""
    if num_bytes < WORTH_BYTES:
        yield None
        return
    with EncodingPool(folder) as pool:
        yield pool


@dataclass(slots=True)
class PooledPieces:
    """Texts of one document that are encoded by a pool, from the first full batch on; see `segments.Pieces`."""

    _pool: EncodingPool
    _batch: list[bytes] = field(default_factory=list)
    _num_bytes: int = 0
    _under_way: "deque[Future[_Encoded]]" = field(default_factory=deque)

    def put(self, text: bytes) -> None:
        """The next text, in UTF-8."""
        self._batch.append(text)
        self._num_bytes += len(text) + _BYTES_A_TEXT
        if self._num_bytes >= BATCH_BYTES:
            self._submit()

    def results(self) -> Iterator[Int32s]:
        """The ids of every text, in order, as they come.

        Raises `DocumentError` where one cannot be encoded, `InfrastructureError` where a process was killed.
        """
        self._submit()
        while self._under_way:
            try:
                # Out of the row at once: a result that was taken over holds no memory any more.
                raw, counts = self._under_way.popleft().result()
            except BrokenProcessPool as error:
                raise _killed() from error
            token_ids = np.frombuffer(raw, dtype=np.int32)
            start = 0
            for count in counts:
                yield token_ids[start : start + count]
                start += count

    def _submit(self) -> None:
        if self._batch:
            self._under_way.append(self._pool.submit(self._batch))
            self._batch, self._num_bytes = [], 0


def _killed() -> InfrastructureError:
    cause = "a process that encodes was killed, perhaps for want of memory."
    return InfrastructureError(f"{cause} Make room, then run again.")


def _begin(folder: Path) -> None:
    # Ctrl-C goes to the whole process group; the parent ends its processes itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _load(folder)


def _load(folder: Path) -> None:
    global _vocabulary
    _vocabulary = Vocabulary.load(folder)


def _encode(texts: Sequence[bytes]) -> _Encoded:
    assert _vocabulary is not None
    ids, counts = _vocabulary.encode_batch(texts)
    # A text with a byte that has no token has no ids at all: it is then set aside, or refused by its name.
    return ids.tobytes(), [count or 0 for count in counts]
