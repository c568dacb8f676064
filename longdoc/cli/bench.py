"""`longdoc bench`: the group of benchmarks, the options they share, and how a report is shown.

A benchmark's command lives in a module of its own and is imported when it is asked for. It takes `bench_options` and
hands its report to `finish`.
"""

import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import click

from longdoc.bench.report import Report, Table
from longdoc.cli.lazy import CommandTable, LazyGroup
from longdoc.cli.printing import plural
from longdoc.config import RunConfig
from longdoc.errors import TargetMissed

#: Benchmark -> (module, attribute, one line of help).
BENCHES: CommandTable = {
    "attention": (
        "longdoc.cli.bench_attention",
        "attention",
        "A ring of two against one transformers process; balance of layouts; error by ring size.",
    ),
    "overlap": ("longdoc.cli.bench_overlap", "overlap", "Whether transfers over a slow link hide behind compute."),
    "forecast": ("longdoc.cli.bench_forecast", "forecast", "What plan says of memory and time against what run takes."),
    "peers": ("longdoc.cli.bench_peers", "peers", "The same attention and forward pass through other engines."),
    "ingest": (
        "longdoc.cli.bench_ingest",
        "ingest",
        "Repositories and books to tokens, beside tiktoken, gitingest and markitdown.",
    ),
    "gpu": ("longdoc.cli.bench_gpu", "gpu", "Kernels in a ring, exactness and a large model on one CUDA GPU."),
}

_MODEL = next(field.default for field in fields(RunConfig) if field.name == "model")

Command = TypeVar("Command", bound=Callable[..., Any])


class TokenCounts(click.ParamType[tuple[int, ...]]):
    """Comma-separated numbers of tokens."""

    name = "tokens"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Raises a usage error for anything but whole numbers of at least 2."""
        if isinstance(value, tuple):
            return value
        try:
            counts = tuple(int(part) for part in str(value).split(","))
        except ValueError:
            counts = ()
        if not counts or min(counts) < 2:
            self.fail(f"{value!r} is no list of numbers of tokens, such as 8192,16384.", param, ctx)
        return counts


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


def tokens_option(default: str) -> Callable[[Command], Command]:
    """--tokens N,N: lengths to measure."""
    return click.option(
        "--tokens", type=TokenCounts(), default=default, show_default=True, metavar="N,N", help="Lengths to measure."
    )


def repeats_option(command: Command) -> Command:
    """--repeats: how often each contestant runs."""
    return click.option(
        "--repeats", type=click.IntRange(1), default=5, show_default=True, metavar="N", help="Interleaved repeats."
    )(command)


def model_option(command: Command) -> Command:
    """--model, by default that of a run."""
    return click.option(
        "--model", default=_MODEL, show_default=True, help="A built-in model, or a folder with safetensors."
    )(command)


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
    """Plain text however narrow the terminal: a number that is cut short is worse than a long line."""
    for line in table_lines(table):
        click.echo(line)


def table_lines(table: Table) -> list[str]:
    """The columns side by side; words stand at the left of theirs, numbers at the right."""
    columns = []
    for place, column in enumerate(table.columns):
        cells = [row[place] for row in table.rows]
        shown = [column.name, *(column.show(cell) for cell in cells)]
        width, is_text = max(map(len, shown)), any(isinstance(cell, str) for cell in cells)
        columns.append([text.ljust(width) if is_text else text.rjust(width) for text in shown])
    return ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
