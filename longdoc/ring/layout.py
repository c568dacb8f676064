"""Which rank owns which tokens of a sequence, exactly, for any number of tokens and any number of ranks.

Pure arithmetic: no padding, no divisibility rule, no token dropped or owned twice. A rank keeps its tokens in
ascending order; planning relies on that. Refuses unknown layouts by name.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from longdoc.errors import StartError

LayoutKind = Literal["zigzag", "contiguous", "striped"]
LAYOUTS: tuple[LayoutKind, ...] = ("zigzag", "contiguous", "striped")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRange:
    """Tokens [start, stop)."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def slice(self) -> slice:
        """The range as an index into a tensor dimension."""
        return slice(self.start, self.stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRun:
    """`num_tokens` tokens, the first at `start` and each `step` after the one before."""

    start: int
    num_tokens: int
    step: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """`num_tokens` tokens dealt out to `num_ranks` ranks.

    contiguous: rank r owns the r-th of P chunks. zigzag: rank r owns chunks r and 2P-1-r of 2P, so that under a causal
    mask every rank has the same work (the layout of Megatron's context parallelism and of Llama 3, arXiv:2407.21783
    §3.3.2). striped: rank r owns tokens r, r+P, r+2P, … (striped attention, arXiv:2311.09431). Chunks differ by at
    most one token, the longer ones first, and so do the ranks.
    Raises `StartError` for an unknown kind.
    """

    kind: LayoutKind
    num_tokens: int
    num_ranks: int

    def __post_init__(self) -> None:
        if self.kind not in LAYOUTS:
            raise StartError(f"layout {self.kind!r} is not available: choose --layout {', '.join(LAYOUTS)}")
        if self.num_tokens < 0 or self.num_ranks < 1:
            raise ValueError(f"cannot lay out {self.num_tokens} tokens on {self.num_ranks} ranks")

    @property
    def _num_chunks(self) -> int:
        return 2 * self.num_ranks if self.kind == "zigzag" else self.num_ranks

    def _chunk_start(self, chunk: int) -> int:
        size, num_longer = divmod(self.num_tokens, self._num_chunks)
        return chunk * size + min(chunk, num_longer)

    def _chunks_of(self, rank: int) -> tuple[int, ...]:
        if not 0 <= rank < self.num_ranks:
            raise ValueError(f"rank {rank} is not in a ring of {self.num_ranks}")
        return (rank, self._num_chunks - 1 - rank) if self.kind == "zigzag" else (rank,)

    def runs(self, rank: int) -> tuple[TokenRun, ...]:
        """A rank's tokens as at most two runs, ascending; neighbours are joined and empty runs left out."""
        if self.kind == "striped":
            start = self._chunks_of(rank)[0]
            num_tokens = len(range(start, self.num_tokens, self.num_ranks))
            return (TokenRun(start=start, num_tokens=num_tokens, step=self.num_ranks),) if num_tokens else ()
        found: list[TokenRun] = []
        for chunk in self._chunks_of(rank):
            start, stop = self._chunk_start(chunk), self._chunk_start(chunk + 1)
            if start == stop:
                continue
            if found and found[-1].start + found[-1].num_tokens == start:
                start = found.pop().start
            found.append(TokenRun(start=start, num_tokens=stop - start))
        return tuple(found)

    def ranges(self, rank: int) -> tuple[TokenRange, ...]:
        """A rank's tokens as global ranges, ascending; of a striped layout, as many as it has tokens."""
        return tuple(
            TokenRange(start=start, stop=start + (run.num_tokens if run.step == 1 else 1))
            for run in self.runs(rank)
            for start in ([run.start] if run.step == 1 else self.positions(rank).tolist())
        )

    def num_tokens_of(self, rank: int) -> int:
        """How many tokens a rank owns."""
        return sum(run.num_tokens for run in self.runs(rank))

    def positions(self, rank: int) -> npt.NDArray[np.int64]:
        """The global positions of a rank's tokens, ascending: int64 [num_tokens_of(rank)]."""
        pieces = [run.start + run.step * np.arange(run.num_tokens, dtype=np.int64) for run in self.runs(rank)]
        return np.concatenate([np.empty(0, dtype=np.int64), *pieces])

    def owner(self, position: int) -> int:
        """The rank that owns a global position."""
        if not 0 <= position < self.num_tokens:
            raise ValueError(f"position {position} is outside of {self.num_tokens} tokens")
        if self.kind == "striped":
            return position % self.num_ranks
        size, num_longer = divmod(self.num_tokens, self._num_chunks)
        start_of_shorter = num_longer * (size + 1)
        if position < start_of_shorter:
            chunk = position // (size + 1)
        else:
            chunk = num_longer + (position - start_of_shorter) // size
        return self._rank_of_chunk(chunk)

    def _rank_of_chunk(self, chunk: int) -> int:
        return min(chunk, self._num_chunks - 1 - chunk) if self.kind == "zigzag" else chunk

    def borders(self) -> tuple[int, ...]:
        """The global positions whose token has another owner than the token before, ascending."""
        if self.kind == "striped":
            return tuple(range(1, self.num_tokens)) if self.num_ranks > 1 else ()
        found: list[int] = []
        before: int | None = None
        for chunk in range(self._num_chunks):
            start = self._chunk_start(chunk)
            if start == self._chunk_start(chunk + 1):
                continue
            rank = self._rank_of_chunk(chunk)
            if before is not None and rank != before:
                found.append(start)
            before = rank
        return tuple(found)
