"""What is decided before the first document: the ring's size, how documents are read for it, what is announced."""

import contextlib
from collections.abc import Iterator

from longdoc.cluster.messages import IngestSpec
from longdoc.cluster.placement import RingSpec
from longdoc.config import RunConfig
from longdoc.errors import clean_up
from longdoc.estimate import format_bytes
from longdoc.machine import bytes_for_a_rank, num_cores
from longdoc.model.local import LocalModel
from longdoc.reporting import Reporter
from longdoc.ring.kernels import choose_kernel
from longdoc.store.commit import OutputStore
from longdoc.store.schemas import OutputIdentity


@contextlib.contextmanager
def opened(output: str, identity: OutputIdentity) -> Iterator[OutputStore]:
    """The output, open for writing; what this run left in its staging is cleared when the block ends."""
    store = OutputStore.open(output, identity)
    try:
        yield store
    finally:
        clean_up(store.close)


def ring_spec(config: RunConfig) -> RingSpec:
    """The ring that was asked for, on this machine's cores."""
    return RingSpec(num_ranks=config.resolved_ring_size, num_cores=num_cores())


def ingest_spec(config: RunConfig, model: LocalModel, ring: RingSpec) -> IngestSpec:
    """How documents are read for this ring; each rank may use its share of the memory that is free now."""
    return IngestSpec(
        model_folder=str(model.folder),
        span_tokens=config.span_tokens,
        layout=config.layout,
        num_ranks=ring.num_ranks,
        context_extension=config.context_extension,
        positions=model.positions,
        with_text=config.text,
        total_bytes=bytes_for_a_rank(1),
        most_ranks=ring.most_ranks,
    )


def announce(config: RunConfig, model: LocalModel, ring: RingSpec, ingest: IngestSpec, reporter: Reporter) -> None:
    """Print every choice behind an `auto`, and what is unusual about the ring."""
    kernel, _ = choose_kernel(config.kernel, config.resolved_device)
    reporter.note(
        f"{model.name} in {config.resolved_dtype} on {config.resolved_device}, kernel {kernel}, pooling "
        f"{config.resolved_pooling}; a ring of {ring.num_ranks} × {ring.threads_per_rank} "
        f"thread{'s' if ring.threads_per_rank > 1 else ''}, layout {config.layout}, "
        f"{format_bytes(ingest.total_bytes // ring.num_ranks)} a rank"
    )
    if ring.is_crowded:
        reporter.note(
            f"{ring.num_ranks} ranks share {ring.num_cores} cores: exact, but no faster than --ring-size "
            f"{ring.num_cores}"
        )
