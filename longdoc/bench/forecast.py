"""The benchmark of forecasts: what `longdoc plan` says of a document against what `longdoc run` then takes.

Both commands as a user calls them, in processes of their own. For each dtype and ring size one plan over all lengths,
which measures the machine first; then one run a length, each in a fresh Ray, so that no rank still holds what a
document before it has left. Held against each other are the peak memory of the largest rank and the `seconds` of the
document.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longdoc.bench.facts import machine_facts
from longdoc.bench.report import Column, Report, Table, Target
from longdoc.errors import InfrastructureError
from longdoc.model.sources import find_model
from longdoc.tokenization.vocabulary import Vocabulary

#: What a forecast may be off by, as a share of what was taken.
MEMORY_BOUND, SECONDS_BOUND = 0.15, 0.30
_COLUMNS = (
    Column(name="dtype"),
    Column(name="ranks"),
    Column(name="tokens", spec="{:,}"),
    Column(name="MB forecast", spec="{:,.0f}"),
    Column(name="MB taken", spec="{:,.0f}"),
    Column(name="MB off", spec="{:+.1%}"),
    Column(name="s forecast", spec="{:.1f}"),
    Column(name="s taken", spec="{:.1f}"),
    Column(name="s off", spec="{:+.1%}"),
)
_NOTE = "Seconds are those of the documents table: a ring's work on a document, without starting, reading and encoding."
_WORDS = ("the", "keeper", "counted", "steps", "of", "a", "tower", "and", "wrote", "each", "number", "beside", "it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """What was forecast of a document, or what it took: bytes of the rank that has most, and seconds."""

    num_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastCell:
    """One document on one ring."""

    dtype: str
    num_ranks: int
    num_tokens: int
    forecast: Numbers
    taken: Numbers

    @property
    def off_memory(self) -> float:
        """How far the forecast of memory is off, as a share of what was taken."""
        return self.forecast.num_bytes / self.taken.num_bytes - 1

    @property
    def off_seconds(self) -> float:
        """The same of seconds."""
        return self.forecast.seconds / self.taken.seconds - 1


def bench_forecast(
    *,
    model: str,
    token_counts: Sequence[int],
    ring_sizes: Sequence[int],
    dtypes: Sequence[str],
    report: Callable[[str], None],
) -> Report:
    """Plan and run every combination. Raises `InfrastructureError` where a command fails."""
    facts = {**machine_facts(), "model": model}
    vocabulary = Vocabulary.load(find_model(model).folder)
    cells: list[ForecastCell] = []
    with tempfile.TemporaryDirectory(prefix="longdoc-bench-") as folder:
        texts = {count: Path(folder) / f"{count}.txt" for count in token_counts}
        for count, path in texts.items():
            path.write_text(text_of(count, vocabulary))
        for dtype in dtypes:
            for num_ranks in ring_sizes:
                options = ["--model", model, "--dtype", dtype, "--ring-size", str(num_ranks), "--device", "cpu"]
                report(f"{dtype}, a ring of {num_ranks}: planning")
                planned = plan(list(texts.values()), options)
                for count, path in texts.items():
                    report(f"{dtype}, a ring of {num_ranks}: running {count:,} tokens")
                    taken = run(path, Path(folder) / f"{dtype}-{num_ranks}-{count}", options)
                    cells.append(
                        ForecastCell(
                            dtype=dtype, num_ranks=num_ranks, num_tokens=count, forecast=planned[path], taken=taken
                        )
                    )
    return report_of(cells, facts)


def text_of(num_tokens: int, vocabulary: Vocabulary) -> str:
    """English words that the vocabulary encodes as so many tokens, or a few fewer where a word is more than one."""

    def words(count: int) -> str:
        return " ".join(_WORDS[place % len(_WORDS)] for place in range(count))

    fewest, too_many = 0, num_tokens + 1
    while too_many - fewest > 1:
        middle = (fewest + too_many) // 2
        if len(vocabulary.encode(words(middle))) <= num_tokens:
            fewest = middle
        else:
            too_many = middle
    return words(fewest)


def plan(texts: list[Path], options: list[str]) -> dict[Path, Numbers]:
    """What `longdoc plan` forecasts for each text, the machine measured anew."""
    said = json.loads(_longdoc(["plan", *map(str, texts), *options, "--recalibrate", "--json"]))
    found = {}
    for path, document in zip(texts, said["documents"], strict=True):
        if document["problem"] or document["seconds"] is None:
            raise InfrastructureError(f"longdoc plan {path.name}: {document['problem'] or 'no seconds are forecast'}")
        found[path] = Numbers(num_bytes=document["bytes_per_rank"], seconds=document["seconds"])
    return found


def run(text: Path, output: Path, options: list[str]) -> Numbers:
    """What `longdoc run` takes for one text."""
    import pyarrow.parquet as pq

    _longdoc(["run", str(text), "-o", str(output), *options])
    documents, runs = (pq.read_table(output / table) for table in ("documents", "runs"))
    actual = json.loads(runs["actual"][0].as_py())
    return Numbers(num_bytes=max(actual["peak_rss_bytes"]), seconds=documents["seconds"][0].as_py())


def _longdoc(arguments: list[str]) -> str:
    """Standard output of a command that ends with 0."""
    done = subprocess.run([sys.executable, "-m", "longdoc", *arguments], capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines()[-3:]
        raise InfrastructureError(f"longdoc {arguments[0]} ended with {done.returncode}: {' '.join(lines)}")
    return done.stdout


def report_of(cells: Sequence[ForecastCell], facts: dict[str, Any]) -> Report:
    """The table, and two targets a cell."""
    rows = tuple(
        (
            cell.dtype,
            cell.num_ranks,
            cell.num_tokens,
            cell.forecast.num_bytes / 1e6,
            cell.taken.num_bytes / 1e6,
            cell.off_memory,
            cell.forecast.seconds,
            cell.taken.seconds,
            cell.off_seconds,
        )
        for cell in cells
    )
    targets = []
    for cell in cells:
        where = f"{cell.dtype}, {cell.num_ranks} rank{'s' if cell.num_ranks > 1 else ''}, {cell.num_tokens:,} tokens"
        for what, off, bound in (
            ("memory", cell.off_memory, MEMORY_BOUND),
            ("seconds", cell.off_seconds, SECONDS_BOUND),
        ):
            targets.append(
                Target(name=f"{what} off, {where}", value=abs(off), relation="at most", bound=bound, spec="{:.1%}")
            )
    table = Table(title="Forecast and taken", columns=_COLUMNS, rows=rows)
    return Report(bench="forecast", facts=facts, tables=(table,), targets=tuple(targets), notes=(_NOTE,))
