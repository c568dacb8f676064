"""DuckDB, pandas, Polars and pyarrow read every table, as a folder and as a glob, with the same values."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from synthetic_output import IDENTITY, commit_document, make_document, make_output

from longdoc.errors import OutputError
from longdoc.store.columns import TABLES
from longdoc.store.commit import OutputStore
from longdoc.store.schemas import schema_of
from longdoc.store.views import create_views_sql, current_documents

ORDER = {
    "documents": ["doc_key"],
    "segments": ["doc_key", "segment_index"],
    "spans": ["doc_key", "span_index"],
    "tokens": ["doc_key", "position"],
    "quarantine": ["doc_id"],
    "runs": ["run_id"],
}


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readers")
    make_output(folder)
    return folder


def by_duckdb(output: Path, table: str) -> pa.Table:
    with duckdb.connect() as connection:
        return connection.sql(f"SELECT * FROM read_parquet('{output}/{table}/*/*.parquet')").to_arrow_table()


def by_pandas_folder(output: Path, table: str) -> pa.Table:
    return pa.Table.from_pandas(pd.read_parquet(output / table, dtype_backend="pyarrow"), preserve_index=False)


def by_polars_folder(output: Path, table: str) -> pa.Table:
    return pl.read_parquet(output / table).to_arrow()


def by_polars_glob(output: Path, table: str) -> pa.Table:
    return pl.read_parquet(f"{output}/{table}/**/*.parquet").to_arrow()


def by_pyarrow_folder(output: Path, table: str) -> pa.Table:
    return pq.read_table(output / table)


def by_pyarrow_dataset(output: Path, table: str) -> pa.Table:
    return pyarrow.dataset.dataset(output / table).to_table()


READERS = [by_duckdb, by_pandas_folder, by_polars_folder, by_polars_glob, by_pyarrow_folder, by_pyarrow_dataset]


def values(rows: pa.Table, table: str) -> list[dict[str, Any]]:
    names = schema_of(table, IDENTITY).names
    return rows.select(names).sort_by([(name, "ascending") for name in ORDER[table]]).to_pylist()


def as_written(output: Path, table: str) -> list[dict[str, Any]]:
    paths = sorted((output / table).glob("*/*.parquet"))
    return values(pa.concat_tables([pq.ParquetFile(path).read() for path in paths]), table)


@pytest.mark.parametrize("table", sorted(TABLES))
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_every_reader_reads_every_table(output: Path, table: str, reader: Callable[[Path, str], pa.Table]) -> None:
    found = values(reader(output, table), table)
    assert len(found) > 0
    assert found == as_written(output, table)


def test_what_is_read_is_what_was_meant(output: Path) -> None:
    document = make_document(1)
    tokens = [row for row in as_written(output, "tokens") if row["doc_key"] == document.doc_key]
    for row, wanted in zip(tokens, document.tables["tokens"], strict=True):
        assert {name: row[name] for name in wanted} == wanted
    (row,) = [row for row in as_written(output, "documents") if row["doc_key"] == document.doc_key]
    assert row["embedding"] == document.row["embedding"]
    assert row["authors"] == ["A", "B"]
    (second, third) = [row for row in as_written(output, "segments") if row["doc_key"] == document.doc_key][2:4]
    assert (second["path"], second["display_path"]) == (b"dir/0\xff", "dir/0\\xff")
    assert third["embedding"] is None


def test_the_current_documents_are_the_newest_of_each_source(tmp_path: Path) -> None:
    store = OutputStore.open(str(tmp_path), IDENTITY)
    for number, version in ((1, 0), (2, 0), (1, 1), (1, 2)):
        commit_document(store, make_document(number, version=version))
    wanted = {make_document(1, version=2).doc_key, make_document(2).doc_key}
    assert set(current_documents(str(tmp_path))["doc_key"].to_pylist()) == wanted
    with duckdb.connect() as connection:
        connection.execute(create_views_sql(str(tmp_path)))
        keys = connection.sql("SELECT doc_key FROM current").fetchall()
        assert {key for (key,) in keys} == wanted
        (tokens,) = connection.sql("SELECT count(*) FROM tokens SEMI JOIN current USING (doc_key)").fetchall()
        assert tokens == (92,)


def test_views_exist_only_for_tables_that_have_files(tmp_path: Path) -> None:
    OutputStore.open(str(tmp_path), IDENTITY)
    assert create_views_sql(str(tmp_path)) == ""
    assert current_documents(str(tmp_path)).num_rows == 0


@pytest.mark.parametrize("name", ["Alice's", "books [1]", "a*", "what?", "[!a", "{x}", "**", "a]b"])
def test_the_outputs_name_is_taken_as_it_is(tmp_path: Path, name: str) -> None:
    """Another output stands beside it that the name would match if it were a pattern."""
    for output, numbers in ((name, (1,)), ("books 1", (2, 3)), ("axy", (2, 3)), ("what!", (2, 3))):
        store = OutputStore.open(str(tmp_path / output), IDENTITY)
        for number in numbers:
            commit_document(store, make_document(number))
    with duckdb.connect() as connection:
        connection.execute(create_views_sql(str(tmp_path / name)))
        assert connection.sql("SELECT count(*) FROM documents").fetchall() == [(1,)]


def test_a_backslash_that_duckdb_cannot_read_is_refused(tmp_path: Path) -> None:
    store = OutputStore.open(str(tmp_path / "a\\b"), IDENTITY)
    commit_document(store, make_document(1))
    with pytest.raises(OutputError, match="has a backslash in its path"):
        create_views_sql(str(tmp_path / "a\\b"))
    assert current_documents(str(tmp_path / "a\\b")).num_rows == 1
