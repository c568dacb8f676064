"""What segments and spans have in common: rows in order, each starting where the one before it stopped."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longdoc.checks.findings import Findings
from longdoc.checks.reading import WINDOW_ROWS, NotInOrderError, RowGroup, in_order, to_numpy


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """A document's segments or spans in order: the numbers, one array a column, and `words`, a column of text each."""

    columns: dict[str, npt.NDArray[Any]]
    words: pa.Table

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.columns[name]


def tiles_of(
    findings: Findings,
    table: str,
    row: dict[str, Any],
    groups: list[RowGroup] | None,
    *,
    index: str,
    numbers: Sequence[str],
    words: Sequence[str] = (),
) -> Tiles | None:
    """The columns `numbers` and `words` of a document's rows; None, and a fault, where they cannot be put in order."""
    if groups is None:
        return None
    key, windows, texts = str(row["doc_key"]), list[dict[str, npt.NDArray[Any]]](), list[pa.Table]()
    with findings.reading(table, key):
        try:
            for rows in in_order(groups, index=index, columns=[*numbers, *words], window=WINDOW_ROWS):
                windows.append({name: to_numpy(rows, name) for name in numbers})
                texts.append(rows.select(list(words)))
        except NotInOrderError as error:
            findings.fault(table, key, str(error))
            return None
        if windows:
            columns = {name: np.concatenate([window[name] for window in windows]) for name in numbers}
            return Tiles(columns=columns, words=pa.concat_tables(texts))
        findings.fault(table, key, f"has no {table}")
    return None


def check_tiling(findings: Findings, table: str, key: str, tiles: Tiles, what: str, total: int | None) -> bool:
    """Each tile starts where the one before stopped, the first at 0, the last stops at `total` (None: not known)."""
    starts, stops = tiles[f"{what}_start"], tiles[f"{what}_stop"]
    wanted = np.concatenate([[0], stops[:-1]])
    is_wrong = (starts != wanted) | (stops < starts)
    if is_wrong.any():
        place = int(np.argmax(is_wrong))
        tile = f"{what} {starts[place]} to {stops[place]}"
        findings.fault(table, key, f"{table[:-1]} {place} holds {tile}, the one before it ended at {wanted[place]}")
        return False
    if total is not None and stops[-1] != total:
        findings.fault(table, key, f"the last of {table} ends at {what} {stops[-1]}, the document at {total}")
        return False
    return True
