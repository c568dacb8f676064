"""Every supported family on rings of 1, 2, 3 and 5 ranks gives what the unsharded model gives on eager attention.

In doubles throughout (see `double_precision`) within 1e-10; in float64 and bf16 as transformers has them, where norms,
softmaxes and routers round to float32, within multiples of its own rounding. Eager attention is the oracle in every
dtype: it is each family's own code, with its caps, sinks and windows.
Legend: T tokens, C hidden size, V vocabulary.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from double_precision import AllDouble
from families import (
    ENCODERS,
    FAMILIES,
    FULL,
    PER_KIND,
    SLIDING,
    YARN,
    changed_model,
    document,
    family_model,
    save_family,
)
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoModel, AutoModelForCausalLM

from longdoc.model.load import RingModel, load_model
from longdoc.model.local import LocalModel, open_folder
from longdoc.model.positions import UNEXTENDED
from longdoc.ring.exchange import Exchange
from longdoc.ring.exchange.loopback import run_ranks
from longdoc.ring.hook import RingContext, use_ring
from longdoc.ring.kernels import choose_kernel
from longdoc.ring.layout import Layout

RANKS = {1: 33, 2: 47, 3: 64, 5: 97}
WINDOWED = {
    name
    for name, config in FAMILIES.items()
    if getattr(config, "sliding_window", None)
    and (not getattr(config, "layer_types", None) or SLIDING in config.layer_types)
}
EXPERTS = {
    name for name, config in FAMILIES.items() if getattr(config, "num_experts_per_tok", None) or "experts" in name
}
Outputs = tuple[Tensor, ...]


@functools.cache
def saved(family: str, folder: Path) -> LocalModel:
    tokenizer = Tokenizer.from_str((folder / "tokenizer.json").read_text())
    target = save_family(family, folder / family, tokenizer.to_str())
    return open_folder(target, name=family, source=str(target), source_sha256=None)


@functools.cache
def ring_model(family: str, folder: Path, dtype: torch.dtype) -> RingModel:
    return load_model(saved(family, folder), dtype=dtype)


@functools.cache
def unsharded(family: str, folder: Path, dtype: torch.dtype, num_tokens: int, doubles: bool) -> Outputs:
    """Final states and logits (an encoder has only states) of transformers' own model, loaded by transformers."""
    auto = AutoModel if family in ENCODERS else AutoModelForCausalLM
    extra = {"experts_implementation": "eager"} if dtype == torch.float64 else {}
    model = auto.from_pretrained(saved(family, folder).folder, dtype=dtype, attn_implementation="eager", **extra).eval()
    with torch.no_grad(), AllDouble() if doubles else nullcontext():
        ids = document(num_tokens)[None]
        hidden_TC = model.base_model(input_ids=ids).last_hidden_state[0]
        return (hidden_TC,) if family in ENCODERS else (hidden_TC, model(input_ids=ids).logits[0])


def on_ring(model: RingModel, layout: Layout, precision: Callable[[], AbstractContextManager[object]]) -> Outputs:
    ids = document(layout.num_tokens)
    model.set_positions(UNEXTENDED, layout.num_tokens)

    def run(exchange: Exchange) -> tuple[Tensor, Outputs]:
        positions_T = torch.from_numpy(layout.positions(exchange.rank))
        context = RingContext(layout=layout, exchange=exchange, kernel=choose_kernel("torch", "cpu")[1])
        with use_ring(context), precision():
            hidden_TC = model.hidden_states(ids[positions_T], positions_T)
            context.assert_engaged(model.num_layers)
            return positions_T, (hidden_TC, model.logits(hidden_TC)) if model.local.has_head else (hidden_TC,)

    shards = run_ranks(layout.num_ranks, run, timeout_s=60)
    wholes = [part.new_full((layout.num_tokens, part.shape[1]), torch.nan) for part in shards[0][1]]
    for positions_T, parts in shards:
        for whole, part in zip(wholes, parts, strict=True):
            whole[positions_T] = part
    return tuple(wholes)


def difference(got: Outputs, wanted: Outputs) -> float:
    """The largest difference of states or logits, relative to the largest of each."""
    pairs = [(a.double(), b.double()) for a, b in zip(got, wanted, strict=True)]
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, small_tokenizer: Tokenizer) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("families")
    small_tokenizer.save(str(root / "tokenizer.json"))
    yield root
    for cached in (saved, ring_model, unsharded):
        cached.cache_clear()


@pytest.mark.parametrize("num_ranks", RANKS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_ring_gives_the_unsharded_model_in_doubles(family: str, num_ranks: int, folder: Path) -> None:
    num_tokens = RANKS[num_ranks]
    wanted = unsharded(family, folder, torch.float64, num_tokens, True)
    model = ring_model(family, folder, torch.float64)
    for kind in ("zigzag", "contiguous") if family in WINDOWED else ("zigzag", "contiguous", "striped"):
        layout = Layout(kind=kind, num_tokens=num_tokens, num_ranks=num_ranks)
        assert difference(on_ring(model, layout, AllDouble), wanted) < 1e-10, kind


@pytest.mark.parametrize("num_ranks", RANKS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_float64_ring_is_within_the_librarys_own_rounding(family: str, num_ranks: int, folder: Path) -> None:
    num_tokens = RANKS[num_ranks]
    wanted = unsharded(family, folder, torch.float64, num_tokens, False)
    rounding = difference(unsharded(family, folder, torch.float32, num_tokens, False), wanted)
    layout = Layout(kind="zigzag", num_tokens=num_tokens, num_ranks=num_ranks)
    got = on_ring(ring_model(family, folder, torch.float64), layout, nullcontext)
    assert difference(got, wanted) <= 4 * rounding


def difference_of_most(got: Outputs, wanted: Outputs) -> float:
    """The same for 3 tokens in 4: which experts a token visits is decided by a rounding at some of the others."""
    pairs = [(a.double(), b.double()) for a, b in zip(got, wanted, strict=True)]
    return max(float((a - b).abs().amax(dim=1).quantile(0.75) / b.abs().max()) for a, b in pairs)


@pytest.mark.parametrize("num_ranks", RANKS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_bf16_ring_is_as_near_float32_as_the_unsharded_model(family: str, num_ranks: int, folder: Path) -> None:
    num_tokens = RANKS[num_ranks]
    measure = difference_of_most if family in EXPERTS else difference
    wanted = unsharded(family, folder, torch.float32, num_tokens, False)
    rounding = measure(unsharded(family, folder, torch.bfloat16, num_tokens, False), wanted)
    layout = Layout(kind="zigzag", num_tokens=num_tokens, num_ranks=num_ranks)
    got = on_ring(ring_model(family, folder, torch.bfloat16), layout, nullcontext)
    assert measure(got, wanted) <= 2 * rounding


# What each family adds to plain attention, and a configuration without it.
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 1e4}
SCALED_BY_POSITION = {"llama_4_scaling_beta": 0.5, "original_max_position_embeddings": 16}
NO_WINDOW = {"sliding_window": 256}
FEATURES: list[tuple[str, dict[str, Any]]] = [
    *((family, NO_WINDOW) for family in ("qwen2", "qwen3", "mistral", "gemma2", "gemma3", "gemma4", "gpt_oss", "phi3")),
    *((family, NO_WINDOW) for family in ("olmo3", "cohere2", "gemma3, bidirectional")),
    ("modernbert", {"local_attention": 256}),
    ("llama", {"rope_parameters": PLAIN_ROPE}),
    (
        "ministral3",
        {"rope_parameters": PLAIN_ROPE | {"llama_4_scaling_beta": 0.5, "original_max_position_embeddings": 16}},
    ),
    ("ministral3", {"rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.0}}),
    ("gpt_oss", {"rope_parameters": PLAIN_ROPE}),
    ("olmo3", {"rope_parameters": {FULL: PLAIN_ROPE, SLIDING: PER_KIND[SLIDING]}}),
    ("gemma3", {"rope_parameters": {FULL: PLAIN_ROPE, SLIDING: PLAIN_ROPE}}),
    ("gemma2", {"attn_logit_softcapping": None}),
    ("gemma2", {"final_logit_softcapping": None}),
    ("gemma4", {"final_logit_softcapping": None}),
    ("qwen3_moe", {"num_experts_per_tok": 1}),
    ("gemma4, experts", {"top_k_experts": 1}),
    ("gpt_oss", {"num_experts_per_tok": 1}),
    ("deepseek_v3", {"num_experts_per_tok": 1}),
    ("deepseek_v3", {"topk_group": 2}),
    ("smollm3", {"no_rope_layers": [1, 1, 1]}),
    *(("granite", {name: 1.0}) for name in ("embedding_multiplier", "logits_scaling", "residual_multiplier")),
    ("granite", {"attention_multiplier": 1.0}),
    ("cohere2", {"logit_scale": 1.0}),
]


@pytest.mark.parametrize(
    ("family", "without"), FEATURES, ids=lambda part: part if isinstance(part, str) else str([*part])
)
def test_a_feature_left_out_shows(family: str, without: dict[str, Any]) -> None:
    with torch.no_grad(), AllDouble():
        ids = document(64)[None]
        wanted = family_model(family)(input_ids=ids).logits
        got = changed_model(family, without)(input_ids=ids).logits
    assert difference((got[0],), (wanted[0],)) > 1e-2


def test_sinks_left_out_show() -> None:
    model = changed_model("gpt_oss", {})
    for layer in model.base_model.layers:
        layer.self_attn.sinks.data.fill_(-1e4)
    with torch.no_grad():
        ids = document(64)[None]
        assert difference((model(input_ids=ids).logits[0],), (family_model("gpt_oss")(input_ids=ids).logits[0],)) > 1e-2


@pytest.mark.parametrize("family", FAMILIES)
def test_ranks_without_tokens_take_part(family: str, folder: Path) -> None:
    wanted = unsharded(family, folder, torch.float64, 3, True)
    layout = Layout(kind="zigzag", num_tokens=3, num_ranks=5)
    assert difference(on_ring(ring_model(family, folder, torch.float64), layout, AllDouble), wanted) < 1e-10
