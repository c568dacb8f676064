"""Whole models on rings of two and three ranks against transformers given the whole document, positions in mind.

Documents lie on both sides of the length at which positions change, and one model reads them one after the other: the
oracle is made anew for each. Legend: T tokens, C hidden size.
"""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, PreTrainedConfig

from longdoc.model import rotary
from longdoc.model.load import RingModel, load_model
from longdoc.model.positions import UNEXTENDED, ContextExtension
from longdoc.model.sources import find_model
from longdoc.ring.exchange import Exchange
from longdoc.ring.exchange.loopback import run_ranks
from longdoc.ring.hook import RingContext, use_ring
from longdoc.ring.kernels import choose_kernel
from longdoc.ring.layout import Layout

ORIGINAL, VOCAB = 32, 400
FULL, SLIDING = "full_attention", "sliding_attention"
DEFAULT: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4}
FROM_ORIGINAL = {**DEFAULT, "factor": 4.0, "original_max_position_embeddings": ORIGINAL}
YARN = {**FROM_ORIGINAL, "rope_type": "yarn"}
LLAMA3 = {**FROM_ORIGINAL, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
DYNAMIC = {**DEFAULT, "rope_type": "dynamic", "factor": 4.0}
LONGROPE = {**FROM_ORIGINAL, "rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [1.0, 3.0, 6.0, 9.0]}
#: Temperatures that change three times within the documents below, and by much.
TEMPERED = {**YARN, "llama_4_scaling_beta": 2.0}


SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    # Wide weights, so that attention, and with it positions, count.
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def one_rope(model_type: str, rope: dict[str, Any], **fields: Any) -> PreTrainedConfig:
    most = ORIGINAL if rope["rope_type"] in ("default", "dynamic") else 4 * ORIGINAL
    return AutoConfig.for_model(
        model_type, **SHAPE | fields, max_position_embeddings=most, rope_parameters=copy.deepcopy(rope)
    )


def two_ropes(model_type: str, rope: dict[str, Any]) -> PreTrainedConfig:
    """A layer with a window of 8 and one without, each kind with a rotary embedding of its own."""
    ropes = {FULL: copy.deepcopy(rope), SLIDING: {**DEFAULT, "rope_theta": 1e2}}
    return AutoConfig.for_model(
        model_type,
        **SHAPE,
        max_position_embeddings=ORIGINAL,
        layer_types=[SLIDING, FULL],
        sliding_window=8,
        rope_parameters=ropes,
    )


CONFIGS = {
    "llama, default": one_rope("llama", DEFAULT),
    "llama, linear": one_rope("llama", {**DEFAULT, "rope_type": "linear", "factor": 4.0}),
    "llama, dynamic": one_rope("llama", DYNAMIC),
    "llama, yarn": one_rope("llama", YARN),
    "llama, llama3": one_rope("llama", LLAMA3),
    "phi3, longrope": one_rope("phi3", LONGROPE, original_max_position_embeddings=ORIGINAL, sliding_window=None),
    "phi3, half of a head": one_rope(
        "phi3",
        {**DEFAULT, "partial_rotary_factor": 0.5},
        original_max_position_embeddings=ORIGINAL,
        sliding_window=None,
    ),
    "smollm3, a layer without": one_rope("smollm3", DYNAMIC, no_rope_layers=[1, 0], use_sliding_window=False),
    "ministral3, temperature": one_rope("ministral3", TEMPERED, sliding_window=None),
    "gemma3, dynamic beside windows": two_ropes("gemma3_text", DYNAMIC),
    "gemma3, default": two_ropes("gemma3_text", DEFAULT),
    "modernbert, yarn beside windows": two_ropes("modernbert", YARN),
    "gpt2, a table": AutoConfig.for_model("gpt2", **SHAPE, max_position_embeddings=97),
    "roberta, a table from behind the padding": AutoConfig.for_model(
        "roberta", **SHAPE | {"pad_token_id": 1, "bos_token_id": 0}, max_position_embeddings=99
    ),
}
ENCODERS = ("modernbert", "roberta")
EXTENSIONS = {
    "yarn": (ContextExtension(kind="yarn", factor=4.0), YARN),
    "theta": (ContextExtension(kind="theta", factor=4.0), {**DEFAULT, "rope_theta": 1e4 * 4 ** (8 / 6)}),
}


def document(num_tokens: int) -> Tensor:
    return torch.randint(3, VOCAB, (num_tokens,), generator=torch.Generator().manual_seed(num_tokens))


def in_one_piece(folder: Path, num_tokens: int, **changes: Any) -> Tensor:
    """hidden_TC of transformers' own model, just loaded, without any of our code."""
    model_config = AutoConfig.from_pretrained(folder)
    for field, value in changes.items():
        setattr(model_config, field, value)
    model = AutoModel.from_pretrained(folder, config=model_config, dtype=torch.float64, attn_implementation="sdpa")
    with torch.no_grad():
        hidden_TC: Tensor = model.eval()(input_ids=document(num_tokens)[None]).last_hidden_state[0]
    return hidden_TC


def on_ring(model: RingModel, layout: Layout, extension: ContextExtension = UNEXTENDED) -> Tensor:
    ids = document(layout.num_tokens)

    def run(exchange: Exchange) -> tuple[Tensor, Tensor]:
        positions_T = torch.from_numpy(layout.positions(exchange.rank))
        model.set_positions(extension, layout.num_tokens)
        with use_ring(RingContext(layout=layout, exchange=exchange, kernel=choose_kernel("torch", "cpu")[1])):
            return positions_T, model.hidden_states(ids[positions_T], positions_T)

    whole_TC = torch.full((layout.num_tokens, model.embedding_size), torch.nan, dtype=model.dtype)
    for positions_T, hidden_TC in run_ranks(layout.num_ranks, run, timeout_s=30):
        whole_TC[positions_T] = hidden_TC
    return whole_TC


def largest_difference(a_TC: Tensor, b_TC: Tensor) -> float:
    return float((a_TC - b_TC).abs().max() / b_TC.abs().max())


@pytest.fixture
def folder_of(
    small_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[PreTrainedConfig], Path]:
    """Save a random model of a configuration."""
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))

    def save(model_config: PreTrainedConfig) -> Path:
        torch.manual_seed(5)
        auto = AutoModel if model_config.model_type in ENCODERS else AutoModelForCausalLM
        auto.from_config(copy.deepcopy(model_config), dtype=torch.float32).save_pretrained(tmp_path / "model")
        small_tokenizer.save(str(tmp_path / "model" / "tokenizer.json"))
        return tmp_path / "model"

    return save


@pytest.mark.parametrize("name", CONFIGS)
def test_documents_on_both_sides_of_a_threshold_one_after_the_other(
    name: str, folder_of: Callable[[PreTrainedConfig], Path]
) -> None:
    folder = folder_of(CONFIGS[name])
    model = load_model(find_model(str(folder)), dtype=torch.float64)
    layouts = ((97, 3, "zigzag"), (20, 2, "contiguous"), (33, 2, "zigzag"), (32, 3, "contiguous"), (2, 3, "zigzag"))
    for num_tokens, num_ranks, kind in layouts:
        layout = Layout(kind=kind, num_tokens=num_tokens, num_ranks=num_ranks)
        difference = largest_difference(on_ring(model, layout), in_one_piece(folder, num_tokens))
        # Norms round to float32 inside, so an error of 1e-16 may show as one of 1e-7.
        assert difference < 1e-6, f"{num_tokens} tokens on {num_ranks} ranks"


@pytest.mark.parametrize("name", [name for name in CONFIGS if "dynamic" in name or "longrope" in name])
def test_positions_of_a_shorter_document_would_show(
    name: str, folder_of: Callable[[PreTrainedConfig], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(CONFIGS[name])
    frozen = rotary._frozen
    monkeypatch.setattr(rotary, "_frozen", lambda loaded, num_tokens: frozen(loaded, num_tokens // 3))
    model = load_model(find_model(str(folder)), dtype=torch.float64)
    layout = Layout(kind="zigzag", num_tokens=90, num_ranks=3)
    assert largest_difference(on_ring(model, layout), in_one_piece(folder, 90)) > 1e-2


def test_positions_of_the_shard_would_show_in_the_temperature(folder_of: Callable[[PreTrainedConfig], Path]) -> None:
    folder = folder_of(CONFIGS["ministral3, temperature"])
    whole = in_one_piece(folder, 97)
    flat = in_one_piece(folder, 97, rope_parameters={**YARN, "llama_4_scaling_beta": 0.0})
    assert largest_difference(flat[:ORIGINAL], whole[:ORIGINAL]) < 1e-6
    assert largest_difference(flat[ORIGINAL:], whole[ORIGINAL:]) > 1e-2


@pytest.mark.parametrize("extension", EXTENSIONS)
@pytest.mark.parametrize("name", ["llama, default", "gemma3, default"])
def test_an_extended_model_is_the_one_that_transformers_builds_and_leaves_no_trace(
    name: str, extension: str, folder_of: Callable[[PreTrainedConfig], Path]
) -> None:
    folder = folder_of(CONFIGS[name])
    model = load_model(find_model(str(folder)), dtype=torch.float64)
    chosen, rope = EXTENSIONS[extension]
    changed = {**CONFIGS[name].rope_parameters, FULL: rope} if name.startswith("gemma3") else rope
    layout = Layout(kind="zigzag", num_tokens=97, num_ranks=3)
    stretched = in_one_piece(folder, 97, max_position_embeddings=4 * ORIGINAL, rope_parameters=changed)
    assert largest_difference(on_ring(model, layout, chosen), stretched) < 1e-6
    plain = in_one_piece(folder, 97)
    assert largest_difference(on_ring(model, layout), plain) < 1e-6
    assert largest_difference(stretched, plain) > 1e-2
