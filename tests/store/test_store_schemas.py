"""The schemas: types that every reader knows, and a page that is made from them."""

from pathlib import Path

import pyarrow as pa
import pytest
from synthetic_output import IDENTITY

from longdoc.store.columns import TABLES
from longdoc.store.schemas import OutputIdentity, document_tables, schema_of

PLAIN = OutputIdentity(model="m", model_digest="d", tokenizer_sha256="t", outputs=("logprobs",), embedding_size=0)


def test_the_page_of_tables_is_current() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "tables.md"
    assert page.read_text() == document_tables(), "run: python -m longdoc.store.schemas > docs/tables.md"


@pytest.mark.parametrize("table", sorted(TABLES))
def test_every_column_has_a_type_that_readers_share(table: str) -> None:
    for field in schema_of(table, IDENTITY):
        assert not pa.types.is_float16(field.type)
        assert not pa.types.is_unsigned_integer(field.type)
        if pa.types.is_timestamp(field.type):
            assert (field.type.unit, field.type.tz) == ("us", "UTC")
        if pa.types.is_fixed_size_list(field.type):
            assert not field.nullable
            assert field.type.list_size == IDENTITY.embedding_size


def test_every_row_says_whose_it_is() -> None:
    for table in ("documents", "segments", "spans", "tokens"):
        schema = schema_of(table, IDENTITY)
        assert schema.names[:3] == ["doc_id", "doc_key", "attempt_id"]
        assert not any(schema.field(place).nullable for place in range(3))


def test_without_embeddings_their_columns_are_absent() -> None:
    for table in ("documents", "segments", "spans"):
        assert "embedding" in schema_of(table, IDENTITY).names
        assert "embedding" not in schema_of(table, PLAIN).names
        assert set(schema_of(table, IDENTITY).names) - set(schema_of(table, PLAIN).names) == {"embedding"}


def test_every_column_is_explained() -> None:
    for columns in TABLES.values():
        assert all(column.doc.endswith(".") for column in columns)
        assert len({column.name for column in columns}) == len(columns)
