"""`longdoc bench overlap`: whether transfers over a slow link are hidden behind compute."""

from typing import Any

import click

from longdoc.cli.bench import bench_options, finish, progress, repeats_option


@click.command()
@click.option("--tokens", type=click.IntRange(2), metavar="N", help="Tokens of the whole document.  [default: 8192]")
@click.option("--ranks", type=click.IntRange(2), metavar="P", help="Processes, a thread each.  [default: 2]")
@click.option("--layers", type=click.IntRange(1), metavar="N", help="Attention calls of one pass.  [default: 4]")
@click.option(
    "--fraction",
    type=click.FloatRange(0, min_open=True),
    default=0.8,
    show_default=True,
    help="Slow the link until a transfer takes this much of a hop's compute.",
)
@click.option(
    "--bandwidth",
    type=click.FloatRange(0, min_open=True),
    metavar="MB/S",
    help="Slow the link to this instead; no target then.",
)
@repeats_option
@click.option("--quick", is_flag=True, help="Few tokens and repeats: shows that it runs, not how well.")
@bench_options
def overlap(
    *,
    tokens: int | None,
    ranks: int | None,
    layers: int | None,
    fraction: float,
    bandwidth: float | None,
    repeats: int,
    quick: bool,
    as_json: bool,
    enforce: bool,
) -> None:
    """Slow the link between two processes, and compare the ring's wall time with that of its compute alone.

    Attention only, which has the least to hide behind. Shows a schedule that overlaps nothing as the contrast.
    """
    from longdoc.bench.overlap import OverlapShape, bench_overlap

    chosen: dict[str, Any] = {"num_tokens": tokens, "num_ranks": ranks, "num_layers": layers}
    if quick:
        chosen, repeats = {"num_tokens": 1024, "num_ranks": ranks, "num_layers": 2}, 1
    shape = OverlapShape(**{name: number for name, number in chosen.items() if number is not None})
    found = bench_overlap(shape, fraction=fraction, megabytes_per_second=bandwidth, repeats=repeats, report=progress)
    finish(found, as_json=as_json, enforce=enforce)
