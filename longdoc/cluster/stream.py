"""Documents through one ring, one after another, while the next ones are read and encoded beside it.

Owns the overlap: at most two documents are prefetched, and a document's work is dropped from the object store as soon
as its ring is done with it.
"""

import contextlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from longdoc.cluster.calls import result
from longdoc.cluster.group import RingGroup, formed_ring
from longdoc.cluster.ingest import start_ingest
from longdoc.cluster.messages import DocumentSummary, IngestSpec
from longdoc.cluster.placement import RingSpec, reserved
from longdoc.estimate import ModelShape, tile_bytes
from longdoc.model.local import LocalModel
from longdoc.reporting import Fault, Reporter
from longdoc.runs.planning import PlannedDocument

#: Documents that are read ahead of the one that is computed.
PREFETCH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestedDocument:
    """A document that was read: its summary, or the fault that stopped it, and references to each rank's work."""

    planned: PlannedDocument
    outcome: DocumentSummary | Fault
    works: list[Any] = field(repr=False)


class DocumentStream:
    """Documents in order, each read at most `PREFETCH` ahead. Made by `open_stream`."""

    def __init__(self, documents: Sequence[PlannedDocument], spec: IngestSpec, shape: ModelShape) -> None:
        self._waiting = deque(documents)
        self._started: deque[tuple[PlannedDocument, list[Any]]] = deque()
        self._spec, self._shape = spec, shape
        self._read_ahead()

    def documents(self, reporter: Reporter) -> Iterator[IngestedDocument]:
        """The documents, in the order they were given. Waits for the next one to be read."""
        while self._started:
            planned, references = self._started.popleft()
            self._read_ahead()
            reporter.reading(planned.ref)
            outcome: DocumentSummary | Fault = result(references[0], f"reading {planned.ref.source_uri}")
            document = IngestedDocument(planned=planned, outcome=outcome, works=references[1:])
            del references
            yield document
            # Its work leaves the object store now, not when the next document was read.
            document.works.clear()

    def _read_ahead(self) -> None:
        while self._waiting and len(self._started) < PREFETCH:
            planned = self._waiting.popleft()
            self._started.append((planned, start_ingest(planned.ref, self._spec, self._shape)))


@contextlib.contextmanager
def open_stream(
    documents: Sequence[PlannedDocument],
    *,
    ring: RingSpec,
    ingest: IngestSpec,
    model: LocalModel,
    dtype: str,
    kernel: str,
    models: Mapping[str, LocalModel] | None = None,
) -> Iterator[tuple[DocumentStream, RingGroup]]:
    """Start reading, form the ring meanwhile; take both down when the block ends. Ray runs already.

    `models` is the model as each node of a cluster has it, by node id.
    """
    with reserved(ring) as placement:
        stream = DocumentStream(documents, ingest, ModelShape.of(model, dtype, ring.device))
        tiles = tile_bytes(ingest.capacity(ring.num_ranks), ring.device)
        with formed_ring(placement, ring, model, dtype=dtype, kernel=kernel, tile_bytes=tiles, models=models) as group:
            yield stream, group
