"""One explicit Arrow schema per table, and the identity that all files of one output share.

Nothing is ever inferred from rows. An output holds one schema version, one model and one set of outputs, because
embeddings of two models do not compare and have no common width. `python -m longdoc.store.schemas` prints the page
docs/tables.md.
"""

import re
import sys
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from longdoc.store.columns import EMBEDDING, EMBEDDING_LIST, TABLE_DOCS, TABLES, Column

SCHEMA_VERSION = 3
OUTPUTS = ("embeddings", "logprobs")
METADATA_PREFIX = "longdoc."
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputIdentity:
    """What one output holds. `outputs` is sorted; `embedding_size` is 0 without embeddings.

    Raises `ValueError` for a set of outputs that does not exist or a width that does not fit it.
    """

    schema_version: int = SCHEMA_VERSION
    model: str
    model_digest: str
    tokenizer_sha256: str
    outputs: tuple[str, ...]
    embedding_size: int

    def __post_init__(self) -> None:
        if list(self.outputs) != sorted(set(self.outputs) & set(OUTPUTS)):
            raise ValueError(f"outputs {self.outputs!r} are not a sorted subset of {OUTPUTS}")
        if (self.embedding_size > 0) != ("embeddings" in self.outputs):
            raise ValueError(f"embedding_size {self.embedding_size} does not fit outputs {self.outputs!r}")

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self) | {"outputs": list(self.outputs)}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "OutputIdentity":
        """The identity from `to_json`. Raises `KeyError`, `TypeError` or `ValueError` where the fields are not one."""
        texts = {name: str(fields[name]) for name in ("model", "model_digest", "tokenizer_sha256")}
        numbers = {name: int(fields[name]) for name in ("schema_version", "embedding_size")}
        return cls(outputs=tuple(fields["outputs"]), **texts, **numbers)  # type: ignore[arg-type]  # names are checked


def schema_of(table: str, identity: OutputIdentity) -> pa.Schema:
    """The Arrow schema of a table, without metadata. Without embeddings their columns are absent."""
    columns = (column for column in TABLES[table] if _exists(column, identity))
    return pa.schema(
        [pa.field(column.name, _arrow_type(column, identity), nullable=column.nullable) for column in columns]
    )


def footer_metadata(identity: OutputIdentity, run_id: str) -> dict[str, str]:
    """The key-value pairs that stand in the footer of every file."""
    return {
        f"{METADATA_PREFIX}schema_version": str(identity.schema_version),
        f"{METADATA_PREFIX}model": identity.model,
        f"{METADATA_PREFIX}model_digest": identity.model_digest,
        f"{METADATA_PREFIX}tokenizer_sha256": identity.tokenizer_sha256,
        f"{METADATA_PREFIX}run_id": run_id,
    }


def is_sha256(text: Any) -> bool:
    """Whether a value is a SHA-256 in lower-case hexadecimal."""
    return isinstance(text, str) and _SHA256.fullmatch(text) is not None


def _exists(column: Column, identity: OutputIdentity) -> bool:
    return identity.embedding_size > 0 or column.arrow not in (EMBEDDING, EMBEDDING_LIST)


def _arrow_type(column: Column, identity: OutputIdentity) -> Any:
    element = pa.field("element", pa.float32(), nullable=False)
    if column.arrow == EMBEDDING:
        return pa.list_(element, identity.embedding_size)
    if column.arrow == EMBEDDING_LIST:
        # DuckDB cannot read NULL in a fixed-size list (duckdb#24731), so where nulls are needed the size is free.
        return pa.list_(element)
    return column.arrow


def document_tables() -> str:
    """The page docs/tables.md, in Markdown."""
    lines = [
        "# Tables",
        "",
        f"Schema version {SCHEMA_VERSION}. Made by `python -m longdoc.store.schemas > docs/tables.md`; do not edit.",
        "",
        "Files are `<table>/bucket=<2 hex>/<unit>-p<nnn>.parquet` below the output. Offsets are half-open. `d` is the",
        "model's embedding width; the `embedding` columns are absent from an output without embeddings.",
    ]
    for table, columns in TABLES.items():
        lines += [
            "",
            f"## {table}",
            "",
            TABLE_DOCS[table],
            "",
            "| column | type | null | meaning |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {column.name} | `{_type_name(column)}` | {'yes' if column.nullable else 'no'} | {column.doc} |"
            for column in columns
        ]
    return "\n".join(lines) + "\n"


def _type_name(column: Column) -> str:
    if column.arrow == EMBEDDING:
        return "fixed_size_list<float>[d]"
    if column.arrow == EMBEDDING_LIST:
        return "list<float>"
    return str(column.arrow).replace("element: ", "").replace(" not null", "")


if __name__ == "__main__":
    sys.stdout.write(document_tables())
