"""Waiting for Ray: one place where its errors become longdoc's, and where the cause is told from its echoes."""

import time
from collections.abc import Callable
from typing import Any

from longdoc.errors import InfrastructureError, LongdocError, PeerLostError, RingError

#: How often a wait wakes up to look around.
POLL_SECONDS = 0.5
#: After a first failure, how long the others are heard: the rank that failed first is often not the first to say so.
_GRACE_SECONDS = 3.0


def result(reference: Any, what: str, *, timeout: float | None = None) -> Any:
    """The value behind a reference. Raises longdoc's own errors as they are, and `RingError` for everything of Ray's.

    `what` names who did what, for the message: "rank 1, forming the ring".
    """
    import ray

    try:
        return ray.get(reference, timeout=timeout)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, LongdocError):
            raise error.cause from None
        raise RingError(f"{what}: {error.cause!r}.") from error
    except ray.exceptions.RayError as error:
        raise RingError(f"{what}: lost, {_first_line(error)}") from None


def gather(
    pending: dict[Any, int], doing: str, *, seconds: float | None, tick: Callable[[], None] = lambda: None
) -> list[Any]:
    """The results of all ranks, in rank order.

    `pending` maps references to ranks; `tick` is called about twice a second while they wait and may raise. Raises the
    cause where a rank fails, and `RingError` naming the late ones after `seconds`.
    """
    import ray

    results: dict[int, Any] = {}
    waiting, deadline = dict(pending), None if seconds is None else time.monotonic() + seconds
    while waiting:
        ready, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=POLL_SECONDS)
        failures = _collect(ready, waiting, results, doing)
        if failures:
            ready, _ = (
                ray.wait(list(waiting), num_returns=len(waiting), timeout=_GRACE_SECONDS) if waiting else ([], [])
            )
            raise explained(failures + _collect(ready, waiting, results, doing))
        if waiting and deadline is not None and time.monotonic() > deadline:
            late = ", ".join(map(str, sorted(waiting.values())))
            raise RingError(f"rank {late}, {doing}: not done within {seconds:.0f} s.")
        if waiting:
            tick()
    return [results[rank] for rank in range(len(pending))]


def explained(failures: list[LongdocError]) -> LongdocError:
    """The cause; where it is a lost rank, with what its peers say of the place at which they lost it, as notes."""
    cause = cause_of(failures)
    if isinstance(cause, InfrastructureError):
        for echo in failures:
            if isinstance(echo, PeerLostError) and echo is not cause:
                cause.add_note(str(echo))
    return cause


def cause_of(failures: list[LongdocError]) -> LongdocError:
    """The failure that explains the others: what is not infrastructure, then what is no echo of a lost peer."""
    return min(failures, key=lambda error: (isinstance(error, InfrastructureError), isinstance(error, PeerLostError)))


def _collect(ready: list[Any], waiting: dict[Any, int], results: dict[int, Any], doing: str) -> list[LongdocError]:
    failures: list[LongdocError] = []
    for reference in ready:
        rank = waiting.pop(reference)
        try:
            results[rank] = result(reference, f"rank {rank}, {doing}")
        except LongdocError as error:
            failures.append(error)
    return failures


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
