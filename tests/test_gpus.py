"""What nvidia-smi prints, CUDA_VISIBLE_DEVICES, and what `auto` becomes on a machine with GPUs."""

import subprocess

import pytest

from longdoc import gpus
from longdoc.config import RunConfig
from longdoc.errors import StartError
from longdoc.gpus import Gpu, chosen, parse, visible_gpus
from longdoc.runs import setup

# As printed by nvidia-smi for these columns, without header and units.
TOLD = """\
0, GPU-5d1f0a52-7f0c-11d4-aa1c-0242ac110002, NVIDIA H200, 143771, 143120
1, GPU-77bc9c10-0e2f-22e5-bb2d-0242ac110003, NVIDIA H200, 143771, 20480
"""


def gpu(index, uuid="GPU-0", free=1 << 34):
    return Gpu(index=index, uuid=uuid, name="NVIDIA H200", total_bytes=1 << 37, free_bytes=free)


def test_what_nvidia_smi_prints_is_read_line_by_line():
    first, second = parse(TOLD)
    assert first == Gpu(
        index=0,
        uuid="GPU-5d1f0a52-7f0c-11d4-aa1c-0242ac110002",
        name="NVIDIA H200",
        total_bytes=143771 * 2**20,
        free_bytes=143120 * 2**20,
    )
    assert (second.index, second.free_bytes) == (1, 20 * 2**30)


@pytest.mark.parametrize("told", ["", "No devices were found\n", "0, GPU-1, NVIDIA H200, [N/A], [N/A]\n"])
def test_what_names_no_gpu_is_none(told):
    assert parse(told) == ()


@pytest.mark.parametrize(
    ("visible", "left"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("2,0", [2, 0]),
        ("1,7,0", [1]),
        ("GPU-b", [1]),
        ("GPU-", []),
        ("NoDevFiles", []),
    ],
)
def test_the_environment_chooses_as_cuda_does(visible, left):
    all_gpus = (gpu(0, "GPU-aa"), gpu(1, "GPU-bb"), gpu(2, "GPU-cc"))
    assert [found.index for found in chosen(all_gpus, visible)] == left


@pytest.mark.parametrize("error", [FileNotFoundError(), subprocess.CalledProcessError(9, "nvidia-smi")])
def test_without_a_driver_there_is_no_gpu(monkeypatch, error):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(gpus.subprocess, "run", fail)
    assert visible_gpus() == ()


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr("longdoc.config.cuda_problem", lambda: None)
    monkeypatch.setattr(setup, "visible_gpus", lambda: (gpu(0, free=40 << 30), gpu(1, free=30 << 30)))


def test_auto_is_cuda_and_bf16_where_torch_sees_a_gpu(two_gpus):
    config = RunConfig(output="out")
    assert (config.resolved_device, config.resolved_dtype) == ("cuda", "bfloat16")
    on_cpu = RunConfig(output="out", device="cpu")
    assert (on_cpu.resolved_device, on_cpu.resolved_dtype, on_cpu.resolved_ring_size) == ("cpu", "float32", 2)


def test_cuda_that_is_not_there_is_refused_with_the_cause(monkeypatch):
    monkeypatch.setattr("longdoc.config.cuda_problem", lambda: "nvidia-smi finds no GPU that this process may use")
    with pytest.raises(StartError, match=r"^--device cuda: nvidia-smi finds no GPU .*; use --device cpu\.$"):
        RunConfig(output="out", device="cuda")
    with pytest.raises(StartError, match=r"^--kernel flash-attn runs on CUDA only, .*; use --kernel torch\.$"):
        RunConfig(output="out", kernel="flash-attn")


def test_a_build_of_torch_that_sees_no_gpu_is_a_cause_of_its_own(monkeypatch):
    import torch

    monkeypatch.setattr(gpus, "visible_gpus", lambda: (gpu(0),))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert gpus.cuda_problem.__wrapped__() == f"torch {torch.__version__}, built without CUDA, sees no GPU"


class Ref:
    def __init__(self, num_bytes_source):
        self.num_bytes_source = num_bytes_source


def kilobyte_a_token(shape, num_tokens, capacity_of, *, most):
    """A formula to reckon with: the smallest ring in which a thousand bytes a token fit."""
    return next((n for n in range(1, most + 1) if 1000 * num_tokens <= n * capacity_of(n)), None)


def test_on_cuda_the_ring_grows_until_the_longest_document_fits(two_gpus, monkeypatch):
    monkeypatch.setattr(setup, "smallest_ring", kilobyte_a_token)
    config = RunConfig(output="out")
    ring = setup.ring_spec(config)
    assert (ring.num_ranks, ring.num_gpus, ring.device) == (1, 2, "cuda")
    capacity = (30 << 30) - setup.GPU_RESERVE_BYTES
    assert setup.capacity_of(ring)(2) == capacity, "the fullest GPU decides, and ranks do not share it"
    short, long = Ref(1000), Ref(int(capacity / 1000 * setup.BYTES_PER_TOKEN) + 1000)
    assert setup.grown(ring, config, None, [short]).num_ranks == 1
    assert setup.grown(ring, config, None, [short, long]).num_ranks == 2
    assert setup.grown(ring, config, None, [Ref(10**12)]).num_ranks == 2, "others may fit the largest ring"
    asked = RunConfig(output="out", ring_size=1)
    assert setup.grown(setup.ring_spec(asked), asked, None, [long]).num_ranks == 1
    on_cpu = RunConfig(output="out", device="cpu")
    assert setup.grown(setup.ring_spec(on_cpu), on_cpu, None, [long]).num_ranks == 2
