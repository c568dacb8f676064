"""`longdoc bench attention`: what the ring costs against one process, how even its layouts are, how exact it is."""

from typing import Any

import click

from longdoc.cli.bench import bench_options, finish, model_option, progress, repeats_option, tokens_option


@click.command()
@tokens_option("8192,16384")
@click.option(
    "--dtype",
    "dtypes",
    type=click.Choice(["float32", "bfloat16"]),
    multiple=True,
    default=("float32", "bfloat16"),
    show_default=True,
    help="Number format; may be repeated.",
)
@repeats_option
@model_option
@click.option("--quick", is_flag=True, help="Few tokens and repeats: shows that it runs, not how fast.")
@bench_options
def attention(*, model: str, quick: bool, as_json: bool, enforce: bool, **settings: Any) -> None:
    """Compare a ring of two ranks × 1 thread with one transformers process × 2 threads.

    Both run the base model over the same tokens, in turns. Also shows how evenly each layout shares the work, and the
    error of attention by ring size.
    """
    from longdoc.bench.attention import AttentionSettings, bench_attention
    from longdoc.model.sources import find_model

    if quick:
        settings |= {"tokens": (1024,), "repeats": 1, "exactness_tokens": 512}
    local = find_model(model, report=progress)
    finish(bench_attention(local, AttentionSettings(**settings), report=progress), as_json=as_json, enforce=enforce)
