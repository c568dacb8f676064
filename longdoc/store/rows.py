"""Rows that are written one at a time (documents, quarantine, runs): dictionaries to a small Parquet file and back.

Columns are those of the schema, nothing else: an unknown name, a missing value that may not be null or a value of
another type is a `ValueError` for the caller, never a guess.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from longdoc.store.columns import TABLES
from longdoc.store.parts import open_writer
from longdoc.store.schemas import OutputIdentity, footer_metadata, schema_of

JSON_COLUMNS = frozenset({"configuration", "versions", "host", "forecast", "actual"})
DAMAGED = (OSError, ValueError, MemoryError, OverflowError, pa.ArrowException)


def rows_table(table: str, identity: OutputIdentity, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as an Arrow table of a table's schema. Columns that may be null may be left out."""
    schema = schema_of(table, identity)
    # A column that this output does not have (no embeddings) may be named, with nothing in it.
    absent = {column.name for column in TABLES[table]} - set(schema.names)
    for row in rows:
        if unknown := sorted(
            name for name in set(row) - set(schema.names) if name not in absent or row[name] is not None
        ):
            raise ValueError(f"a {table} row has no column {', '.join(unknown)}")
        missing = [field.name for field in schema if not field.nullable and row.get(field.name) is None]
        if missing:
            raise ValueError(f"a {table} row lacks {', '.join(missing)}")
    arrays = [_array(table, schema.field(name), [_value(name, row.get(name)) for row in rows]) for name in schema.names]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(table: str, field: pa.Field, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except UnicodeEncodeError as error:
        raise ValueError(f"{field.name} of a {table} row holds {error.object!r}, which is not Unicode text") from error
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise ValueError(f"a {table} row has a value of another type in {field.name}: {error}") from error


def rows_file(table: str, identity: OutputIdentity, rows: Sequence[Mapping[str, Any]], *, run_id: str) -> bytes:
    """The bytes of a Parquet file that holds these rows."""
    sink = pa.BufferOutputStream()
    metadata = footer_metadata(identity, run_id)
    with open_writer(sink, table=table, identity=identity, metadata=metadata) as writer:
        writer.write_table(rows_table(table, identity, rows))
    content: bytes = sink.getvalue().to_pybytes()
    return content


def read_table(
    source: Path | bytes, table: str, identity: OutputIdentity, columns: Iterable[str] | None = None
) -> pa.Table:
    """The rows of one small Parquet file of a table. Raises one of `DAMAGED` where it is damaged or another table's."""
    names = None if columns is None else list(columns)
    opened = pa.BufferReader(source) if isinstance(source, bytes) else source
    with pq.ParquetFile(opened, page_checksum_verification=True) as file:
        if not file.schema_arrow.equals(schema_of(table, identity)):
            raise ValueError(f"it does not have the schema of {table}")
        rows = file.read(columns=names)
    rows.validate(full=True)
    return rows


def read_rows(
    source: Path | bytes, table: str, identity: OutputIdentity, columns: Iterable[str] | None = None
) -> list[dict[str, Any]]:
    """The same as dictionaries."""
    found: list[dict[str, Any]] = read_table(source, table, identity, columns).to_pylist()
    return found


def _value(name: str, value: Any) -> Any:
    if name in JSON_COLUMNS and isinstance(value, Mapping):
        return json.dumps(value, sort_keys=True, default=str)
    return value
