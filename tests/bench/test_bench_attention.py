"""The parts of `longdoc bench attention`: balance by counting, errors by planting one, and one tiny run of it all."""

import numpy as np
import pytest
import torch
from torch import Tensor

from longdoc.bench import exactness
from longdoc.bench.attention import AttentionSettings, bench_attention, gather
from longdoc.bench.balance import balance_table, imbalance, pairs_of_ranks
from longdoc.model.local import LocalModel
from longdoc.ring.kernels import choose_kernel
from longdoc.ring.layout import LAYOUTS, Layout, LayoutKind


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("num_ranks", [2, 3, 5])
def test_pairs_are_those_of_a_dense_mask(kind: LayoutKind, num_ranks: int) -> None:
    layout = Layout(kind=kind, num_tokens=4 * num_ranks, num_ranks=num_ranks)
    # A query at position p sees p + 1 keys.
    expected = tuple(int((layout.positions(rank) + 1).sum()) for rank in range(num_ranks))
    assert pairs_of_ranks(kind, num_ranks, 4) == expected


def test_imbalance_is_the_busiest_rank_against_the_mean() -> None:
    assert imbalance((1, 3)) == 1.5
    # Contiguous over two ranks: half² / 2 for the first, three times as much for the second.
    assert imbalance(pairs_of_ranks("contiguous", 2, 8192)) == pytest.approx(1.5, abs=1e-4)


def test_zigzag_meets_its_target_and_contiguous_would_not() -> None:
    table, target = balance_table()
    assert target.met
    assert {row[0] for row in table.rows} == set(LAYOUTS)
    assert all(value > 1.02 for row in table.rows if row[0] == "contiguous" for value in row[2:])


def test_the_oracle_is_torchs_attention_up_to_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactness, "_ROWS", 40)
    q, k, v = exactness.draw(97, torch.float64, num_heads=6, num_kv_heads=3)
    error = exactness.relative_error(exactness.whole_attention(q, k, v), exactness.defined_attention(q, k, v))
    assert 0 < error < 1e-14


def test_errors_of_rings_meet_their_targets() -> None:
    table, targets = exactness.exactness_table(256, report=lambda _: None)
    assert [row[0] for row in table.rows] == ["float64", "float32", "bfloat16"]
    assert [target.met for target in targets] == [True, True]


def test_a_kernel_with_a_wrong_log_sum_exp_misses_the_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    right = choose_kernel("torch", "cpu")[1]

    def wrong(q_HTD: Tensor, k_GSD: Tensor, v_GSD: Tensor, **options: object) -> tuple[Tensor, Tensor]:
        out_HTD, lse_HT = right(q_HTD, k_GSD, v_GSD, **options)
        return out_HTD, lse_HT - torch.log(torch.tensor(float(k_GSD.shape[1])))

    monkeypatch.setattr(exactness, "choose_kernel", lambda *_: ("wrong", wrong))
    _, targets = exactness.exactness_table(256, report=lambda _: None)
    assert [target.met for target in targets] == [False, False]


def test_states_of_ranks_are_put_in_the_order_of_the_document() -> None:
    layout = Layout(kind="zigzag", num_tokens=11, num_ranks=3)
    parts = [layout.positions(rank).astype(np.float32)[:, None] for rank in range(3)]
    assert gather(parts, 11, "zigzag")[:, 0].tolist() == list(range(11))


def test_a_tiny_run_compares_the_ring_with_transformers(tiny_model: LocalModel) -> None:
    lines: list[str] = []
    settings = AttentionSettings(tokens=(61,), dtypes=("float32",), repeats=2, plain_threads=1, exactness_tokens=64)
    report = bench_attention(tiny_model, settings, report=lines.append)
    times, balance, errors = report.tables
    assert len(times.rows) == 1
    row = dict(zip([column.name for column in times.columns], times.rows[0], strict=True))
    assert (row["dtype"], row["tokens"]) == ("float32", 61)
    assert row["fastest"] <= row["ring s"] <= row["slowest"]
    assert row["ring / sdpa"] == pytest.approx(row["ring s"] / row["sdpa s"])
    # Both computed the same states, or the comparison of their times says nothing.
    assert 0 < row["states differ by"] < 1e-4
    assert [target.name for target in report.targets][:2] == [
        "ring / sdpa, float32, 61 tokens",
        "zigzag, busiest rank / mean",
    ]
    assert sum("61 tokens 2/2" in line for line in lines) == 2
    assert report.facts["model"] == "tiny-random (2 M)"
    assert balance.rows
    assert errors.rows
