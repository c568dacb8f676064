"""Everything a rank computes is made where the model is, shown on torch's meta device, strictly kept from the CPU."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from longdoc.bench.gpu_device import BenchDevice
from longdoc.bench.gpu_forward import SMALL_SHAPE, RandomModel
from longdoc.model.embedding_head import EmbeddingHead
from longdoc.model.positions import ContextExtension
from longdoc.outputs.embeddings import PooledTokens, pool_pieces
from longdoc.outputs.pieces import Partition, pieces_of_rank
from longdoc.outputs.scores import score_places
from longdoc.ring import hook
from longdoc.ring.exchange.loopback import run_ranks
from longdoc.ring.hook import RingContext, use_ring
from longdoc.ring.kernels.reference import reference_kernel
from longdoc.ring.kernels.torch_cuda import torch_cuda_kernel
from longdoc.ring.layout import Layout
from longdoc.ring.mask import CAUSAL

META = torch.device("meta")


class OneDevice(TorchDispatchMode):
    """Refuses an op on tensors of two devices, as CUDA's do and meta's often do not; copies are free."""

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor) and leaf.dim()]
        if len({tensor.device for tensor in tensors}) > 1 and op is not torch.ops.aten.copy_.default:
            raise RuntimeError(f"{op} got tensors on more than one device")
        return op(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def meta_model():
    model = RandomModel(SMALL_SHAPE, BenchDevice("cpu")).model
    model.module.to(META)
    return model


@pytest.fixture
def values_are_not_read(monkeypatch):
    """A meta tensor has no values: what looks at them looks away, and what goes to the CPU arrives as zeros."""
    monkeypatch.setattr(hook, "first_nonfinite", lambda tensors: None)
    monkeypatch.setattr(hook.ModelMask, "mask", lambda self: CAUSAL)
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: torch.zeros(tensor.shape, dtype=tensor.dtype))


@pytest.mark.parametrize("kernel", [reference_kernel, torch_cuda_kernel])
def test_a_forward_pass_on_a_ring_makes_nothing_elsewhere(meta_model, values_are_not_read, monkeypatch, kernel):
    monkeypatch.setattr(meta_model._rotary, "check", lambda positions: None)
    meta_model.set_positions(ContextExtension(), 40)

    def states(exchange):
        layout = Layout(kind="zigzag", num_tokens=40, num_ranks=3)
        context = RingContext(layout=layout, exchange=exchange, kernel=kernel)
        positions = torch.from_numpy(layout.positions(exchange.rank)).to(META)
        with torch.inference_mode(), use_ring(context), OneDevice():
            return meta_model.hidden_states(positions, positions)

    assert [(found.device, len(found)) for found in run_ranks(3, states)] == [(META, 13), (META, 13), (META, 14)]


def test_scores_are_computed_where_the_states_are_and_end_on_the_cpu(meta_model, values_are_not_read):
    hidden = torch.empty((40, SMALL_SHAPE.hidden_size), dtype=torch.bfloat16, device=META)
    places = torch.arange(39)
    with OneDevice():
        scores = score_places(hidden, places, places, meta_model.logits, vocab_size=SMALL_SHAPE.vocab_size)
    assert {tensor.device.type for tensor in (scores.logprob, scores.entropy, scores.rank)} == {"cpu"}
    with OneDevice(), pytest.raises(RuntimeError, match="more than one device"):
        score_places(hidden, places, places, lambda states: torch.zeros(len(states), 128), vocab_size=128)


def test_states_are_summed_where_they_are_and_pieces_end_on_the_cpu(values_are_not_read):
    layout, starts = Layout(kind="zigzag", num_tokens=12, num_ranks=1), np.array([0, 5, 12], dtype=np.int64)
    tokens = np.arange(12, dtype=np.int64)
    pieces = pieces_of_rank(Partition.of(starts, layout, num_prefix=0), 0, tokens=tokens, rows=tokens[1:])
    with OneDevice():
        found = pool_pieces(
            pieces,
            hidden_NC=torch.empty((12, 8), dtype=torch.bfloat16, device=META),
            pooled=PooledTokens(places=tokens, piece=pieces.token_piece),
            head=EmbeddingHead(),
            logprob=torch.zeros(11),
            scored_rows=np.arange(11, dtype=np.int64),
            all_reduce=lambda tensor, op: None,
        )
    assert found.embeddings(pieces.owned).shape == (2, 8)


def test_the_peak_of_a_gpu_is_that_of_its_tensors(monkeypatch):
    from longdoc.cluster.compute import peak_memory_bytes, reset_peak_memory

    reset = []
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", reset.append)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 123)
    device = torch.device("cuda", 0)
    reset_peak_memory(device)
    assert (reset, peak_memory_bytes(device)) == ([device], 123)
    assert peak_memory_bytes(torch.device("cpu")) > 1 << 20
