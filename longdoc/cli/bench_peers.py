"""`longdoc bench peers`: the same attention and the same forward pass through other engines."""

from typing import Any

import click

from longdoc.cli.bench import bench_options, finish, model_option, progress, repeats_option


@click.command()
@click.option("--tokens", type=click.IntRange(4), default=4096, show_default=True, metavar="N", help="Length.")
@click.option(
    "--dtype", type=click.Choice(["float32", "bfloat16"]), default="float32", show_default=True, help="Number format."
)
@repeats_option
@model_option
@click.option("--attention-only", is_flag=True, help="Leave out the forward pass of a whole model.")
@click.option("--quick", is_flag=True, help="Few tokens and repeats: shows that it runs, not how fast.")
@bench_options
def peers(*, model: str, attention_only: bool, quick: bool, as_json: bool, enforce: bool, **settings: Any) -> None:
    """Compare longdoc's ring with transformers, torch's context_parallel and the ring packages that are installed.

    Error against float64, time, bytes sent and peak memory. What is missing or does not run here is a row that says so.
    """
    from longdoc.bench.peers import PeerSettings, bench_peers
    from longdoc.model.sources import find_model

    if quick:
        settings |= {"tokens": 512, "repeats": 1}
    chosen = PeerSettings(**settings)
    local = None if attention_only else find_model(model, report=progress)
    finish(bench_peers(local, chosen, report=progress), as_json=as_json, enforce=enforce)
