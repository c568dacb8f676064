"""The built-in `tiny-random` on a ring, and one plain transformers pass to compare it with.

Every log-probability over the whole vocabulary is compared without computing them all. With states h, h' and a head
of rows W_v, log-softmax moves by at most twice what a logit moves, which is W_v · (h' - h):

    |logprob'_v - logprob_v| <= 2 max_w |W_w · (h' - h)| <= 2 max_w |W_w| |h' - h|

So where the states of a token are close enough its log-probabilities are too; for the others, and for the few tokens
that differ most, the log-probabilities themselves are computed, a tile at a time. Legend: T tokens, C hidden size,
V vocabulary.
"""

import functools

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from longdoc.model.load import RingModel, load_model
from longdoc.model.local import LocalModel
from longdoc.ring.exchange import Exchange
from longdoc.ring.hook import RingContext, use_ring
from longdoc.ring.kernels import choose_kernel
from longdoc.ring.layout import Layout

LENGTHS = [1, 2, 5, 97, 1000, 4096]
TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-3}
_TILE = 128
_WORST = 16


@functools.cache
def ring_model(local: LocalModel, dtype: torch.dtype) -> RingModel:
    """The model as a run loads it."""
    return load_model(local, dtype=dtype)


@functools.cache
def _plain_model(local: LocalModel, dtype: torch.dtype) -> torch.nn.Module:
    """The model as transformers loads it, with its own attention in the model's dtype."""
    return AutoModelForCausalLM.from_pretrained(local.folder, dtype=dtype, attn_implementation="sdpa").eval()


@functools.cache
def _plain_states(local: LocalModel, num_tokens: int, dtype: torch.dtype) -> Tensor:
    with torch.no_grad():
        token_ids = document(local, num_tokens)
        return _plain_model(local, dtype).base_model(input_ids=token_ids[None], use_cache=False).last_hidden_state[0]


def states_of_the_end_alone(local: LocalModel, num_tokens: int, num_before: int, dtype: torch.dtype) -> Tensor:
    """What a rank would compute that owns the end of the document and sees nothing of the others."""
    token_ids, positions = document(local, num_tokens)[num_before:], torch.arange(num_before, num_tokens)
    with torch.no_grad():
        base_model = _plain_model(local, dtype).base_model
        return base_model(input_ids=token_ids[None], position_ids=positions[None], use_cache=False).last_hidden_state[0]


def document(local: LocalModel, num_tokens: int) -> Tensor:
    """Token ids from all over the vocabulary."""
    return torch.randint(0, local.vocab_size, (num_tokens,), generator=torch.Generator().manual_seed(num_tokens))


def shard_states(exchange: Exchange, layout: Layout, model: RingModel) -> Tensor:
    """One rank's final states, [T, C]; a rank without tokens takes part all the same."""
    positions_T = torch.from_numpy(layout.positions(exchange.rank))
    context = RingContext(layout=layout, exchange=exchange, kernel=choose_kernel("torch", "cpu")[1])
    with use_ring(context):
        states_TC = model.hidden_states(document(model.local, layout.num_tokens)[positions_T], positions_T)
    context.assert_engaged(model.num_layers)
    return states_TC


def logprob_error(local: LocalModel, states_TC: Tensor) -> float:
    """A bound of the largest difference of a log-probability from the plain pass, in nats."""
    plain_TC = _plain_states(local, len(states_TC), states_TC.dtype)
    head_VC = _plain_model(local, states_TC.dtype).get_output_embeddings().weight
    bound_T = 2 * (states_TC - plain_TC).norm(dim=-1) * head_VC.norm(dim=-1).max()
    exact_T = bound_T > TOLERANCES[states_TC.dtype]
    exact_T[bound_T.topk(min(_WORST, len(bound_T))).indices] = True
    error = bound_T[~exact_T].max().item() if not exact_T.all() else 0.0
    model = ring_model(local, states_TC.dtype)
    for tokens in exact_T.nonzero().flatten().split(_TILE):
        ours_TV = model.logits(states_TC[tokens]).log_softmax(-1)
        theirs_TV = (plain_TC[tokens] @ head_VC.T).log_softmax(-1)
        error = max(error, (ours_TV - theirs_TV).abs().max().item())
    return error
