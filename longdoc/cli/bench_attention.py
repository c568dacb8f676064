"""`longdoc bench attention`: what the ring costs against one process, how even its layouts are, how exact it is."""

import click

from longdoc.cli.bench import bench_options, finish, progress


@click.command()
@bench_options
def attention(*, as_json: bool, enforce: bool) -> None:
    """Compare a ring of two ranks with one transformers process, and show balance and exactness."""
    from longdoc.bench.attention import bench_attention

    finish(bench_attention(report=progress), as_json=as_json, enforce=enforce)
