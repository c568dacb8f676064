"""The one exception tree. A message names the subject, the cause and the next action.

    LongdocError                    anything a user can be told in one line
    ├── StartError            (2)   found before work starts: usage, sources, models, outputs, machine
    │   ├── SourceError             no such file, not a repository, unknown revision, nothing readable
    │   ├── ModelError              unknown model, unsupported model, checksum mismatch, no network
    │   │   └── NotShardableError   a sound model that mixes tokens in ways no ring can split
    │   ├── OutputError             not writable, another schema version, another model or set of outputs
    │   └── CapacityError           the ring does not fit the machine
    ├── CheckFailed           (1)   a check said no: verify, models check
    ├── DocumentError         (3)   the document is at fault: quarantined, the rest go on
    ├── InfrastructureError   (4)   worker lost, exchange timed out, disk full: never quarantined
    │   └── RingError               a rank or Ray failed
    │       └── PeerLostError       a rank reports that another one is gone: an echo of the cause, not the cause
    ├── TargetMissed          (5)   a benchmark's target was missed, and it was to be enforced
    └── Interrupted         (130)   the user stopped the run

The numbers are the exit codes of the command line. `ValueError` is for misuse of a function by its caller,
`ensure` for invariants; neither is ever shown to a user on purpose.
"""

import sys
from collections.abc import Callable


def ensure(condition: object, message: str) -> None:
    """Raise `AssertionError` unless an invariant holds, also where Python runs with -O and drops `assert`."""
    if not condition:
        raise AssertionError(message)


class LongdocError(Exception):
    """Base of everything that is reported as one message and an exit code."""

    exit_code: int = 2


class StartError(LongdocError):
    """Found before any work starts."""

    exit_code = 2


class SourceError(StartError):
    """A source cannot be opened: its name is wrong, or it holds nothing that can be read."""


class ModelError(StartError):
    """A model is unknown, unsupported, damaged or out of reach."""


class NotShardableError(ModelError):
    """A sound model that mixes tokens in ways no ring can split; the message says where."""


class OutputError(StartError):
    """An output cannot be written or belongs to another schema version, model or set of outputs."""


class CapacityError(StartError):
    """The machine is too small for what was asked; the message says by how much."""


class CheckFailed(LongdocError):
    """A check said no; the message names what it found."""

    exit_code = 1


class TargetMissed(LongdocError):
    """A benchmark missed a target that was to be enforced; the message lists every one."""

    exit_code = 5


class DocumentError(LongdocError):
    """One document is at fault. It is quarantined with these fields, and the others go on.

    `stage` is where it failed (read, encode, plan, forward, write), `reason` a stable word such as `empty`,
    `needs` what would let it through (for example "1.9 GiB a rank"), or None.
    """

    exit_code = 3

    def __init__(self, message: str, *, stage: str, reason: str, needs: str | None = None) -> None:
        super().__init__(message)
        self.stage = stage
        self.reason = reason
        self.needs = needs

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        # Keyword-only arguments do not survive the default pickling of exceptions, and Ray pickles them.
        return (_document_error, (str(self), self.stage, self.reason, self.needs))


def clean_up(action: Callable[[], object]) -> None:
    """Run `action` in a `finally`: its failure never hides the exception that is on its way, it is noted on that."""
    on_its_way = sys.exception()
    try:
        action()
    except InfrastructureError as error:
        if on_its_way is None:
            raise
        on_its_way.add_note(str(error))


def _document_error(message: str, stage: str, reason: str, needs: str | None) -> DocumentError:
    return DocumentError(message, stage=stage, reason=reason, needs=needs)


class InfrastructureError(LongdocError):
    """A machine, process, network or disk is at fault. Retried or reported, never quarantined."""

    exit_code = 4


class RingError(InfrastructureError):
    """A rank of a ring, or Ray under it, failed; Ray's logs are worth keeping."""


class PeerLostError(RingError):
    """A rank waited in vain for another one. Where any other error of the same ring is known, that is the cause."""


class Interrupted(LongdocError):
    """The user stopped the run; what was committed stays, the rest is taken up by the next run."""

    exit_code = 130
