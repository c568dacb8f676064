"""The whole built-in random model on a ring, by loopback, equals one plain transformers pass."""

import pytest
import torch
from ring_oracles import gather
from tiny_random import LENGTHS, TOLERANCES, logprob_error, ring_model, shard_states, states_of_the_end_alone

from longdoc.model.local import LocalModel
from longdoc.ring.exchange.loopback import run_ranks
from longdoc.ring.layout import LAYOUTS, Layout, LayoutKind


def ring_states(model: LocalModel, layout: Layout, dtype: torch.dtype) -> torch.Tensor:
    loaded = ring_model(model, dtype)
    parts = run_ranks(layout.num_ranks, lambda exchange: shard_states(exchange, layout, loaded))
    assert all(part.dtype == dtype for part in parts)
    return gather(layout, parts, dim=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("num_tokens", LENGTHS)
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4, 7])
def test_every_log_probability_is_that_of_one_plain_pass(
    tiny_model: LocalModel, num_ranks: int, num_tokens: int, kind: LayoutKind, dtype: torch.dtype
) -> None:
    layout = Layout(kind=kind, num_tokens=num_tokens, num_ranks=num_ranks)
    assert logprob_error(tiny_model, ring_states(tiny_model, layout, dtype)) <= TOLERANCES[dtype]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("num_tokens", [2, 97, 1000])
def test_shards_that_do_not_see_each_other_would_be_noticed(
    tiny_model: LocalModel, num_tokens: int, dtype: torch.dtype
) -> None:
    whole = ring_states(tiny_model, Layout(kind="contiguous", num_tokens=num_tokens, num_ranks=1), dtype)
    half = num_tokens // 2
    alone = states_of_the_end_alone(tiny_model, num_tokens, half, dtype)
    assert logprob_error(tiny_model, torch.cat([whole[:half], alone])) > 100 * TOLERANCES[dtype]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_an_error_of_one_token_far_below_what_matters_would_be_noticed(
    tiny_model: LocalModel, dtype: torch.dtype
) -> None:
    states = ring_states(tiny_model, Layout(kind="zigzag", num_tokens=97, num_ranks=3), dtype).clone()
    states[41] += 3 * TOLERANCES[dtype]
    assert logprob_error(tiny_model, states) > TOLERANCES[dtype]
