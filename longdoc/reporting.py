"""What a run tells whoever watches it. The command line draws it; tests record it; nothing here prints."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from longdoc.records import DocumentRef, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why a document cannot be finished; what its quarantine row will say."""

    stage: str
    reason: str
    error: str
    needs: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the ring is within one document. `fraction` grows from 0 to 1 with the attention work done."""

    layer: int
    num_layers: int
    hop: int
    num_hops: int
    fraction: float


class Reporter(Protocol):
    """The events of a run, in order. Methods are called from the driver's main thread and return at once."""

    def note(self, message: str) -> None:
        """A line worth knowing: a choice behind `auto`, a warning."""

    def planned(self, *, todo: Sequence[DocumentRef], num_committed: int, num_quarantined: int) -> None:
        """The plan is known: what is left to do, what earlier runs did."""

    def reading(self, ref: DocumentRef) -> None:
        """The run waits for a document to be read and encoded."""

    def started(self, ref: DocumentRef, *, num_tokens: int) -> None:
        """The ring starts on a document."""

    def progressed(self, ref: DocumentRef, progress: Progress) -> None:
        """Called about twice a second while the ring computes."""

    def committed(self, ref: DocumentRef, *, num_tokens: int, seconds: float) -> None:
        """A document's rows are in the tables."""

    def overtaken(self, ref: DocumentRef) -> None:
        """Another run committed the document first; this one's attempt was discarded."""

    def quarantined(self, source_uri: str, fault: Fault) -> None:
        """A document was set aside with its reason."""


def skipped_files(source: Source) -> Sequence[tuple[str, str]]:
    """(path, reason) of the files that a source passed over."""
    # Only sources that pass files over have the attribute; it is no part of what a source must be.
    found: Sequence[tuple[str, str]] = getattr(source, "skipped", ())
    return found


def skipped_lines(sources: Sequence[Source]) -> Iterator[str]:
    """A line for each of those files."""
    for path, reason in (entry for source in sources for entry in skipped_files(source)):
        yield f"skipped {path}: {reason}"
