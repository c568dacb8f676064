"""`longdoc schedule validate|next|run|status`: runs of `longdoc run` by the clock, from one TOML file."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import click

from longdoc.cli.printing import plural, printable
from longdoc.errors import InfrastructureError, StartError
from longdoc.scheduling.schedule_file import Entry, Schedule, read_schedule

_FILE = click.argument("file", metavar="FILE", type=click.Path(path_type=Path))


@click.group(short_help="Run longdoc by the clock, from a file of entries.")
def schedule() -> None:
    """Index repositories again and again, by the clock; work is done only for what changed.

    \b
    FILE is TOML. Options at its top hold for all entries; an entry needs cron, sources and output:
      timezone = "Europe/Berlin"
      output = "index"
      [entries.nightly]
      cron = "30 2 * * *"
      sources = ["https://github.com/pallets/flask", "@repositories.txt"]
    Every option of longdoc run may stand there by its name; docs/schedule.md has them all.
    """


@schedule.command(short_help="Find every mistake in a schedule; runs nothing.")
@_FILE
def validate(file: Path) -> None:
    """Find every mistake in FILE at once. Exits 2 where there is one."""
    found = read_schedule(file, datetime.now(UTC))
    click.echo(f"{printable(str(file))}: {_counted(len(found.entries))}, no mistakes.")
    for entry in found.entries:
        click.echo(f"  {_heading(entry)}")
    for remark in found.remarks:
        click.echo(f"Remark: {printable(remark)}")


@schedule.command(name="next", short_help="Show when each entry is due next.")
@_FILE
@click.option(
    "--count", type=click.IntRange(min=1), default=3, show_default="3", metavar="N", help="Ticks of each entry."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def next_command(file: Path, *, count: int, as_json: bool) -> None:
    """Show the next ticks of each entry of FILE, in the entry's zone and in UTC."""
    now = datetime.now(UTC)
    found = read_schedule(file, now)
    ticks = {entry.name: list(islice(entry.cron.after(now), count)) for entry in found.entries}
    if as_json:
        rows = {name: [{"utc": _utc(tick)} for tick in each] for name, each in ticks.items()}
        for entry in found.entries:
            for row, tick in zip(rows[entry.name], ticks[entry.name], strict=True):
                row["local"] = tick.astimezone(entry.cron.zone).isoformat()
        click.echo(json.dumps(rows, indent=2))
        return
    for entry in found.entries:
        click.echo(_heading(entry))
        for tick in ticks[entry.name]:
            click.echo(f"  {_local(tick, entry)}   {_utc(tick)}")


@schedule.command(short_help="Serve all entries until stopped, or run one now.")
@_FILE
@click.option("--once", metavar="NAME", help="Run this entry now, whatever the time, and end with its exit code.")
@click.pass_context
def run(ctx: click.Context, /, file: Path, *, once: str | None) -> None:
    """Serve every entry of FILE: start what is due, skip what comes too early, run once what was missed.

    Any number of these may serve one output, on one machine or on several that share it: each tick is run by one of
    them, and the others take over when that one is gone. Ctrl-C ends it and the runs that go on; their ticks are due
    again. The scheduler keeps nothing in memory that the output does not hold.
    """
    from longdoc.scheduling.scheduler import this_owner
    from longdoc.scheduling.service import Service, SystemClock, run_once
    from longdoc.scheduling.tick_run import TickRun

    found = read_schedule(file, datetime.now(UTC))
    if once is not None:
        ended = run_once(found.entry(once), owner=this_owner(), clock=SystemClock(), start=TickRun, say=_say)
        for line in ended.tail:
            click.echo(printable(line), err=True)
        ctx.exit(ended.run_exit_code)
    for remark in found.remarks:
        _say(f"remark: {remark}")
    service = Service.of(found, owner=this_owner(), clock=SystemClock(), start=TickRun, say=_say)
    if not service.entries:
        raise StartError(f"{printable(str(file))}: every entry is switched off, so there is nothing to serve.")
    _say(f"serving {_counted(len(service.entries))} of {file}")
    for line in _when(found):
        _say(line)
    service.serve()


@schedule.command(short_help="Show how each entry's last run ended, what runs, and what fails.")
@_FILE
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def status(ctx: click.Context, /, file: Path, *, as_json: bool) -> None:
    """Show of each entry of FILE: the last run, what runs where and since when, sources that fail, the next tick.

    Exits 4 where an entry's records cannot be read.
    """
    from longdoc.cli.schedule_status import look, status_json, status_lines

    now = datetime.now(UTC)
    found = [look(entry) for entry in read_schedule(file, now).entries]
    if as_json:
        click.echo(json.dumps([status_json(seen, now) for seen in found], indent=2))
    for seen in () if as_json else found:
        click.echo(_heading(seen.entry))
        for line in status_lines(seen, now):
            click.echo(f"  {printable(line)}")
    if any(seen.problem for seen in found):
        ctx.exit(InfrastructureError.exit_code)


def _heading(entry: Entry) -> str:
    off = "" if entry.enabled else ", switched off"
    return f"{entry.name}  {entry.cron.explained()}, {entry.cron.zone.key} ({entry.cron.expression}){off}"


def _when(found: Schedule) -> Iterator[str]:
    now = datetime.now(UTC)
    for entry in found.entries:
        tick = entry.cron.next_after(now) if entry.enabled else None
        yield f"{entry.name}: {'switched off' if tick is None else f'next tick {_utc(tick)}'}"


def _counted(count: int) -> str:
    return plural(count, "entry") if count == 1 else f"{count:,} entries"


def _local(tick: datetime, entry: Entry) -> str:
    return f"{tick.astimezone(entry.cron.zone):%a %Y-%m-%d %H:%M %Z}"


def _utc(tick: datetime) -> str:
    return f"{tick:%Y-%m-%dT%H:%M:%SZ}"


def _say(line: str) -> None:
    click.echo(f"{_utc(datetime.now(UTC))} {printable(line)}", err=True)
