"""Tiny random models of every supported family, as configurations, with weights that make their features count.

Each has every kind of layer of its family, windows shorter than the test documents, and weights drawn so that scores
of attention vary by about 2: neither flat nor one-hot. What a family adds (caps, sinks, scales, experts, layers without
positions) is set to values at which leaving it out shows: the tests leave each of them out once.
"""

import copy
import functools
import zlib
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    Cohere2Config,
    DeepseekV3Config,
    EuroBertConfig,
    Gemma2Config,
    Gemma3TextConfig,
    Gemma4TextConfig,
    GptOssConfig,
    GraniteConfig,
    LlamaConfig,
    Ministral3Config,
    MistralConfig,
    ModernBertConfig,
    Olmo3Config,
    Phi3Config,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
    SmolLM3Config,
)

VOCAB, WINDOW = 400, 8
FULL, SLIDING = "full_attention", "sliding_attention"
_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GROUPED = _COMMON | {"num_key_value_heads": 2}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
PER_KIND = {
    FULL: {"rope_type": "default", "rope_theta": 1e4},
    SLIDING: {"rope_type": "default", "rope_theta": 1e2},
}


def _layers(*kinds: str) -> dict[str, Any]:
    return {"num_hidden_layers": len(kinds), "layer_types": list(kinds), "sliding_window": WINDOW}


#: By the name that a test's id carries; a name with a comma is another shape of the same family.
FAMILIES: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**_GROUPED, num_hidden_layers=2, rope_parameters=_LLAMA3),
    "qwen2": Qwen2Config(**_GROUPED, **_layers(FULL, SLIDING), use_sliding_window=True),
    "qwen3": Qwen3Config(**_GROUPED, **_layers(SLIDING, FULL), use_sliding_window=True, head_dim=16),
    "qwen3_moe": Qwen3MoeConfig(
        **_GROUPED,
        num_hidden_layers=2,
        head_dim=16,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=24,
        norm_topk_prob=True,
        mlp_only_layers=[0],
    ),
    "mistral": MistralConfig(**_GROUPED, num_hidden_layers=2, sliding_window=WINDOW, head_dim=8),
    "ministral3": Ministral3Config(
        **_GROUPED,
        num_hidden_layers=2,
        head_dim=16,
        rope_parameters=YARN | {"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.5},
    ),
    "gemma2": Gemma2Config(
        **_GROUPED,
        **_layers(SLIDING, FULL),
        head_dim=16,
        query_pre_attn_scalar=24,
        attn_logit_softcapping=1.5,
        final_logit_softcapping=2.0,
    ),
    "gemma3": Gemma3TextConfig(
        **_GROUPED, **_layers(SLIDING, FULL), head_dim=16, query_pre_attn_scalar=24, rope_parameters=PER_KIND
    ),
    "gemma3, bidirectional": Gemma3TextConfig(
        **_GROUPED, **_layers(SLIDING, FULL), head_dim=16, query_pre_attn_scalar=24, use_bidirectional_attention=True
    ),
    # Layers 2 and 3 take the keys and values of layers 0 and 1.
    "gemma4": Gemma4TextConfig(
        **_GROUPED,
        **_layers(SLIDING, FULL, SLIDING, FULL),
        head_dim=8,
        global_head_dim=16,
        num_kv_shared_layers=2,
        use_double_wide_mlp=True,
        hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=VOCAB,
        final_logit_softcapping=8.0,
    ),
    "gemma4, experts": Gemma4TextConfig(
        **_GROUPED,
        **_layers(SLIDING, FULL),
        head_dim=8,
        global_head_dim=16,
        num_global_key_value_heads=1,
        attention_k_eq_v=True,
        hidden_size_per_layer_input=0,
        enable_moe_block=True,
        num_experts=4,
        top_k_experts=2,
        moe_intermediate_size=24,
    ),
    "gpt_oss": GptOssConfig(
        **_GROUPED,
        **_layers(SLIDING, FULL),
        head_dim=16,
        num_local_experts=4,
        num_experts_per_tok=2,
        rope_parameters=YARN | {"truncate": False},
    ),
    "phi3": Phi3Config(
        **_GROUPED,
        num_hidden_layers=2,
        sliding_window=WINDOW,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    ),
    "olmo3": Olmo3Config(
        **_GROUPED, **_layers(SLIDING, FULL), rope_parameters={FULL: YARN, SLIDING: PER_KIND[SLIDING]}
    ),
    "smollm3": SmolLM3Config(**_GROUPED, num_hidden_layers=3, no_rope_layers=[1, 0, 1]),
    "granite": GraniteConfig(
        **_GROUPED,
        num_hidden_layers=2,
        embedding_multiplier=3.0,
        logits_scaling=0.5,
        residual_multiplier=0.7,
        attention_multiplier=0.2,
    ),
    "cohere2": Cohere2Config(**_GROUPED, **_layers(SLIDING, FULL), head_dim=8, logit_scale=0.3),
    "deepseek_v3": DeepseekV3Config(
        **_COMMON,
        num_key_value_heads=4,
        num_hidden_layers=2,
        first_k_dense_replace=1,
        moe_intermediate_size=24,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        kv_lora_rank=16,
        q_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=12,
        rope_parameters=YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
    ),
    "modernbert": ModernBertConfig(
        **_COMMON,
        num_hidden_layers=3,
        layer_types=[FULL, SLIDING, SLIDING],
        local_attention=2 * WINDOW,
        cls_token_id=1,
        sep_token_id=2,
        rope_parameters=PER_KIND,
    ),
    "eurobert": EuroBertConfig(**_GROUPED, num_hidden_layers=2, mask_token_id=3),
}
ENCODERS = frozenset({"modernbert", "eurobert"})


@functools.cache
def family_model(family: str) -> nn.Module:
    """The whole model in float64 on transformers' eager attention; nobody may change it."""
    return _model(family, FAMILIES[family])


def changed_model(family: str, changes: dict[str, Any]) -> nn.Module:
    """A model of its own with the same weights and some fields of its configuration changed."""
    return _model(family, type(FAMILIES[family])(**{**FAMILIES[family].to_dict(), **changes}))


def _model(family: str, config: PreTrainedConfig) -> nn.Module:
    auto = AutoModelForMaskedLM if family in ENCODERS else AutoModelForCausalLM
    # The grouped matrix product that experts take otherwise does not know doubles.
    options = {"dtype": torch.float64, "attn_implementation": "eager", "experts_implementation": "eager"}
    model = auto.from_config(copy.deepcopy(config), **options)
    draw_weights(model, seed=zlib.crc32(family.encode()))
    return model.eval().requires_grad_(False)  # type: ignore[no-any-return]  # transformers


def draw_weights(model: nn.Module, seed: int) -> None:
    """Matrices of gain 1 (queries and keys 1.4), vectors around what they are; all rounded to bf16."""
    random = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=random, dtype=torch.float64)
        if weight.dim() < 2:
            drawn = weight.detach() + 0.2 * noise
            # gemma4 normalises queries and keys and does not divide by the square root of their dimension.
            drawn = 0.6 * drawn if "q_norm" in name and "Gemma4" in type(model).__name__ else drawn
        elif "embed" in name:
            drawn = noise
        else:
            drawn = noise * (1.4 if "q_proj" in name or "k_proj" in name else 1.0) * weight.shape[-1] ** -0.5
        weight.data.copy_(drawn.to(torch.bfloat16))


def save_family(family: str, folder: Path, tokenizer_json: str) -> Path:
    """The family's model as a folder that longdoc opens: safetensors, config.json, tokenizer.json."""
    family_model(family).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(tokenizer_json)
    return folder


def document(num_tokens: int) -> torch.Tensor:
    """Token ids from all over the vocabulary, without the padding token."""
    return torch.randint(3, VOCAB, (num_tokens,), generator=torch.Generator().manual_seed(num_tokens))
