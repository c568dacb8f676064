"""`longdoc bench`: the group of benchmarks, the options they share, and how a report is shown.

A benchmark's command lives in a module of its own and is imported when it is asked for. It takes `bench_options` and
hands its report to `finish`.
"""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from longdoc.bench.report import Report, Table
from longdoc.cli.lazy import CommandTable, LazyGroup
from longdoc.cli.printing import plural
from longdoc.errors import TargetMissed

#: Benchmark -> (module, attribute, one line of help).
BENCHES: CommandTable = {
    "attention": (
        "longdoc.cli.bench_attention",
        "attention",
        "A ring of two against one transformers process; balance of layouts; error by ring size.",
    ),
}

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group(cls=LazyGroup, table=BENCHES)
def bench() -> None:
    """Measure, on this machine, what longdoc promises about speed and exactness.

    Everything that is compared runs side by side in one session: medians of interleaved repeats, ratios of medians.
    A target that is missed is printed as MISS; with --enforce the exit code is then 5.
    """


def bench_options(command: Command) -> Command:
    """--json and --enforce."""
    as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
    enforce = click.option("--enforce", is_flag=True, help="Exit 5 when a target is missed.")
    return as_json(enforce(command))


def progress(line: str) -> None:
    """A line about what is being measured, on standard error."""
    click.echo(line, err=True)


def finish(report: Report, *, as_json: bool, enforce: bool) -> None:
    """Print a report. Raises `TargetMissed` where targets are enforced and one was missed."""
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2))
    else:
        _show(report)
    if enforce and report.missed:
        # The whole line of each, so that a log that holds only standard error tells enough.
        raise TargetMissed(
            f"longdoc bench {report.bench} missed {plural(len(report.missed), 'target')} of {len(report.targets)}:\n"
            + "\n".join(f"  {target}" for target in report.missed)
            + "\nMeasure again on an idle machine; without --enforce a miss is only printed."
        )


def _show(report: Report) -> None:
    click.echo("\n".join(f"{name:16} {'-' if fact is None else fact}" for name, fact in report.facts.items()))
    for table in report.tables:
        click.echo(f"\n{table.title}")
        _show_table(table)
    if report.targets:
        click.echo("\n" + "\n".join(str(target) for target in report.targets))
    for note in report.notes:
        click.echo(f"\n{note}")


def _show_table(table: Table) -> None:
    from rich.console import Console
    from rich.table import Table as RichTable

    shown = RichTable(*(column.name for column in table.columns), box=None)
    for column, model in zip(shown.columns, table.columns, strict=True):
        cells = [row[table.columns.index(model)] for row in table.rows]
        # Words read from the left, numbers line up at the right; a reason may be long and is folded by nobody.
        column.justify = "left" if any(isinstance(cell, str) for cell in cells) else "right"
        column.no_wrap = True
    for row in table.rows:
        shown.add_row(*(column.show(cell) for column, cell in zip(table.columns, row, strict=True)))
    Console(highlight=False, soft_wrap=True, markup=False, emoji=False).print(shown)
