"""`longdoc plan`: what a run would take, without running it."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from longdoc.cli.options import config_option, model_options, source_options, take_selection
from longdoc.cli.printing import printable, printable_lines, short_name
from longdoc.cli.sources import open_sources
from longdoc.reporting import skipped_lines

if TYPE_CHECKING:
    from longdoc.runs.forecast import DocumentForecast


@click.command()
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@model_options
@source_options
@config_option
@click.option("--time/--no-time", default=True, help="Forecast seconds too (default); --no-time measures nothing.")
@click.option("--recalibrate", is_flag=True, help="Measure this machine again, though it was measured before.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def plan(
    ctx: click.Context,
    /,
    sources: tuple[str, ...],
    *,
    time: bool,
    recalibrate: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Count the tokens and segments of every SOURCE, and the memory and the time that a run would take for each.

    Reads and encodes the sources and loads no model weights. Memory is by formula. Seconds are those that a run states
    for a document: its ring's work, without reading, encoding and starting. They come from what this machine does with
    layers of this model's shape, which is measured once in a few seconds, on as many cores as the ring will use, and
    kept: plan on a machine that is as idle as the run will find it. Exits 3 when a run would quarantine a document.
    """
    from longdoc.cluster.placement import check_fits
    from longdoc.config import RunConfig
    from longdoc.estimate import ModelShape
    from longdoc.forecasting.calibration import rates_of
    from longdoc.model.sources import find_model
    from longdoc.outputs.convention import settled
    from longdoc.runs.forecast import forecast
    from longdoc.runs.planning import find_documents
    from longdoc.runs.setup import check_layout, grown, ring_spec
    from longdoc.tokenization.pool import pool_where_worth_it

    selection = take_selection(options)
    config = RunConfig(output="", **options)
    ring = ring_spec(config)
    check_fits(ring)
    opened = open_sources(sources, selection)
    for line in skipped_lines(opened):
        click.echo(printable(line), err=True)
    refs, unreadable = find_documents(opened)
    model = find_model(config.model, report=lambda line: click.echo(line, err=True))
    config = settled(config, model, lambda line: click.echo(line, err=True))
    check_layout(config, model)
    ring = grown(ring, config, ModelShape.of(model, config.resolved_dtype, ring.device), refs)
    rates = None
    if time and refs:
        rates = rates_of(
            model,
            dtype=config.resolved_dtype,
            kernel=config.kernel,
            ring=ring,
            again=recalibrate,
            report=lambda line: click.echo(line, err=True),
        )
    forecasts = []
    with pool_where_worth_it(model.folder, max((ref.num_bytes_source for ref in refs), default=0)) as pool:
        for ref in refs:
            click.echo(f"reading {ref.source_uri}", err=True)
            forecasts.append(forecast(ref, config, model, ring, rates, pool))
    problems = len(unreadable) + sum(found.problem is not None for found in forecasts)
    if as_json:
        rows = [asdict(found) for found in forecasts]
        click.echo(
            json.dumps(
                {"model": model.name, "documents": rows, "unreadable": [asdict(found) for found in unreadable]},
                indent=2,
            )
        )
    else:
        _print(forecasts)
        for found in unreadable:
            click.echo(printable_lines(f"{found.source_uri}: cannot be read: {found.error}"))
    ctx.exit(3 if problems else 0)


def _print(forecasts: "list[DocumentForecast]") -> None:
    from rich.console import Console
    from rich.table import Table

    from longdoc.sizes import format_bytes

    # Two-line headings and one blank between columns: on 80 columns a name keeps room.
    table = Table(
        *("document", "bytes", "tokens", "segments", "spans", "ring", "a rank", "smallest\nring", "seconds"),
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.columns[0].overflow = "fold"
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "right", True
    for found in forecasts:
        counts = [found.num_tokens, found.num_segments, found.num_spans]
        table.add_row(
            short_name(found.source_uri),
            f"{found.num_bytes_source:,}",
            *("-" if count is None else f"{count:,}" for count in counts),
            str(found.ring_size),
            "-" if found.bytes_per_rank is None else format_bytes(found.bytes_per_rank),
            "-" if found.smallest_ring is None else str(found.smallest_ring),
            "-" if found.seconds is None else f"{found.seconds:,.1f}",
        )
    Console(highlight=False, soft_wrap=True, markup=False, emoji=False).print(table)
    for found in forecasts:
        if found.problem:
            click.echo(f"{printable(found.source_uri)} would be quarantined: {printable_lines(found.problem)}")
