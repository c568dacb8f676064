"""Single rows of large tables: only the row groups that can hold them are read, told by the statistics in the footers.

Owns that choice. The files of a document's ranks lie interleaved, so every file of it is asked. Knows no meaning of any
column.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from longdoc.errors import OutputError
from longdoc.store.rows import DAMAGED


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """One row group of one file, and the least and the greatest value of a column in it."""

    path: Path
    number: int
    least: int
    greatest: int


def row_groups(paths: Iterable[Path], column: str) -> Iterator[RowGroup]:
    """Every row group that has rows. Without statistics a group may hold anything. Raises `OutputError`."""
    for path in paths:
        try:
            with pq.ParquetFile(path) as file:
                place = file.schema_arrow.get_field_index(column)
                for number in range(file.metadata.num_row_groups):
                    group = file.metadata.row_group(number)
                    # Columns are numbered by their leaves; lists come last in no table, so the name is looked for.
                    leaf = _leaf(group, column, place)
                    if group.num_rows:
                        yield _row_group(path, number, leaf.statistics)
        except DAMAGED as error:
            raise damaged(path, error) from error


def rows_between(paths: Iterable[Path], column: str, start: int, stop: int, columns: Sequence[str]) -> pa.Table:
    """The rows whose `column` is in [start, stop), in order of it. Raises `OutputError`."""
    groups = [group for group in row_groups(paths, column) if group.least < stop and group.greatest >= start]
    pieces = [read_group(group, [column, *columns]) for group in groups]
    if not pieces:
        return pa.table({})
    rows = pa.concat_tables(pieces)
    keys = rows[column].to_numpy()
    return rows.filter(pa.array((keys >= start) & (keys < stop))).sort_by(column)


def read_group(group: RowGroup, columns: Sequence[str]) -> pa.Table:
    """Some columns of a row group. Raises `OutputError`."""
    try:
        with pq.ParquetFile(group.path, page_checksum_verification=True) as file:
            return file.read_row_group(group.number, columns=list(dict.fromkeys(columns)))
    except DAMAGED as error:
        raise damaged(group.path, error) from error


def damaged(path: Path, error: object) -> OutputError:
    """What is said of a file that cannot be read, or does not hold what it must."""
    return OutputError(f"{path} cannot be read: {error}. Run `longdoc verify` on the output.")


def _leaf(group: Any, column: str, place: int) -> Any:
    for index in range(max(place, 0), group.num_columns):
        leaf = group.column(index)
        if leaf.path_in_schema == column:
            return leaf
    raise ValueError(f"it has no column {column}")


def _row_group(path: Path, number: int, statistics: Any) -> RowGroup:
    if statistics is None or not statistics.has_min_max:
        return RowGroup(path=path, number=number, least=-(1 << 62), greatest=1 << 62)
    return RowGroup(path=path, number=number, least=int(statistics.min), greatest=int(statistics.max))
