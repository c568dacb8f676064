"""`longdoc bench ingest`: how fast sources become tokens, beside tiktoken alone, gitingest and markitdown.

Owns the repositories that are made for it, the processes that are timed in turns, and the report. Each contestant is a
process of its own: `whole` is the time of the process, starting Python and importing included, `inside` that of the
work alone. Needs no Ray and no torch.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from longdoc.bench.facts import machine_facts
from longdoc.bench.ingest_contestant import GITINGEST, MARKITDOWN, VERSION
from longdoc.bench.report import Cell, Column, Report, Table, Target
from longdoc.bench.repositories import RepositorySize, make_repository
from longdoc.errors import InfrastructureError
from longdoc.machine import num_cores

MB = 1_000_000
#: The smallest share of all cores' tiktoken speed, and how much faster than markitdown a format is to be read.
SHARE_OF_CORES = 0.75
BOOK_SPEEDS = {".pdf": 5.0, ".epub": 2.0, ".htm": 2.0, ".html": 2.0}
KERNEL = RepositorySize(num_bytes=1000 * MB, num_files=80_000)

Say = Callable[[str], None]
_WATCH_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSettings:
    """What is measured. `peers` is the Python of an environment that has gitingest and markitdown, None for none."""

    model: str
    repeats: int = 3
    large: RepositorySize
    small: RepositorySize
    books: tuple[Path, ...] = ()
    peers: Path | None = None
    kernel: RepositorySize | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One run of one process: wall seconds of all of it, the largest memory it held, and what it printed."""

    whole: float
    peak_bytes: int | None
    told: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A process to time: its name, and its command line."""

    name: str
    command: tuple[str, ...]


def bench_ingest(settings: IngestSettings, *, report: Say) -> Report:
    """Make the repositories, run everything in turns, and compare medians. Raises `InfrastructureError`."""
    facts: dict[str, Cell] = machine_facts() | {"repeats": settings.repeats, "tokenizer of": settings.model}
    facts |= {name: _peer_version(settings.peers, name) for name in ("gitingest", "markitdown")}
    tables: list[Table] = []
    targets: list[Target] = []
    with tempfile.TemporaryDirectory(prefix="longdoc-bench-") as folder:
        for found, wanted in _parts(settings, Path(folder), report):
            tables.append(found)
            targets += wanted
    return Report(bench="ingest", facts=facts, tables=tuple(tables), targets=tuple(targets), notes=(_NOTE,))


_NOTE = (
    "`whole` is the wall time of a process, starting Python and importing included; `inside` that of its work alone. "
    "Every number is a median. MB are 10^6 bytes of source."
)


def _parts(settings: IngestSettings, folder: Path, report: Say) -> Iterator[tuple[Table, list[Target]]]:
    with _repository(folder / "large", settings.large, report) as large:
        yield _beside_tiktoken(large, settings, report)
    with _repository(folder / "small", settings.small, report) as small:
        yield _beside_gitingest(small, settings, report)
    if settings.books:
        yield _beside_markitdown(settings, report)
    if settings.kernel is not None:
        with _repository(folder / "kernel", settings.kernel, report) as kernel:
            yield _inspected(kernel, report), []


@contextmanager
def _repository(folder: Path, size: RepositorySize, report: Say) -> Iterator[Path]:
    report(f"making a repository of {size.num_bytes / MB:,.0f} MB")
    make_repository(folder, size)
    yield folder


def _beside_tiktoken(repository: Path, settings: IngestSettings, report: Say) -> tuple[Table, list[Target]]:
    cores = num_cores()
    contestants = (
        Contestant(name="tiktoken, 1 thread", command=_ours("tiktoken", str(repository), settings.model)),
        *(
            Contestant(
                name=f"longdoc, {_processes(number)}",
                command=_ours("ingest-warm", str(repository), settings.model, str(number)),
            )
            for number in sorted({1, cores})
        ),
    )
    timed = _in_turns(contestants, settings.repeats, report)
    alone = _speed(timed[contestants[0].name])
    rows = tuple(
        (
            each.name,
            *_inside_and_whole(timed[each.name]),
            _speed(timed[each.name]),
            _speed(timed[each.name]) / alone,
            timed[each.name][0].told["tokens"],
            _mebibytes(max(run.peak_bytes or 0 for run in timed[each.name])),
        )
        for each in contestants
    )
    share = _speed(timed[contestants[-1].name]) / (cores * alone)
    told = timed[contestants[-1].name][0].told
    title = f"A repository of {told['bytes'] / MB:.1f} MB in {told['segments']:,} segments, to tokens"
    name = f"ingest / ({cores} cores × one thread of tiktoken)"
    target = Target(name=name, value=share, relation="at least", bound=SHARE_OF_CORES)
    return Table(title=title, columns=_SPEEDS, rows=rows), [target]


def _beside_gitingest(repository: Path, settings: IngestSettings, report: Say) -> tuple[Table, list[Target]]:
    ours = Contestant(
        name=f"longdoc, {_processes(num_cores())}, to tokens",
        command=_ours("ingest", str(repository), settings.model, str(num_cores())),
    )
    contestants = [ours]
    if _peer_version(settings.peers, "gitingest") is not None:
        tree = repository.with_name("tree")
        subprocess.run(["git", "clone", "-q", str(repository), str(tree)], check=True)
        command = (str(settings.peers), "-c", GITINGEST, str(tree))
        contestants.append(Contestant(name="gitingest, read only", command=command))
    timed = _in_turns(contestants, settings.repeats, report)
    rows = tuple((each.name, *_inside_and_whole(timed[each.name])) for each in contestants)
    whole = [median(run.whole for run in timed[each.name]) for each in contestants]
    title = f"A repository of {timed[ours.name][0].told['bytes'] / MB:.1f} MB, start-up included"
    ratio = whole[0] / whole[1] if len(whole) > 1 else None
    name = "ingest to tokens / gitingest reading, whole processes"
    return Table(title=title, columns=_TIMES, rows=rows), [
        Target(name=name, value=ratio, relation="at most", bound=1.0)
    ]


def _beside_markitdown(settings: IngestSettings, report: Say) -> tuple[Table, list[Target]]:
    rows: list[tuple[Cell, ...]] = []
    targets: list[Target] = []
    has_peer = _peer_version(settings.peers, "markitdown") is not None
    for path in settings.books:
        contestants = [Contestant(name=f"longdoc {path.name}", command=_ours("book", str(path)))]
        if has_peer:
            command = (str(settings.peers), "-c", MARKITDOWN, str(path))
            contestants.append(Contestant(name=f"markitdown {path.name}", command=command))
        timed = _in_turns(contestants, settings.repeats, report)
        rows += [(each.name, *_inside_and_whole(timed[each.name])) for each in contestants]
        if bound := BOOK_SPEEDS.get(path.suffix.lower()):
            whole = [median(run.whole for run in timed[each.name]) for each in contestants]
            value = whole[1] / whole[0] if has_peer else None
            name = f"markitdown / longdoc on {path.name}, whole processes"
            targets.append(Target(name=name, value=value, relation="at least", bound=bound))
    return Table(title="Books", columns=_TIMES, rows=tuple(rows)), targets


def _inspected(repository: Path, report: Say) -> Table:
    rows = []
    for name, options in (("longdoc inspect", ()), ("longdoc inspect --json", ("--json",))):
        report(f"{name} of the large repository")
        timed = _run(
            Contestant(name=name, command=(sys.executable, "-m", "longdoc", "inspect", *options, str(repository)))
        )
        rows.append((name, timed.whole, _mebibytes(timed.peak_bytes)))
    columns = (Column(name="command"), Column(name="whole s", spec="{:.1f}"), Column(name="peak MiB", spec="{:.0f}"))
    return Table(title="A repository of 80,000 files and 1 GB", columns=columns, rows=tuple(rows))


_SPEEDS = (
    Column(name="contestant"),
    Column(name="inside s", spec="{:.2f}"),
    Column(name="whole s", spec="{:.2f}"),
    Column(name="MB/s", spec="{:.1f}"),
    Column(name="× tiktoken", spec="{:.2f}"),
    Column(name="tokens", spec="{:,}"),
    Column(name="peak MiB", spec="{:.0f}"),
)
_TIMES = (Column(name="contestant"), Column(name="inside s", spec="{:.2f}"), Column(name="whole s", spec="{:.2f}"))


def _mebibytes(num_bytes: int | None) -> float | None:
    return num_bytes / 2**20 if num_bytes else None


def _speed(runs: Sequence[Timed]) -> float:
    return float(runs[0].told["bytes"] / MB / median(run.told["seconds"] for run in runs))


def _inside_and_whole(runs: Sequence[Timed]) -> tuple[float, float]:
    return float(median(run.told["seconds"] for run in runs)), float(median(run.whole for run in runs))


def _processes(number: int) -> str:
    return f"{number} process{'es' if number > 1 else ''}"


def _ours(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "longdoc.bench.ingest_contestant", *arguments)


def _in_turns(contestants: Sequence[Contestant], repeats: int, report: Say) -> dict[str, list[Timed]]:
    timed: dict[str, list[Timed]] = {each.name: [] for each in contestants}
    for repeat in range(repeats):
        for each in contestants:
            run = _run(each)
            timed[each.name].append(run)
            report(f"{repeat + 1}/{repeats} {each.name}: {run.told['seconds']:.2f} s, in all {run.whole:.2f} s")
    return timed


def _run(contestant: Contestant) -> Timed:
    """Run a process to its end; what it prints last is JSON, or else nothing is told."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        started = time.perf_counter()
        process = subprocess.Popen(contestant.command, stdout=out, stderr=error, stdin=subprocess.DEVNULL)
        watch = _Watch(process.pid)
        watch.start()
        code = process.wait()
        whole = time.perf_counter() - started
        watch.end()
        if code:
            error.seek(0)
            said = error.read().decode("utf-8", errors="replace").strip().split("\n")[-1]
            raise InfrastructureError(f"{contestant.name} ended with code {code}: {said}")
        out.seek(max(0, out.seek(0, os.SEEK_END) - 4096))
        lines = out.read().decode("utf-8", errors="replace").strip().split("\n")
    told = json.loads(lines[-1]) if lines[-1].startswith("{") else {}
    return Timed(whole=whole, peak_bytes=watch.peak_bytes, told=told)


class _Watch(threading.Thread):
    """Reads now and then the most memory that a process has held so far; Linux only, elsewhere there is no number.

    Not `wait4`: the kernel counts there what the parent held when it forked.
    """

    def __init__(self, process_id: int) -> None:
        super().__init__(daemon=True)
        self.peak_bytes: int | None = None
        self._status = Path(f"/proc/{process_id}/status")
        self._has_ended = threading.Event()

    def run(self) -> None:
        while not self._has_ended.wait(_WATCH_SECONDS):
            with contextlib.suppress(OSError):
                found = re.search(rb"VmHWM:\s+(\d+) kB", self._status.read_bytes())
                self.peak_bytes = int(found[1]) * 1024 if found else self.peak_bytes

    def end(self) -> None:
        self._has_ended.set()
        self.join()


def _peer_version(python: Path | None, package: str) -> str | None:
    if python is None:
        return None
    done = subprocess.run([str(python), "-c", VERSION, package], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None
