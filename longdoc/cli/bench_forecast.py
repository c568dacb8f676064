"""`longdoc bench forecast`: what plan says against what run takes."""

import click

from longdoc.cli.bench import bench_options, finish, model_option, progress, tokens_option

_DTYPES = ("float32", "bfloat16")


@click.command()
@tokens_option("2048,8192,16384")
@click.option(
    "--ring-size",
    "ring_sizes",
    type=click.IntRange(1),
    multiple=True,
    default=(1, 2),
    show_default=True,
    help="Ranks; may be given several times.",
)
@click.option(
    "--dtype",
    "dtypes",
    type=click.Choice(_DTYPES),
    multiple=True,
    default=_DTYPES,
    show_default=True,
    help="May be given several times.",
)
@model_option
@bench_options
def forecast(
    *,
    tokens: tuple[int, ...],
    ring_sizes: tuple[int, ...],
    dtypes: tuple[str, ...],
    model: str,
    as_json: bool,
    enforce: bool,
) -> None:
    """Plan and run documents of these lengths on CPU rings, and compare the forecast with what was taken.

    Targets: memory of the largest rank within 15%, seconds of the document within 30%, in every cell. Each run starts
    a Ray of its own, about ten seconds beside its work.
    """
    from longdoc.bench.forecast import bench_forecast

    found = bench_forecast(model=model, token_counts=tokens, ring_sizes=ring_sizes, dtypes=dtypes, report=progress)
    finish(found, as_json=as_json, enforce=enforce)
