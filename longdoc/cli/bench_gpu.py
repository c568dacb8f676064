"""`longdoc bench gpu`: kernels, exactness and a large forward pass on one CUDA GPU."""

from pathlib import Path

import click

from longdoc.cli.bench import bench_options, finish, progress


@click.command()
@click.option(
    "--device",
    type=click.Choice(("cuda", "cpu")),
    default="cuda",
    show_default=True,
    help="cpu shows that it runs, with --scale tiny.",
)
@click.option(
    "--scale",
    type=click.Choice(("full", "tiny")),
    default="full",
    show_default=True,
    help="tiny shows that it runs, not how well.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=450.0,
    show_default=True,
    help="Start no step that would end later.",
)
@click.option(
    "--log",
    type=click.Path(dir_okay=False, path_type=Path),
    default="longdoc-bench-gpu.jsonl",
    show_default=True,
    help="Append each step's result to this file, as JSON, as soon as it is known.",
)
@bench_options
def gpu(*, device: str, scale: str, seconds: float, log: Path, as_json: bool, enforce: bool) -> None:
    """Measure each kernel inside a ring against the kernel alone, and a Llama-8B shape with random weights.

    One GPU, no Ray. The ranks of a ring run one after another, so that each one's time is its compute; what NCCL does
    between GPUs is not measured. A kernel that is not installed, or a step without time left, is a line that says so.
    """
    from longdoc.bench.gpu import SCALES, bench_gpu
    from longdoc.errors import StartError
    from longdoc.gpus import cuda_problem

    if device == "cuda" and (problem := cuda_problem()):
        raise StartError(f"longdoc bench gpu: {problem}; use a machine with a GPU, or --device cpu --scale tiny.")
    found = bench_gpu(device=device, scale=SCALES[scale], seconds=seconds, log=log, report=progress)
    finish(found, as_json=as_json, enforce=enforce)
