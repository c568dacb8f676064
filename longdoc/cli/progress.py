"""What a person sees of a run: a bar per document on a terminal, plain lines elsewhere, a table at the end.

Progress goes to standard error, so that standard output holds only the summary.
"""

import contextlib
import json
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click
from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table

from longdoc.cli.printing import plural, printable, printable_lines, short_name
from longdoc.records import DocumentRef
from longdoc.reporting import Fault, Progress, Reporter
from longdoc.runs.record import RunSummary
from longdoc.sizes import format_bytes

#: Seconds between two plain progress lines of one document.
PLAIN_SECONDS = 10.0


@contextlib.contextmanager
def make_reporter(console: Console | None = None) -> Iterator[Reporter]:
    """Bars where standard error is a terminal, plain lines where it is not."""
    console = console or Console(stderr=True, highlight=False, emoji=False)
    if not console.is_terminal:
        yield PlainReporter()
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        TextColumn("{task.fields[size]}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[place]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        yield LiveReporter(bars)


class PlainReporter:
    """Lines that make sense in a log file. Every event of a run is one line."""

    def __init__(self) -> None:
        self._last_line = 0.0

    def note(self, message: str) -> None:
        """A choice or a warning."""
        self._say(message)

    def planned(self, *, todo: Sequence[DocumentRef], num_committed: int, num_quarantined: int) -> None:
        """What is to do, and what earlier runs did."""
        self._say(plan_line(len(todo), num_committed, num_quarantined))

    def reading(self, ref: DocumentRef) -> None:
        """A document is awaited."""
        self._say(f"{short_name(ref.source_uri)}: reading {format_bytes(ref.num_bytes_source)}")

    def started(self, ref: DocumentRef, *, num_tokens: int) -> None:
        """The ring starts."""
        self._last_line = time.monotonic()
        self._say(f"{short_name(ref.source_uri)}: {num_tokens:,} tokens, computing")

    def progressed(self, ref: DocumentRef, progress: Progress) -> None:
        """A line every ten seconds."""
        if time.monotonic() - self._last_line >= PLAIN_SECONDS:
            self._last_line = time.monotonic()
            self._say(f"{short_name(ref.source_uri)}: {progress.fraction:.0%}, {place_of(progress)}")

    def committed(self, ref: DocumentRef, *, num_tokens: int, seconds: float) -> None:
        """A document is done."""
        self._say(f"{short_name(ref.source_uri)}: committed, {num_tokens:,} tokens in {seconds:.1f} s")

    def overtaken(self, ref: DocumentRef) -> None:
        """Another run was first."""
        self._say(f"{short_name(ref.source_uri)}: another run committed it first; this attempt is discarded")

    def quarantined(self, source_uri: str, fault: Fault) -> None:
        """A document is set aside."""
        self._say(quarantine_line(source_uri, fault))

    def _say(self, line: str) -> None:
        # Nobody reads any more: the run goes on, and its exit code says how it ended.
        with contextlib.suppress(BrokenPipeError):
            print(printable_lines(line), file=sys.stderr, flush=True)  # noqa: T201


class LiveReporter(PlainReporter):
    """One bar for the document at hand; everything else is a line above it."""

    def __init__(self, bars: Bars) -> None:
        super().__init__()
        self._bars = bars
        self._task: TaskID | None = None

    def reading(self, ref: DocumentRef) -> None:
        """A bar that pulses until the tokens are counted."""
        self._start(ref, None, "reading", format_bytes(ref.num_bytes_source))

    def started(self, ref: DocumentRef, *, num_tokens: int) -> None:
        """The bar of the document."""
        self._start(ref, 1.0, "starting", f"{num_tokens:,} tokens")

    def progressed(self, ref: DocumentRef, progress: Progress) -> None:
        """Move the bar."""
        if self._task is not None:
            self._bars.update(self._task, completed=progress.fraction, place=place_of(progress))

    def committed(self, ref: DocumentRef, *, num_tokens: int, seconds: float) -> None:
        """Replace the bar by a line."""
        self._stop()
        super().committed(ref, num_tokens=num_tokens, seconds=seconds)

    def overtaken(self, ref: DocumentRef) -> None:
        """Replace the bar by a line."""
        self._stop()
        super().overtaken(ref)

    def quarantined(self, source_uri: str, fault: Fault) -> None:
        """Replace the bar by a line."""
        self._stop()
        super().quarantined(source_uri, fault)

    def _start(self, ref: DocumentRef, total: float | None, place: str, size: str) -> None:
        self._stop()
        self._task = self._bars.add_task(short_name(ref.source_uri), total=total, place=place, size=size)

    def _stop(self) -> None:
        if self._task is not None:
            self._bars.remove_task(self._task)
            self._task = None

    def _say(self, line: str) -> None:
        self._bars.console.print(printable_lines(line), soft_wrap=True, highlight=False, markup=False, emoji=False)


def plan_line(num_todo: int, num_committed: int, num_quarantined: int) -> str:
    """The plan in a line; says so when there is nothing to do."""
    before = [f"{num_committed} already committed"] if num_committed else []
    if num_quarantined:
        before.append(f"{num_quarantined} in quarantine (--retry-quarantine tries again)")
    if num_todo == 0:
        return "Nothing to do: " + (", ".join(before) if before else "no document can be read") + "."
    return f"{plural(num_todo, 'document')} to do" + "".join(f", {part}" for part in before)


def quarantine_line(source_uri: str, fault: Fault) -> str:
    """Why a document was set aside."""
    needs = f" (needs {fault.needs})" if fault.needs else ""
    return f"{source_uri}: quarantined at {fault.stage}, {fault.reason}: {fault.error}{needs}"


def place_of(progress: Progress) -> str:
    """Where the ring is."""
    return (
        f"layer {min(progress.layer + 1, progress.num_layers)}/{progress.num_layers} "
        f"hop {min(progress.hop + 1, progress.num_hops)}/{progress.num_hops}"
    )


def print_summary(summary: RunSummary, output: str, *, as_json: bool) -> None:
    """The end of a run, for people or for machines."""
    if as_json:
        click.echo(json.dumps(asdict(summary) | {"output": output, "exit_code": summary.exit_code}, indent=2))
        return
    table = Table("", "documents", title=f"Run {summary.run_id}", title_justify="left", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    table.add_row("planned", str(summary.num_planned))
    table.add_row("committed before", str(summary.num_committed_before))
    table.add_row("committed now", str(summary.num_committed))
    if summary.num_committed_by_others:
        table.add_row("committed by another run", str(summary.num_committed_by_others))
    table.add_row("quarantined", str(summary.num_quarantined))
    console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    console.print(table)
    speed = summary.num_tokens / summary.seconds if summary.seconds else 0.0
    console.print(f"{summary.num_tokens:,} tokens in {summary.seconds:.1f} s, {speed:,.0f} tokens/s, start-up included")
    if summary.peak_rss_bytes:
        console.print(f"peak memory of a rank {format_bytes(max(summary.peak_rss_bytes))}")
    console.print(printable(f"tables in {output}; check them with: longdoc verify {shlex.quote(output)}"))
