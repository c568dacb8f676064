"""`longdoc bench peers`: engines that run agree with float64, and the others are rows with a reason."""

from dataclasses import replace

import pytest
import torch

from longdoc.bench.facts import package_version
from longdoc.bench.forward import build_plain
from longdoc.bench.peer_engines import ENGINES, _swap_heads
from longdoc.bench.peers import PeerSettings, _error, _register, bench_peers, build_peer
from longdoc.bench.processes import sent_bytes
from longdoc.errors import ModelError, StartError
from longdoc.model.local import LocalModel


def test_lengths_that_some_engine_would_pad_are_refused() -> None:
    with pytest.raises(StartError, match=r"^4098 tokens: context_parallel needs a multiple of 4; choose one$"):
        PeerSettings(tokens=4098)


def test_an_error_is_found_wherever_a_rank_has_it() -> None:
    expected = torch.arange(8.0, dtype=torch.float64)[:, None] - 4
    zigzag = [[0, 1, 6, 7], [2, 3, 4, 5]]
    parts = [expected[places].float().numpy() for places in zigzag]
    assert _error(ENGINES["longdoc"], parts, expected) == 0
    parts[1][3] += 0.5
    assert _error(ENGINES["longdoc"], parts, expected) == 0.125
    assert _error(ENGINES["yunchang"], [part.copy() for part in parts], expected) > 0.125


def test_heads_are_numbered_the_other_way_and_back() -> None:
    heads_HTD = torch.arange(6.0)[:, None, None]
    swapped = _swap_heads(heads_HTD, outer=2)
    assert swapped.flatten().tolist() == [0, 3, 1, 4, 2, 5]
    assert torch.equal(_swap_heads(swapped, outer=3), heads_HTD)


def test_engines_that_run_are_measured_and_the_others_say_why() -> None:
    if package_version("ring-flash-attn") is not None:
        pytest.skip("ring-flash-attn is installed here")
    names = ("transformers sdpa", "longdoc", "context_parallel, its ring", "ring-flash-attn")
    settings = PeerSettings(tokens=64, repeats=1, plain_threads=1, engines=names)
    (table,) = bench_peers(None, settings, report=lambda _: None).tables
    rows = {row[0]: dict(zip([column.name for column in table.columns], row, strict=True)) for row in table.rows}
    assert tuple(rows) == names
    for name in names[:3]:
        assert rows[name]["error"] < 5e-6
        assert rows[name]["time"] > 0
    missing = rows["ring-flash-attn"]
    assert missing["remark"] == "does not run: not installed: pip install ring-flash-attn"
    assert (missing["error"], missing["time"], missing["sent MiB"], missing["peak MiB"]) == (None,) * 4
    if sent_bytes() is not None:
        # 32 keys and values of 3 heads of 64 in float32, and the headers of two messages.
        assert 49_152 <= rows["longdoc"]["sent MiB"] * 2**20 <= 49_152 + 1000


@pytest.fixture
def registered_sdpa(monkeypatch: pytest.MonkeyPatch) -> str:
    """transformers' own attention in the role of a peer, which a model reaches through transformers' table."""
    engine = replace(ENGINES["transformers sdpa"], name="a peer")
    monkeypatch.setitem(ENGINES, engine.name, engine)
    return engine.name


def test_a_model_runs_with_the_attention_of_a_peer(registered_sdpa: str, tiny_model: LocalModel) -> None:
    states_TC = build_peer(None, registered_sdpa, tiny_model, "float32")("forward", 64, True)
    expected_TC = build_plain(None, tiny_model, "float32")(64, True)
    assert abs(states_TC - expected_TC).max() < 1e-5
    # The peer was really asked: with another scale the states differ.
    monkeyed = replace(ENGINES[registered_sdpa], make=lambda _: lambda q, k, v, scale: q * scale)
    ENGINES[registered_sdpa] = monkeyed
    other_TC = build_peer(None, registered_sdpa, tiny_model, "float32")("forward", 64, True)
    assert abs(other_TC - expected_TC).max() > 1e-2


@pytest.mark.parametrize("asked", ["sliding_window", "softcap", "s_aux"])
def test_a_model_that_asks_for_more_than_causal_attention_is_refused(asked: str) -> None:
    from transformers import AttentionInterface

    _register(lambda q, k, v, scale: q)
    q = torch.zeros(1, 2, 3, 4)
    with pytest.raises(ModelError, match=f"^the model asks for {asked}; peers are compared on plain causal attention$"):
        AttentionInterface()["longdoc_bench_peer"](None, q, q, q, None, scaling=1.0, **{asked: 8})
