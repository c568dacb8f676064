"""The tables of an output as a reader wants them: SQL views for DuckDB, and the current documents.

Owns what *current* means: the version of each source that was committed last. A source that returns to an earlier
version commits nothing, so it does not change what is current.
"""

import re

import pyarrow as pa
import pyarrow.dataset as ds

from longdoc.errors import OutputError
from longdoc.store.columns import TABLES
from longdoc.store.output import read_output
from longdoc.store.schemas import schema_of

# In brackets a character of a glob stands for itself (https://duckdb.org/docs/stable/data/multiple_files/overview).
_GLOB = re.compile(r"[*?\[]")
_CURRENT = """CREATE OR REPLACE VIEW current AS
SELECT * FROM documents
QUALIFY row_number() OVER (PARTITION BY doc_id ORDER BY committed_at DESC, doc_key) = 1;
"""


def create_views_sql(output: str) -> str:
    """SQL for DuckDB: a view of each table that has files, and `current`. Raises `OutputError`."""
    places, _ = read_output(output)
    folder = _as_glob(str(places.root))
    statements = []
    for table in TABLES:
        if any((places.root / table).glob("*/*.parquet")):
            pattern = f"{folder}/{table}/*/*.parquet".replace("'", "''")
            source = f"read_parquet('{pattern}', hive_partitioning = false)"
            statements.append(f"CREATE OR REPLACE VIEW {table} AS FROM {source};\n")
    if any((places.root / "documents").glob("*/*.parquet")):
        statements.append(_CURRENT)
    return "".join(statements)


def _as_glob(folder: str) -> str:
    if "\\" in folder:
        raise OutputError(f"{folder} has a backslash in its path, where DuckDB sees a separator; rename the folder.")
    return _GLOB.sub(r"[\g<0>]", folder)


def current_documents(output: str) -> pa.Table:
    """The documents rows of the newest version of each source. Raises `OutputError`."""
    places, identity = read_output(output)
    schema = schema_of("documents", identity)
    files = [str(path) for path in sorted((places.root / "documents").glob("*/*.parquet"))]
    rows = ds.dataset(files, schema=schema, format="parquet").to_table() if files else schema.empty_table()
    rows = rows.sort_by([("committed_at", "descending"), ("doc_key", "ascending")])
    doc_ids = rows["doc_id"].to_pylist()
    newest = {doc_id: place for place, doc_id in reversed(list(enumerate(doc_ids)))}
    return rows.take(pa.array(sorted(newest.values()), pa.int64()))
