"""The forward passes that are compared: plain transformers in one process, and the ring, rank by rank.

Legend: N tokens of the document, T tokens of a rank, C hidden size. Both run the base model only: no output head, no
cache, no mask tensor, the same dtype and the same random token ids.
"""

from typing import Any

import torch
from torch import Tensor

from longdoc.bench.processes import Handler
from longdoc.model.load import load_model
from longdoc.model.local import LocalModel
from longdoc.ring.exchange import Exchange
from longdoc.ring.hook import RingContext, use_ring
from longdoc.ring.kernels import choose_kernel
from longdoc.ring.layout import Layout, LayoutKind


def random_document(vocab_size: int, num_tokens: int) -> Tensor:
    """Token ids, int64 [N], the same in every process."""
    return torch.randint(0, vocab_size, (num_tokens,), generator=torch.Generator().manual_seed(num_tokens))


def build_plain(_: Exchange | None, local: LocalModel, dtype: str) -> Handler:
    """Transformers' own SDPA, untouched. Answers (num_tokens, wants_states) with states_NC in float32, or None."""
    model = plain_model(local, getattr(torch, dtype))

    @torch.inference_mode()
    def forward(num_tokens: int, wants_states: bool) -> Any:
        token_ids_N = random_document(local.vocab_size, num_tokens)
        states_NC = model(input_ids=token_ids_N[None], use_cache=False).last_hidden_state[0]
        return states_NC.float().numpy() if wants_states else None

    return forward


def plain_model(local: LocalModel, dtype: torch.dtype, attention: str = "sdpa") -> Any:
    """The base model as transformers loads it, with an attention of transformers' table."""
    from transformers import AutoModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model = AutoModel.from_pretrained(
        local.folder, dtype=dtype, attn_implementation=attention, use_safetensors=True, local_files_only=True
    )
    return model.eval().requires_grad_(False)


def build_ring(
    exchange: Exchange | None, local: LocalModel, dtype: str, layout_kind: LayoutKind, kernel_name: str
) -> Handler:
    """One rank of longdoc's ring. Answers (num_tokens, wants_states) with states_TC in float32, or None."""
    if exchange is None:
        raise ValueError("a rank of a ring needs an exchange")
    model = load_model(local, dtype=getattr(torch, dtype))
    _, kernel = choose_kernel(kernel_name, "cpu")

    @torch.inference_mode()
    def forward(num_tokens: int, wants_states: bool) -> Any:
        layout = Layout(kind=layout_kind, num_tokens=num_tokens, num_ranks=exchange.num_ranks)
        positions_T = torch.from_numpy(layout.positions(exchange.rank))
        token_ids_T = random_document(local.vocab_size, num_tokens)[positions_T]
        context = RingContext(layout=layout, exchange=exchange, kernel=kernel)
        with use_ring(context):
            states_TC = model.hidden_states(token_ids_T, positions_T)
        context.assert_engaged(model.num_layers)
        return states_TC.float().numpy() if wants_states else None

    return forward
