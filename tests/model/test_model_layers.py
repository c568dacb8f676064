"""The shapes and the active weights that forecasts use, against the modules and products of tiny models."""

import pytest
import torch
from families import FAMILIES, document, family_model
from torch.utils.flop_counter import FlopCounterMode

from longdoc.model.layers import active_parameters, layer_shapes

TOKENS = 64


def products_of_layers(family):
    """Multiply-adds a token in the matrix products of all layers, attention's own left out, as torch counts them."""
    base = family_model(family).base_model
    with FlopCounterMode(display=False) as counter:
        base(input_ids=document(TOKENS)[None])
    flops = counter.get_flop_counts()["Global"]
    attention = sum(count for op, count in flops.items() if "bmm" in str(op))
    return (sum(flops.values()) - attention) / (2 * TOKENS)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2", "modernbert", "olmo3"])
def test_the_active_weights_are_those_that_a_token_is_multiplied_with(family):
    sizes = {name: weight.numel() for name, weight in family_model(family).named_parameters()}
    assert active_parameters(sizes, FAMILIES[family]) == pytest.approx(products_of_layers(family), rel=0.06)


@pytest.mark.parametrize("family", ["qwen3_moe", "gpt_oss", "deepseek_v3"])
def test_routed_experts_count_as_often_as_a_token_visits_them(family):
    """Two of four experts: half of their weights, and all of everything else."""
    sizes = {name: weight.numel() for name, weight in family_model(family).named_parameters()}
    layers = {name: size for name, size in sizes.items() if ".layers." in name}
    experts = sum(size for name, size in layers.items() if ".experts." in name)
    assert experts > 0
    assert active_parameters(sizes, FAMILIES[family]) == sum(layers.values()) - experts // 2


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_layer_shapes_are_those_of_the_projections(family):
    """The number of heads times their width is what a layer's output projection takes."""
    shapes = layer_shapes(FAMILIES[family])
    outputs = [
        module.in_features
        for name, module in family_model(family).base_model.named_modules()
        if name.endswith((".o_proj", ".attn.Wo")) and isinstance(module, torch.nn.Linear)
    ]
    assert [shape.num_heads * shape.value_dim for shape in shapes] == outputs


def test_windows_stand_where_the_layer_types_say():
    assert [shape.window for shape in layer_shapes(FAMILIES["qwen2"])] == [None, 8]
    assert [shape.window for shape in layer_shapes(FAMILIES["mistral"])] == [8, 8]
    assert [shape.window for shape in layer_shapes(FAMILIES["llama"])] == [None, None]
