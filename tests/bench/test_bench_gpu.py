"""longdoc bench gpu on the CPU: everything but the GPU's own numbers."""

import json

import pytest
import torch

from longdoc.bench.gpu import SCALES, UNTESTED, GpuScale, Session, Step, bench_gpu, report_of
from longdoc.bench.gpu_device import BenchDevice
from longdoc.bench.gpu_forward import LARGE_SHAPE, SMALL_SHAPE, RandomModel
from longdoc.bench.gpu_kernels import HeadShape, PlayedRank, available_kernels, exactness, ring_against_alone
from longdoc.cli.main import call
from longdoc.errors import ModelError
from longdoc.ring.kernels.reference import reference_kernel
from longdoc.ring.layout import Layout
from longdoc.ring.mask import LOWER_TRIANGLE


@pytest.fixture
def device():
    return BenchDevice("cpu")


def test_every_step_is_shown_and_written_before_the_next_one(tmp_path):
    log, seen = tmp_path / "steps.jsonl", []

    def report(line):
        seen.append((line, log.read_text().splitlines() if log.exists() else []))

    found = bench_gpu(device="cpu", scale=SCALES["tiny"], seconds=600.0, log=log, report=report)
    written = log.read_text().splitlines()
    assert [line for line, _ in seen] == written
    assert [before for _, before in seen] == [written[:number] for number in range(len(written))]
    rows = [json.loads(line) for line in written]
    kinds = [row["step"] for row in rows]
    # Two dtypes; two sizes × two rings × one head size; two forward passes; what is not there, and not tested.
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "facts": 1,
        "kernel": 2,
        "exactness": 2,
        "speed": 4,
        "forward": 2,
        "nccl": 1,
    }
    assert not [row for row in rows if "failed" in row]
    assert rows[-1] == {"step": "nccl", "skipped": UNTESTED}
    assert [table.title for table in found.tables] == ["kernel", "exactness", "speed", "forward", "nccl"]
    assert [(target.name, target.met) for target in found.targets] == [
        ("error of the ring against the kernel alone, torch in bf16", True)
    ]


def test_the_command_prints_tables_and_says_where_a_gpu_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("longdoc.gpus.cuda_problem", lambda: "nvidia-smi finds no GPU that this process may use")
    monkeypatch.chdir(tmp_path)
    assert call(["bench", "gpu"]) == 2
    assert "nvidia-smi finds no GPU that this process may use; use a machine with a GPU, or" in capsys.readouterr().err
    assert call(["bench", "gpu", "--device", "cpu", "--scale", "tiny", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["bench"] == "gpu"
    assert (tmp_path / "longdoc-bench-gpu.jsonl").read_text() == shown.err


def session(device, *, seconds=100.0, clock=lambda: 0.0):
    return Session(seconds=seconds, log=None, report=lambda line: None, device=device, clock=clock)


def test_a_step_that_would_outlast_the_budget_is_a_line_that_says_so(device):
    device.flops_per_second, now = 1e9, [0.0]
    running = session(device, clock=lambda: now[0])
    running.run(Step(name={"step": "one"}, flops=90e9, run=lambda: {"value": 1}))
    now[0] = 50.0
    running.run(Step(name={"step": "two"}, flops=90e9, run=lambda: pytest.fail("there is no time for it")))
    running.run(Step(name={"step": "three"}, flops=40e9, run=lambda: {"value": 3}))
    assert running.rows == [
        {"step": "one", "value": 1},
        {"step": "two", "skipped": "about 90 s, and 50 s are left"},
        {"step": "three", "value": 3},
    ]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory.\nmore"),
        ModelError("no such block"),
        # What a library of another version says: an op, an argument or a result that is not there.
        AttributeError("'_OpNamespace' 'aten' object has no attribute '_flash_attention_forward'"),
        TypeError("flash_attn_func() got an unexpected keyword argument 'softcap'"),
        AssertionError("a result is not finite"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_step_that_fails_is_a_line_and_the_next_one_runs(device, error):
    def fail():
        raise error

    running = session(device)
    running.run(Step(name={"step": "one"}, flops=0.0, run=fail))
    running.run(Step(name={"step": "two"}, flops=0.0, run=lambda: {"value": 2}))
    assert running.rows[0]["failed"] == f"{type(error).__name__}: {str(error).splitlines()[0]}"
    assert running.rows[1] == {"step": "two", "value": 2}


def speed_row(tokens, kernel="torch", **found):
    return {"step": "speed", "kernel": kernel, "head dim": 128, "tokens a rank": tokens, "ranks": 4} | found


def test_targets_take_the_worst_ratio_of_a_size_and_a_missing_one_is_a_miss():
    rows = [
        speed_row(8192, ratio=0.90),
        speed_row(8192, ratio=0.86),
        speed_row(8192, kernel="cudnn", ratio=0.10),
        speed_row(32768, ratio=0.97),
        speed_row(131072, ratio=0.99),
        speed_row(131072, skipped="no time"),
        {"step": "exactness", "kernel": "torch", "dtype": "bfloat16", "ring error": 3e-3, "alone error": 2e-3},
        {"step": "exactness", "kernel": "torch", "dtype": "float32", "ring error": 1.0, "alone error": 1e-7},
    ]
    found = report_of(rows, {})
    assert [(target.value, target.met) for target in found.targets] == [
        (0.86, True),
        (0.97, True),
        (None, False),
        (pytest.approx(1.5), True),
    ]
    assert found.notes == (UNTESTED,)


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_ranks_that_are_played_one_by_one_give_the_attention_of_the_whole(num_ranks):
    heads = HeadShape(num_heads=4, num_kv_heads=2, head_dim=8)
    q, k, v = heads.draw(31, torch.float64, torch.device("cpu"))
    layout = Layout(kind="zigzag", num_tokens=31, num_ranks=num_ranks)
    wanted, _ = reference_kernel(q, k, v, band=LOWER_TRIANGLE, scale=0.3)
    for rank in range(num_ranks):
        played = PlayedRank((q, k, v), layout=layout, rank=rank)
        for _ in range(2):
            torch.testing.assert_close(played.attend(reference_kernel, 0.3), wanted[:, layout.positions(rank)])


def test_the_ratio_is_the_slowest_ranks_against_its_share_of_the_kernel_alone(device, monkeypatch):
    heads = HeadShape(num_heads=4, num_kv_heads=2, head_dim=8)
    monkeypatch.setattr(device, "medians", lambda actions, repeats: [6.0, 2.0, 2.5, 2.2][: len(actions)])
    found = ring_against_alone(device, reference_kernel, heads, tokens_per_rank=10, num_ranks=3, repeats=5)
    assert found["ratio"] == pytest.approx(6.0 / 3 / 2.5)
    assert (found["alone ms"], found["slowest rank ms"]) == (6000.0, 2500.0)
    # Of the ring: a third of the document's work, in the time of its slowest rank.
    assert found["TFLOP/s"] == pytest.approx(heads.causal_flops(30) / 3 / 2.5 / 1e12)


def test_exactness_sees_a_kernel_that_is_wrong_inside_a_ring_only(device):
    heads = HeadShape(num_heads=4, num_kv_heads=2, head_dim=8)

    def wrong_beyond_the_diagonal(q, k, v, *, band, scale, softcap=None):
        out, lse = reference_kernel(q, k, v, band=band, scale=scale)
        return (out, lse + 0.1) if band.is_full else (out, lse)

    found = exactness(device, wrong_beyond_the_diagonal, heads, dtype=torch.float64, num_tokens=40, num_ranks=2)
    assert found["alone error"] < 1e-12
    assert found["ring error"] > 1e-3


def test_the_formula_counts_the_weights_that_the_model_has(device):
    model = RandomModel(SMALL_SHAPE, device).model
    assert sum(weight.numel() for weight in model.module.parameters()) == SMALL_SHAPE.num_parameters
    assert LARGE_SHAPE.num_parameters == 8_030_261_248, "Llama 3.1 8B, as its files hold"


def test_flops_of_causal_attention_and_of_a_forward_pass():
    # Three tokens see 1 + 2 + 3 keys; a pair costs 2·D for q·k and 2·D for the values, for each head.
    assert HeadShape(num_heads=5, num_kv_heads=1, head_dim=7).causal_flops(3) == 4 * 7 * 5 * 6
    weights = SMALL_SHAPE.num_parameters - 2 * 128 * 64
    assert SMALL_SHAPE.flops(3) == 2 * weights * 3 + 2 * 4 * 64 * 6


@pytest.mark.parametrize(
    ("name", "peak"),
    [("NVIDIA H200", 989e12), ("NVIDIA H100 80GB HBM3", 989e12), ("NVIDIA A100-SXM4-80GB", 312e12), ("Other", None)],
)
def test_the_peak_is_known_by_the_makers_name(device, monkeypatch, name, peak):
    monkeypatch.setattr(BenchDevice, "name", name)
    assert device.peak == peak
    rates = device.rates(1e12, 0.01)
    assert rates["TFLOP/s"] == pytest.approx(100.0)
    assert rates["share of peak"] == (None if peak is None else pytest.approx(1e14 / peak))


def test_kernels_that_are_not_there_are_named_with_the_reason(device):
    found, missing = available_kernels(device)
    assert list(found) == ["torch"]
    assert set(missing) == {"flash-attn", "flash-attn-4"}
    assert all("CUDA only" in reason for reason in missing.values())


def test_a_kernel_whose_import_fails_in_a_way_of_its_own_is_named_too(device, monkeypatch):
    def broken(name, *_):
        raise AttributeError("module 'cutlass' has no attribute 'cute'\nand more")

    monkeypatch.setattr("longdoc.bench.gpu_kernels.choose_kernel", broken)
    found, missing = available_kernels(device)
    assert found == {}
    assert set(missing.values()) == {"AttributeError: module 'cutlass' has no attribute 'cute'"}


def test_a_device_that_refuses_to_release_memory_fails_that_step_only(device, monkeypatch):
    def refuse():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(device, "release", refuse)
    running = session(device)
    running.run(Step(name={"step": "one"}, flops=0.0, run=lambda: {"value": 1}))
    assert running.rows == [
        {"step": "one", "failed": "RuntimeError: CUDA error: an illegal memory access was encountered"}
    ]


def test_the_whole_of_it_is_planned_to_take_less_than_eight_minutes():
    from longdoc.bench.gpu import _steps

    device = BenchDevice("cpu")
    device.flops_per_second = 250e12
    scale: GpuScale = SCALES["full"]
    steps = _steps(device, scale, dict.fromkeys(("torch", "flash-attn", "flash-attn-4", "cudnn")))
    assert sum(step.flops for step in steps) / device.flops_per_second < 480


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_on_a_gpu_a_loopback_ring_is_as_exact_as_its_kernel(dtype, num_ranks):
    device = BenchDevice("cuda")
    kernels, _ = available_kernels(device)
    heads = HeadShape(num_heads=8, num_kv_heads=2, head_dim=64)
    for name in kernels if dtype == torch.bfloat16 else ("torch",):
        found = exactness(device, kernels[name], heads, dtype=dtype, num_tokens=1009, num_ranks=num_ranks)
        assert found["ring error"] <= 2 * found["alone error"] + 1e-6, name
