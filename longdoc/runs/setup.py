"""What is decided before the first document: the ring's size, how documents are read for it, what is announced."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from longdoc.cluster.group import RingGroup
from longdoc.cluster.messages import IngestSpec
from longdoc.cluster.placement import GPU_RESERVE_BYTES, Capacity, RingSpec
from longdoc.cluster.rooms import ClusterRing
from longdoc.config import RunConfig
from longdoc.errors import clean_up
from longdoc.estimate import ModelShape, smallest_ring
from longdoc.gpus import visible_gpus
from longdoc.machine import bytes_for_a_rank, num_cores
from longdoc.model.local import LocalModel
from longdoc.outputs.convention import convention_of, prompt_token_ids
from longdoc.records import DocumentRef
from longdoc.reporting import Reporter
from longdoc.ring.kernels import choose_kernel
from longdoc.ring.mask import Mask
from longdoc.ring.plan import check_carries
from longdoc.sizes import format_bytes
from longdoc.store.commit import OutputStore
from longdoc.store.schemas import OutputIdentity

#: Bytes of source behind one token, to size a ring before anything is encoded. Fewer than in most texts, so that the
#: ring is rather too large than too small: English prose has about 4, code 3.
BYTES_PER_TOKEN = 2.5


@contextlib.contextmanager
def opened(output: str, identity: OutputIdentity) -> Iterator[OutputStore]:
    """The output, open for writing; what this run left in its staging is cleared when the block ends."""
    store = OutputStore.open(output, identity)
    try:
        yield store
    finally:
        clean_up(store.close)


def ring_spec(config: RunConfig) -> RingSpec:
    """The ring that was asked for, on this machine's cores or GPUs."""
    device = config.resolved_device
    return RingSpec(
        num_ranks=config.resolved_ring_size,
        num_cores=num_cores(),
        device=device,
        num_gpus=len(visible_gpus()) if device == "cuda" else 0,
    )


def check_layout(config: RunConfig, model: LocalModel) -> None:
    """Raise `ModelError` where the layout does not carry a window that the model's configuration tells.

    The layers themselves are asked when they run; this is to say so before Ray starts and documents are read.
    """
    for window in {layer.window for layer in model.layers if layer.window is not None}:
        check_carries(config.layout, Mask.sliding(window, causal=model.attention_direction == "causal"))


def capacity_of(ring: RingSpec) -> Callable[[int], int]:
    """What each rank may use now: a share of its machine's memory, or the free memory of the fullest GPU.

    On a cluster, what the nodes said when they were checked.
    """
    if isinstance(ring, ClusterRing):
        return ring.capacity
    if ring.device == "cpu":
        return Capacity(num_bytes=bytes_for_a_rank(1), is_shared=True)
    free = min(gpu.free_bytes for gpu in visible_gpus())
    return Capacity(num_bytes=max(0, free - GPU_RESERVE_BYTES), is_shared=False)


def grown(ring: RingSpec, config: RunConfig, shape: ModelShape, refs: Sequence[DocumentRef]) -> RingSpec:
    """On CUDA, where no ring size was asked for: the smallest ring that holds the longest document by its bytes.

    Tokens are not counted yet. Where no ring holds it, the largest is taken: other documents may fit.
    """
    if ring.device == "cpu" or config.ring_size is not None or not refs:
        return ring
    num_tokens = math.ceil(max(ref.num_bytes_source for ref in refs) / BYTES_PER_TOKEN)
    fits = smallest_ring(shape, num_tokens, capacity_of(ring), most=ring.most_ranks)
    return replace(ring, num_ranks=ring.most_ranks if fits is None else fits)


def ingest_spec(config: RunConfig, model: LocalModel, ring: RingSpec) -> IngestSpec:
    """How documents are read for this ring; each rank may use its share of the memory that is free now."""
    return IngestSpec(
        model_folder=str(model.folder),
        span_tokens=config.span_tokens,
        layout=config.layout,
        num_ranks=ring.num_ranks,
        context_extension=config.context_extension,
        positions=model.positions,
        prompt_token_ids=prompt_token_ids(config, model),
        with_text=config.text,
        capacity=capacity_of(ring),
        most_ranks=ring.most_ranks,
        num_cpus=ring.ingest_cpus,
    )


def announce(config: RunConfig, model: LocalModel, ring: RingSpec, ingest: IngestSpec, reporter: Reporter) -> None:
    """Print every choice behind an `auto`, and what is unusual about the ring."""
    import torch

    kernel = config.kernel
    if config.address is None or config.resolved_device == "cpu":
        # A driver need not have the GPUs, nor the kernels, of its ranks.
        kernel, _ = choose_kernel(config.kernel, config.resolved_device, getattr(torch, config.resolved_dtype))
    reporter.note(
        f"{model.name} in {config.resolved_dtype} on {config.resolved_device}, kernel {kernel}, "
        f"{_embeddings(config, model)}; a ring of {ring.num_ranks} × {ring.threads_per_rank} "
        f"thread{'s' if ring.threads_per_rank > 1 else ''}, layout {config.layout}, "
        f"{format_bytes(ingest.capacity(ring.num_ranks))} a rank"
    )
    if ring.is_crowded:
        reporter.note(
            f"{ring.num_ranks} ranks share {ring.num_cores} cores: exact, but no faster than --ring-size "
            f"{ring.num_cores}"
        )


def _embeddings(config: RunConfig, model: LocalModel) -> str:
    if "embeddings" not in config.chosen_outputs:
        return "no embeddings"
    convention = convention_of(config, model)
    prompt = f", prompt {convention.prompt!r}" if convention.prompt else ""
    return f"pooling {convention.label}{prompt}"


def announce_ring(group: RingGroup, reporter: Reporter) -> None:
    """Print where the ranks stand, where that is more than one node."""
    if not group.is_on_one_node:
        reporter.note(f"ranks in ring order on {', '.join(place.host for place in group.places)}")
