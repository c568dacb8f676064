"""What a forward pass keeps alive, counted by torch's own dispatcher, against the formulas that forecasts use."""

import contextlib

import pytest
import torch
from allocations import Allocations
from transformers import (
    AutoModel,
    Cohere2Config,
    DeepseekV3Config,
    Gemma3TextConfig,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    ModernBertConfig,
    Olmo3Config,
    Phi3Config,
    PreTrainedConfig,
    Qwen3MoeConfig,
)

from longdoc.estimate import BOOKKEEPING_BYTES, PIECE_BYTES, ModelShape, bytes_per_token
from longdoc.model.layers import layer_shapes
from longdoc.model.tiling import tile_layers
from longdoc.ring import merge
from longdoc.ring.exchange.loopback import run_ranks
from longdoc.ring.hook import RingContext, register_ring_attention, use_ring
from longdoc.ring.kernels import choose_kernel
from longdoc.ring.layout import Layout
from longdoc.ring.mask import FULL, LOWER_TRIANGLE, Band

# Ids, positions and the mask that says that there is no padding: three int64 a token.
INPUTS = 24
WIDE = {"vocab_size": 8, "hidden_size": 512, "intermediate_size": 1024, "max_position_embeddings": 1 << 17}
WIDE |= {"num_hidden_layers": 2, "num_attention_heads": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = WIDE | {"num_key_value_heads": 2}
MIXED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 256}
LATENT = {"q_lora_rank": 128, "kv_lora_rank": 128, "qk_rope_head_dim": 32, "qk_nope_head_dim": 64, "v_head_dim": 64}
CONFIGS = {
    "llama": LlamaConfig(**GROUPED),
    "qwen3_moe": Qwen3MoeConfig(
        **GROUPED, head_dim=64, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=256
    ),
    "gemma3": Gemma3TextConfig(**GROUPED, **MIXED, head_dim=64),
    "mistral": MistralConfig(**GROUPED, sliding_window=256),
    "gpt_oss": GptOssConfig(**GROUPED, **MIXED, head_dim=64, num_local_experts=4),
    "phi3": Phi3Config(**GROUPED),
    "olmo3": Olmo3Config(**GROUPED, **MIXED),
    "cohere2": Cohere2Config(**GROUPED, **MIXED, head_dim=64),
    "deepseek_v3": DeepseekV3Config(**WIDE, **LATENT, num_key_value_heads=8, first_k_dense_replace=2),
    "modernbert": ModernBertConfig(**WIDE, layer_types=MIXED["layer_types"][::-1], local_attention=256),
}


def shape_of(model: torch.nn.Module, config: PreTrainedConfig, dtype: torch.dtype) -> ModelShape:
    return ModelShape(
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        vocab_size=config.vocab_size,
        layers=layer_shapes(config, [name for name, _ in model.named_parameters()]),
        num_parameters=0,
        num_active_parameters=0,
        value_bytes=dtype.itemsize,
    )


def nothing(q_HTD, k_GSD, v_GSE, *, band, scale, softcap=None):
    """A kernel that takes no memory but its result: what real ones take does not grow with the document."""
    num_heads, num_queries, _ = q_HTD.shape
    return q_HTD.new_zeros((num_heads, num_queries, v_GSE.shape[2])), torch.zeros(num_heads, num_queries)


def allocations_of(config, dtype, num_tokens, num_ranks, monkeypatch) -> tuple[Allocations, ModelShape]:
    """Rank 0 of a forward pass over `num_tokens` a rank, in tiles so small that only what grows is left."""
    # Pieces of 256 queries, the fewest there are, and merges of 16,384 values.
    monkeypatch.setattr("longdoc.ring.attention._PIECE_BYTES", {"cpu": 1})
    monkeypatch.setattr(merge, "_TILE_VALUES", {"cpu": 1 << 14})
    register_ring_attention()
    model = AutoModel.from_config(config, dtype=dtype, attn_implementation="longdoc_ring")
    model.eval().requires_grad_(False)
    tile_layers(model, num_layers=2, intermediate_size=config.intermediate_size, budget_bytes=1 << 16)
    layout = Layout(kind="zigzag", num_tokens=num_tokens * num_ranks, num_ranks=num_ranks)
    cached = {} if config.model_type == "modernbert" else {"use_cache": False}

    def forward(exchange):
        context = RingContext(layout=layout, exchange=exchange, kernel=nothing)
        positions = torch.from_numpy(layout.positions(exchange.rank))[None]
        counted = Allocations([*model.parameters(), *model.buffers()])
        counting = counted if exchange.rank == 0 else contextlib.nullcontext()
        with counting, torch.inference_mode(), use_ring(context):
            ids, no_padding = positions % config.vocab_size, torch.ones_like(positions)
            model(input_ids=ids, position_ids=positions + 0, attention_mask=no_padding, **cached)
        return counted

    return run_ranks(num_ranks, forward)[0], shape_of(model, config, dtype)


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_a_token_takes_what_the_formula_says(family, monkeypatch):
    counted, shape = allocations_of(CONFIGS[family], torch.bfloat16, 1024, 2, monkeypatch)
    assert bytes_per_token(shape, 2) - BOOKKEEPING_BYTES + INPUTS == pytest.approx(counted.peak / 1024, rel=0.12)


@pytest.mark.parametrize("num_ranks", [1, 2, 5])
def test_float32_takes_what_the_formula_says_and_the_ring_size_changes_nothing(num_ranks, monkeypatch):
    counted, shape = allocations_of(CONFIGS["llama"], torch.float32, 512, num_ranks, monkeypatch)
    wanted = bytes_per_token(shape, num_ranks) - BOOKKEEPING_BYTES + INPUTS
    assert counted.peak / 512 == pytest.approx(wanted, rel=0.05)


# Llama 8B with an eighth of its width and of its heads: every term of a token's bytes is an eighth of the real one but
# the cosines and sines, which are one head's.
EIGHTH = LlamaConfig(
    vocab_size=8,
    hidden_size=512,
    intermediate_size=1792,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=1,
    head_dim=128,
)


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_the_shape_of_llama_8b_keeps_at_most_61_kb_a_token_alive(num_ranks, monkeypatch):
    short, long = (
        allocations_of(EIGHTH, torch.bfloat16, num_tokens, num_ranks, monkeypatch)[0] for num_tokens in (1024, 2048)
    )
    a_token = (long.peak - short.peak) / 1024
    angles = 2 * 128 * 2
    assert 8 * (a_token - angles) + angles + BOOKKEEPING_BYTES <= 61_000


def test_no_tensor_is_larger_than_the_accumulator(monkeypatch):
    """Neither [n, vocabulary] nor [n, intermediate] nor a cache of keys: each would be larger than this."""
    config = LlamaConfig(**(GROUPED | {"vocab_size": 4096, "intermediate_size": 2048}))
    counted, shape = allocations_of(config, torch.bfloat16, 1024, 2, monkeypatch)
    accumulator = 4 * 1024 * shape.layers[0].num_heads * shape.layers[0].value_dim
    assert counted.largest == accumulator


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("band", [FULL, LOWER_TRIANGLE, Band(lower=-500, upper=0)])
def test_a_kernel_and_its_result_stay_within_their_budget(band, dtype):
    """For a piece as large as the ring makes them: 8 MiB of results in float32."""
    num_queries = 8 * 2**20 // (4 * 8 * 64)
    q_HTD, k_GSD = torch.ones(8, num_queries, 64, dtype=dtype), torch.ones(2, num_queries, 64, dtype=dtype)
    kernel = choose_kernel("torch", "cpu")[1]
    with Allocations() as counted, torch.inference_mode():
        kernel(q_HTD, k_GSD, k_GSD, band=band, scale=0.1)
    assert counted.peak <= PIECE_BYTES
