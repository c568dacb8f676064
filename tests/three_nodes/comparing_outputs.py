"""Whether two outputs hold the same rows: all tables and columns, but for times and names of attempts and runs."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

#: What differs between two runs of the same work, by design.
ATTEMPTS = {"attempt_id", "run_id", "parts"}
TIMES = {"seconds", "tokens_per_second", "committed_at", "first_at", "last_at", "started_at", "finished_at"}
#: Columns of the runs table that tell of a machine and of what was measured there.
MACHINES = {"host", "forecast", "actual", "configuration"}
#: Of a run's configuration: where it ran and wrote.
PLACES = {"output", "address", "device"}
#: Floats may differ in their last bits where threads divide the work otherwise.
TOLERANCE = 1e-5
#: The rank of a token counts the tokens that are likelier: where two are as good as equal, last bits decide.
MOST_RANKS_APART, MOST_SHARE_APART = 2, 0.01

ORDER = {
    "documents": ["doc_key"],
    "segments": ["doc_key", "segment_index"],
    "spans": ["doc_key", "span_index"],
    "tokens": ["doc_key", "position"],
    "quarantine": ["source_uri"],
}


def table_of(output: Path, table: str) -> pa.Table | None:
    """All rows of a table, in an order of their own; None where it holds no file."""
    files = sorted(str(path) for path in (output / table).glob("*/*.parquet"))
    if not files:
        return None
    rows = ds.dataset(files, format="parquet").to_table()
    return rows.sort_by([(name, "ascending") for name in ORDER[table]]) if table in ORDER else rows


def assert_same_rows(output: Path, expected: Path) -> None:
    """Raise `AssertionError` naming the first table and column that differ."""
    for table in ORDER:
        ours, theirs = table_of(output, table), table_of(expected, table)
        assert (ours is None) == (theirs is None), table
        if ours is not None:
            _assert_same_table(table, ours, theirs)
    assert _configuration(output) == _configuration(expected)


def _assert_same_table(table: str, ours: pa.Table, theirs: pa.Table) -> None:
    assert ours.schema.remove_metadata() == theirs.schema.remove_metadata(), table
    assert ours.num_rows == theirs.num_rows, table
    compared = [name for name in ours.column_names if name not in ATTEMPTS | TIMES]
    assert len(compared) >= 4, table
    for name in compared:
        if _holds_floats(ours.schema.field(name).type):
            _assert_close(f"{table}.{name}", ours[name], theirs[name])
        elif name == "rank_in_vocabulary":
            _assert_ranks(ours[name], theirs[name])
        else:
            assert ours[name].equals(theirs[name]), f"{table}.{name}"


def _holds_floats(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return pa.types.is_floating(kind)


def _assert_close(name: str, ours: pa.ChunkedArray, theirs: pa.ChunkedArray) -> None:
    assert ours.is_null().equals(theirs.is_null()), name
    ours_N, theirs_N = _flat(ours), _flat(theirs)
    assert ours_N.shape == theirs_N.shape, name
    worst = float(np.max(np.abs(ours_N - theirs_N), initial=0.0))
    assert worst <= TOLERANCE * max(1.0, float(np.max(np.abs(theirs_N), initial=0.0))), (name, worst)


def _assert_ranks(ours: pa.ChunkedArray, theirs: pa.ChunkedArray) -> None:
    assert ours.is_null().equals(theirs.is_null())
    apart_N = np.abs(_flat(ours) - _flat(theirs))
    assert np.max(apart_N, initial=0.0) <= MOST_RANKS_APART
    assert np.count_nonzero(apart_N) <= MOST_SHARE_APART * apart_N.size


def _flat(column: pa.ChunkedArray) -> np.ndarray:
    array = column.drop_null().combine_chunks()
    if pa.types.is_list(array.type) or pa.types.is_fixed_size_list(array.type):
        array = array.flatten()
    return array.to_numpy(zero_copy_only=False).astype(np.float64)


def _configuration(output: Path) -> dict[str, object]:
    """What the last run was told, without where."""
    rows = ds.dataset([str(path) for path in (output / "runs").glob("*/*.parquet")], format="parquet").to_table()
    last = rows.sort_by("started_at").slice(rows.num_rows - 1)
    told = json.loads(last["configuration"][0].as_py())
    return {name: value for name, value in told.items() if name not in PLACES}
