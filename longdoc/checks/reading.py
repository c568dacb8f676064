"""Reading the rows of one document's parts in bounded memory: row group by row group, or in order of an index.

Ranks write their own parts, so one document's rows lie interleaved over files. They are put in order a window of rows
at a time; no more than one window and one row group is held.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from longdoc.checks.findings import Findings

WINDOW_ROWS = 262_144
IDENTITY_COLUMNS = ("doc_id", "doc_key", "attempt_id")
#: Takes a row group and says what is wrong with it, or None.
Check = Callable[[pa.Table], "str | None"]


class NotInOrderError(Exception):
    """The index of the rows is not 0, 1, 2 …; the message says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """Where some rows lie: the row group of a file, and the smallest and largest index in it."""

    path: Path
    number: int
    num_rows: int
    first: int
    last: int


def scan(
    findings: Findings,
    table: str,
    paths: Iterable[Path],
    row: Mapping[str, Any],
    *,
    index: str,
    columns: Sequence[str] = (),
    check: Check = lambda rows: None,
) -> list[RowGroup] | None:
    """Look at every row group once: do its rows belong to the document, is it sorted, does it pass `check`.

    `columns` are what `check` looks at. Returns the row groups, or None where a file could not be read.
    """
    groups: list[RowGroup] = []
    for path in paths:
        problems: dict[str, None] = {}
        last, is_read = -1, False
        with findings.reading(table, path):
            for number, rows in enumerate(_row_groups(path, [*IDENTITY_COLUMNS, index, *columns])):
                keys = to_numpy(rows, index)
                problems |= dict.fromkeys(_problems(rows, row, np.concatenate([[last], keys]), index, check))
                last = int(keys.max())
                group = RowGroup(path=path, number=number, num_rows=len(keys), first=int(keys.min()), last=last)
                groups.append(group)
            is_read = True
        for problem in problems:
            findings.fault(table, path, problem)
        if not is_read:
            return None
    return groups


def in_order(groups: Sequence[RowGroup], *, index: str, columns: Sequence[str], window: int) -> Iterator[pa.Table]:
    """The rows of all groups in order of their index, `window` rows at a time.

    Raises `NotInOrderError` unless the index is 0, 1, 2 … without gaps and doubles.
    """
    total = sum(group.num_rows for group in groups)
    for start in range(0, total, window):
        stop = min(start + window, total)
        pieces = [
            _between(_read_group(group, [index, *columns]), index, start, stop)
            for group in groups
            if group.first < stop and group.last >= start
        ]
        keys = np.concatenate([to_numpy(piece, index) for piece in pieces]) if pieces else np.empty(0, np.int64)
        order = np.argsort(keys, kind="stable")
        _check_consecutive(keys[order], start, stop, index)
        yield pa.concat_tables(pieces).take(pa.array(order))


def to_numpy(rows: pa.Table, column: str) -> npt.NDArray[Any]:
    """A column of numbers; null becomes NaN in floats."""
    values: npt.NDArray[Any] = rows[column].to_numpy()
    return values


def are_lists_finite(rows: pa.Table, column: str) -> bool:
    """Whether every number in a column of lists is finite."""
    return bool(np.isfinite(pc.list_flatten(rows[column]).to_numpy()).all())


def _problems(
    rows: pa.Table, row: Mapping[str, Any], keys: npt.NDArray[Any], index: str, check: Check
) -> Iterator[str]:
    for name in IDENTITY_COLUMNS:
        if not pc.all(pc.equal(rows[name], row[name])).as_py():
            others = [value for value in pc.unique(rows[name]).to_pylist() if value != row[name]]
            yield f"has rows of {name} {others[0]}, not {row[name]}"
    if (np.diff(keys) <= 0).any():
        place = int(np.argmax(np.diff(keys) <= 0))
        yield f"is not sorted by {index}: {keys[place + 1]} comes after {keys[place]}"
    if problem := check(rows):
        yield problem


def _check_consecutive(keys: npt.NDArray[Any], start: int, stop: int, index: str) -> None:
    doubled = keys[1:][keys[1:] == keys[:-1]]
    if len(doubled):
        raise NotInOrderError(f"{index} {doubled[0]} is there twice")
    missing = np.setdiff1d(np.arange(start, stop), keys, assume_unique=True)
    if len(missing):
        raise NotInOrderError(f"{index} {missing[0]} is missing")


def _row_groups(path: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        for number in range(file.num_row_groups):
            if file.metadata.row_group(number).num_rows:
                yield file.read_row_group(number, columns=list(columns))


def _read_group(group: RowGroup, columns: Sequence[str]) -> pa.Table:
    with pq.ParquetFile(group.path) as file:
        return file.read_row_group(group.number, columns=list(columns))


def _between(rows: pa.Table, index: str, start: int, stop: int) -> pa.Table:
    keys = to_numpy(rows, index)
    return rows.filter(pa.array((keys >= start) & (keys < stop)))
