"""Rates are measured once, kept under everything they depend on, and forgotten when any of it changes."""

import dataclasses
import itertools
import json

import pytest
import torch
from transformers import DeepseekV3Config, Gemma3TextConfig

from longdoc.cluster.placement import RingSpec
from longdoc.errors import InfrastructureError
from longdoc.forecasting import calibration
from longdoc.forecasting import rank as rank_module
from longdoc.forecasting.calibration import known_rates, rates_of
from longdoc.forecasting.costs import PairRate, Rates
from longdoc.forecasting.rank import build_rank, drawn_layers
from longdoc.model.layers import LayerShape
from longdoc.ring.mask import Mask

RING = RingSpec(num_ranks=2, num_cores=2)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def measured(monkeypatch, tiny_model):
    """Stands where this machine would be measured; counts how often."""
    calls = []
    rates = Rates(
        weight=1e-9,
        logit=2e-9,
        token=3e-6,
        document=0.5,
        pairs=(PairRate(layer=tiny_model.layers[0], full=1.0, masked=2.0),),
    )

    def measure(model, *, dtype, kernel, ring):
        calls.append(dtype)
        return rates

    monkeypatch.setattr(calibration, "measure", measure)
    return rates, calls


def test_rates_are_measured_once_and_kept(cache, measured, tiny_model):
    rates, calls = measured
    asked = {"dtype": "float32", "kernel": "auto", "ring": RING}
    assert known_rates(tiny_model, **asked) is None
    said = []
    assert rates_of(tiny_model, **asked, report=said.append) == rates
    assert said == ["measuring this machine for tiny-random in float32, a ring of 2; this is kept"]
    assert rates_of(tiny_model, **asked) == known_rates(tiny_model, **asked) == rates
    assert calls == ["float32"]
    assert rates_of(tiny_model, **asked, again=True) == rates
    assert calls == ["float32"] * 2


@pytest.mark.parametrize(
    "other",
    [
        {"dtype": "bfloat16"},
        {"kernel": "reference"},
        {"ring": RingSpec(num_ranks=1, num_cores=2)},
        {"ring": RingSpec(num_ranks=2, num_cores=4)},
    ],
)
def test_rates_of_other_conditions_are_not_known(cache, measured, tiny_model, other):
    asked = {"dtype": "float32", "kernel": "auto", "ring": RING}
    rates_of(tiny_model, **asked)
    assert known_rates(tiny_model, **(asked | other)) is None


def test_rates_of_another_model_processor_or_code_are_not_known(cache, measured, tiny_model, monkeypatch):
    asked = {"dtype": "float32", "kernel": "auto", "ring": RING}
    rates_of(tiny_model, **asked)
    assert known_rates(dataclasses.replace(tiny_model, digest="0" * 64), **asked) is None
    with monkeypatch.context() as patch:
        patch.setattr(calibration, "processor", lambda: "another one")
        assert known_rates(tiny_model, **asked) is None
    monkeypatch.setattr(calibration, "_code_sha256", lambda: "1" * 64)
    assert known_rates(tiny_model, **asked) is None


@pytest.mark.parametrize("content", [b"", b"{}", b'{"subject": {}, "rates": {}}', b"\xff"])
def test_a_damaged_file_counts_for_nothing(cache, measured, tiny_model, content):
    asked = {"dtype": "float32", "kernel": "auto", "ring": RING}
    rates_of(tiny_model, **asked)
    (kept,) = (cache / "rates").iterdir()
    assert json.loads(kept.read_text())["subject"]["num_threads"] == 1
    kept.write_bytes(content)
    assert known_rates(tiny_model, **asked) is None


def test_a_cache_that_cannot_be_written_only_costs_a_measurement(measured, tiny_model, monkeypatch, tmp_path):
    rates, calls = measured
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "file" / "cache"))
    asked = {"dtype": "float32", "kernel": "auto", "ring": RING}
    assert rates_of(tiny_model, **asked) == rates_of(tiny_model, **asked) == rates
    assert len(calls) == 2


def test_what_cannot_be_measured_is_said(cache, tiny_model, monkeypatch):
    said = []
    on_gpus = RingSpec(num_ranks=1, num_cores=2, device="cuda", num_gpus=1)
    assert rates_of(tiny_model, dtype="float32", kernel="auto", ring=on_gpus, report=said.append) is None
    monkeypatch.setattr(calibration, "bytes_for_a_rank", lambda num_ranks: 1000)
    assert rates_of(tiny_model, dtype="float32", kernel="auto", ring=RING, report=said.append) is None
    monkeypatch.undo()
    monkeypatch.setenv("LONGDOC_CACHE", str(cache))

    def fail(*_, **__):
        raise InfrastructureError("calibration: KeyError: 'layer 1'")

    monkeypatch.setattr(calibration, "measure", fail)
    assert rates_of(tiny_model, dtype="float32", kernel="auto", ring=RING, report=said.append) is None
    assert [line for line in said if not line.startswith("measuring")] == [
        "no seconds are forecast: rates are measured on CPUs only",
        "no seconds are forecast: a few layers of this model take 12.1 MiB, and there is less memory free",
        "no seconds are forecast: calibration: KeyError: 'layer 1'",
    ]


@pytest.fixture
def ticks(monkeypatch):
    """A clock that goes one second further at each look, so that every timed piece of work takes one."""
    looks = itertools.count()
    monkeypatch.setattr(rank_module.time, "perf_counter", lambda: float(next(looks)))
    monkeypatch.setattr(rank_module, "_FLOPS", 1e6)
    monkeypatch.setattr(rank_module, "_FEWEST_TOKENS", 8)


def test_a_rate_is_the_time_over_the_work(tiny_model, ticks):
    ask = build_rank(None, tiny_model.folder, "float32", "auto")
    # The tiny model: a layer has 9,280 weights (docs: longdoc.model.tiny), so a million FLOP are 53 tokens.
    weights = 2 * 32 * 32 + 2 * 16 * 32 + 3 * 32 * 64 + 2 * 32
    assert ask("weight", 2, 64) == pytest.approx(1 / (weights * int(1e6 / (2 * weights))))
    # A million FLOP of 512 channels, as narrow as a head is taken to be, are fewer than the fewest tokens, eight.
    assert ask("logit", 32, 1000) == pytest.approx(1 / (8 * 1000))
    assert ask("logit", 1024, 40) == pytest.approx(1 / (12 * 40))
    layer = LayerShape(num_heads=2, num_kv_heads=1, head_dim=16, value_dim=16, window=None)
    queries = int((2e6 / (2 * 2 * 32)) ** 0.5)
    full, causal = ask("pairs", layer, Mask())
    assert full == pytest.approx(1 / queries**2)
    assert causal == pytest.approx(1 / (queries * (queries + 1) / 2))
    _, banded = ask("pairs", dataclasses.replace(layer, window=8), Mask.sliding(8))
    assert banded == pytest.approx(1 / (8 * queries - 28))


SMALL = {"vocab_size": 80, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "pad_token_id": 0}


def test_as_many_layers_are_drawn_as_hold_each_kind(tmp_path):
    config = DeepseekV3Config(
        **SMALL,
        num_key_value_heads=4,
        num_hidden_layers=5,
        first_k_dense_replace=2,
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
    )
    config.save_pretrained(tmp_path)
    model, active = drawn_layers(tmp_path, torch.float32, 5, 48)
    assert len(model.layers) == 3
    routed = sum(w.numel() for name, w in model.named_parameters() if ".experts." in name)
    layers = sum(w.numel() for name, w in model.named_parameters() if ".layers." in "." + name)
    assert routed > 0
    assert active == layers - routed // 2
    assert all(torch.isfinite(weight).all() for weight in model.parameters())


def test_layers_that_differ_in_their_mask_only_count_as_one_kind(tmp_path):
    kinds = ["sliding_attention"] * 3 + ["full_attention"]
    Gemma3TextConfig(
        **SMALL, num_key_value_heads=2, head_dim=8, num_hidden_layers=4, layer_types=kinds
    ).save_pretrained(tmp_path)
    model, _ = drawn_layers(tmp_path, torch.float32, 4, 48)
    assert len(model.layers) == 1
