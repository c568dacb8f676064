"""What is decided before the first document: the ring's size, how documents are read for it, what is announced."""

import os

from longdoc.cluster.messages import IngestSpec
from longdoc.cluster.placement import RingSpec
from longdoc.config import RunConfig
from longdoc.estimate import available_bytes, format_bytes
from longdoc.model.sources import LocalModel
from longdoc.reporting import Reporter
from longdoc.ring.kernels import choose_kernel


def num_cores() -> int:
    """Cores this process may use, which in a container can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
        context_trained=model.context_trained,
        rope_type=model.rope_type,
        with_text=config.text,
        capacity_bytes=available_bytes() // ring.num_ranks,
    )


def announce(config: RunConfig, model: LocalModel, ring: RingSpec, reporter: Reporter) -> None:
    """Print every choice behind an `auto`, and what is unusual about the ring."""
    kernel, _ = choose_kernel(config.kernel, config.resolved_device)
    reporter.note(
        f"{model.name} in {config.resolved_dtype} on {config.resolved_device}, kernel {kernel}, pooling "
        f"{config.resolved_pooling}; a ring of {ring.num_ranks} × {ring.threads_per_rank} "
        f"thread{'s' if ring.threads_per_rank > 1 else ''}, layout {config.layout}, "
        f"{format_bytes(available_bytes() // ring.num_ranks)} a rank"
    )
    if ring.is_crowded:
        reporter.note(
            f"{ring.num_ranks} ranks share {ring.num_cores} cores: exact, but no faster than --ring-size "
            f"{ring.num_cores}"
        )
