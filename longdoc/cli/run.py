"""`longdoc run`: the batch job."""

import contextlib
from dataclasses import replace
from typing import Any

import click

from longdoc.cli.options import (
    cluster_option,
    config_option,
    model_options,
    run_options,
    source_options,
    take_selection,
)
from longdoc.cli.sources import open_sources


@click.command()
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@run_options
@model_options
@cluster_option
@source_options
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.pass_context
def run(ctx: click.Context, /, sources: tuple[str, ...], *, as_json: bool, **options: Any) -> None:
    """Read every SOURCE with a model and write embeddings and scores to Parquet.

    A SOURCE is a book, a folder of books, a git repository (a path or an address), a list of such (@list.txt), or - for
    a book on standard input. Each document is read whole, in one exact forward pass on a ring of workers. What an
    earlier run committed is not computed again; a document that fails is quarantined with its reason and the others go
    on.

    \b
    Examples:
      longdoc run alice.txt -o out
      longdoc run ~/src/flask -o out --include 'src/**' --revision v3.0
      longdoc run --config job.toml --ring-size 4
    """
    from longdoc.cli.progress import make_reporter, print_summary
    from longdoc.config import RunConfig
    from longdoc.errors import StartError
    from longdoc.run import run as run_sources
    from longdoc.store.known import KnownCommits

    if options["output"] is None:
        raise StartError("no output is named; add --output OUT.")
    selection = replace(take_selection(options), known=KnownCommits(options["output"]))
    config = RunConfig(**options)
    with make_reporter() as reporter:
        summary = run_sources(config, open_sources(sources, selection), reporter)
    with contextlib.suppress(BrokenPipeError):
        print_summary(summary, config.output, as_json=as_json)
    ctx.exit(summary.exit_code)
