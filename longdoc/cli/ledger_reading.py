"""What `longdoc inspect` shows, before it has a shape: documents with their segments one by one, and their sums.

Owns how a document is read for showing (a segment at a time where its source can do that, whole where it cannot), the
check that segments tile and sums agree, and word of progress on standard error. Prints no ledger.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import click

from longdoc.cli.printing import plural, short_name
from longdoc.errors import DocumentError, ensure
from longdoc.records import Document, DocumentRef, Segment, Source, StreamingRef, Unreadable, head_of
from longdoc.sizes import format_bytes

#: Tokens of a segment's text in UTF-8; None where the vocabulary cannot express it.
CountTokens = Callable[[bytes], int | None]

_FIRST_NOTE_SECONDS, _NOTE_SECONDS = 3.0, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A document that could not be read, in words."""

    source_uri: str
    reason: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDocument:
    """A document about to be shown. `head` is what is known of it at once; where it is read a segment at a time, its
    text and segments are empty. `segments` gives each segment and its text in UTF-8, once, and may raise
    `DocumentError`."""

    ref: DocumentRef
    head: Document
    segments: Iterator[tuple[Segment, bytes]]

    def failure(self, error: DocumentError) -> Failure:
        """The fault that ended it, in words."""
        return Failure(source_uri=self.ref.source_uri, reason=error.reason, error=str(error))


@dataclass(slots=True, kw_only=True)
class Sums:
    """What the segments seen so far add up to. `num_bytes_added` is text that stands for no byte of the source."""

    num_segments: int = 0
    num_bytes_in_text: int = 0
    num_bytes_with_reason: int = 0
    num_bytes_text: int = 0
    num_bytes_added: int = 0
    num_tokens: int = 0
    num_without_tokens: int = 0
    digest: "hashlib._Hash" = field(default_factory=hashlib.sha256, repr=False)

    @property
    def num_bytes_source(self) -> int:
        """Bytes of the source that are accounted for."""
        return self.num_bytes_in_text + self.num_bytes_with_reason

    def add(self, segment: Segment, text: bytes, num_tokens: int | None) -> None:
        """Count one segment. Raises `AssertionError` where it does not lie behind the last one."""
        place = (segment.segment_index, segment.text_byte_start, segment.text_byte_stop)
        expected = (self.num_segments, self.num_bytes_text, self.num_bytes_text + len(text))
        ensure(place == expected, f"segment {self.num_segments} lies at {place}, not at {expected}")
        self.num_segments += 1
        self.num_bytes_text += len(text)
        self.digest.update(text)
        if segment.reason is None:
            self.num_bytes_in_text += segment.num_bytes_source
        else:
            self.num_bytes_with_reason += segment.num_bytes_source
        # A transformed text has no bytes of its own; its source's stand on one segment of each part.
        if segment.num_bytes_source == 0 and segment.transform is None:
            self.num_bytes_added += len(text)
        self.num_tokens += num_tokens or 0
        self.num_without_tokens += num_tokens is None


def read_documents(sources: Sequence[Source]) -> Iterator[OpenDocument | Failure]:
    """Every document of every source, in order, each opened when it is asked for."""
    for source in sources:
        for ref in source.documents():
            if isinstance(ref, Unreadable):
                yield Failure(source_uri=ref.source_uri, reason=ref.reason, error=ref.error)
                continue
            try:
                yield _open(ref)
            except DocumentError as error:
                yield Failure(source_uri=ref.source_uri, reason=error.reason, error=str(error))


def _open(ref: DocumentRef) -> OpenDocument:
    progress = _Progress(ref)
    if isinstance(ref, StreamingRef):
        return OpenDocument(ref=ref, head=head_of(ref), segments=progress.along(ref.stream()))
    document = ref.read()
    pieces = ((segment, document.segment_text(segment)) for segment in document.segments)
    return OpenDocument(ref=ref, head=document, segments=progress.along(pieces))


@dataclass(slots=True)
class _Progress:
    """A line on standard error now and then while a document takes long."""

    _ref: DocumentRef
    _next: float = field(default_factory=lambda: time.monotonic() + _FIRST_NOTE_SECONDS)

    def along(self, pieces: Iterator[tuple[Segment, bytes]]) -> Iterator[tuple[Segment, bytes]]:
        num_bytes = 0
        for num_segments, (segment, text) in enumerate(pieces, start=1):
            yield segment, text
            num_bytes += segment.num_bytes_source
            if time.monotonic() >= self._next:
                self._next = time.monotonic() + _NOTE_SECONDS
                done = f"{format_bytes(num_bytes)} of {format_bytes(self._ref.num_bytes_source)}"
                name = short_name(self._ref.source_uri)
                click.echo(f"{name}: {done}, {plural(num_segments, 'segment')}", err=True)
