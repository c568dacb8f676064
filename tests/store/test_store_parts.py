"""Parts: what lies in the file, and that nothing unfinished ever gets a part's name."""

import errno
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_output import IDENTITY, arrow_rows, make_document

import longdoc.files
import longdoc.store.parts
from longdoc.errors import InfrastructureError
from longdoc.store.parts import PartWriter, bounded, parse_part_path, part_path
from longdoc.store.schemas import schema_of

UNIT = "ab" * 32
IDS = {"doc_id": "d", "doc_key": UNIT, "attempt_id": "a"}


def writer(folder: Path, table: str = "tokens", number: int = 0) -> PartWriter:
    return PartWriter(folder, table=table, unit=UNIT, number=number, identity=IDENTITY, metadata={"run_id": "r"})


def token_rows(start: int, stop: int) -> pa.Table:
    schema = schema_of("tokens", IDENTITY)
    numbers = np.arange(start, stop)
    columns = {name: [value] * len(numbers) for name, value in IDS.items()} | {
        "position": numbers,
        "token_id": numbers % 977,
        "text_byte_start": numbers * 4,
        "segment_index": numbers // 1000,
        "logprob": -(numbers % 50) / 16,
        "entropy": (numbers % 7) / 8,
        "rank_in_vocabulary": 1 + numbers % 9,
    }
    return pa.table({name: pa.array(columns[name], schema.field(name).type) for name in schema.names}, schema=schema)


def files(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file()]


def test_a_part_is_what_it_says(tmp_path: Path) -> None:
    with writer(tmp_path) as open_part:
        for start in (0, 100, 200):
            open_part.write(token_rows(start, start + 100))
        part = open_part.close()
    path = tmp_path / part.path
    assert (part.table, part.num_rows, part.num_bytes) == ("tokens", 300, path.stat().st_size)
    assert part.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert part.path == f"tokens/bucket={hashlib.sha256(UNIT.encode()).hexdigest()[:2]}/{UNIT}-p000.parquet"
    assert pq.ParquetFile(path).read().equals(token_rows(0, 300))
    assert files(tmp_path) == [path.name]


def test_encodings_sorting_and_footer_are_as_designed(tmp_path: Path) -> None:
    rows = [row | IDS for row in make_document(1).tables["spans"]]
    parts = []
    for table, content in (("tokens", token_rows(0, 5000)), ("spans", arrow_rows("spans", rows))):
        with writer(tmp_path, table) as open_part:
            open_part.write(content)
            parts.append(open_part.close())
    found: dict[str, set[str]] = {}
    for part in parts:
        metadata = pq.ParquetFile(tmp_path / part.path).metadata
        group = metadata.row_group(0)
        for place in range(metadata.num_columns):
            column = group.column(place)
            found[f"{part.table}.{column.path_in_schema}"] = set(column.encodings)
            assert column.compression == "ZSTD"
            assert column.has_offset_index
            assert column.has_column_index
        assert metadata.metadata[b"longdoc.schema_version"] == b"3"
        assert metadata.metadata[b"longdoc.model"] == b"arithmetic"
        assert metadata.metadata[b"longdoc.tokenizer_sha256"] == b"b" * 64
        assert metadata.metadata[b"longdoc.run_id"] == b"r"
        (order,) = group.sorting_columns
        assert (
            group.column(order.column_index).path_in_schema == {"tokens": "position", "spans": "span_index"}[part.table]
        )
    assert "BYTE_STREAM_SPLIT" in found["tokens.logprob"]
    assert "BYTE_STREAM_SPLIT" in found["spans.embedding.list.element"]
    assert "DELTA_BINARY_PACKED" in found["tokens.position"]
    assert "DELTA_BINARY_PACKED" in found["tokens.text_byte_start"]
    assert "RLE_DICTIONARY" in found["tokens.token_id"]
    assert not any("RLE_DICTIONARY" in found[name] for name in ("tokens.logprob", "spans.embedding.list.element"))


def test_pages_carry_checksums(tmp_path: Path) -> None:
    with writer(tmp_path) as open_part:
        open_part.write(token_rows(0, 5000))
        part = open_part.close()
    path = tmp_path / part.path
    column = pq.ParquetFile(path).metadata.row_group(0).column(3)
    content = bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(OSError, match="CRC checksum"):
        pq.ParquetFile(path, page_checksum_verification=True).read()


def test_row_groups_are_bounded_in_rows_and_only_the_last_is_small(tmp_path: Path) -> None:
    with writer(tmp_path) as open_part:
        for start in range(0, 600_000, 90_000):
            open_part.write(token_rows(start, min(start + 90_000, 600_000)))
        part = open_part.close()
    metadata = pq.ParquetFile(tmp_path / part.path).metadata
    assert [metadata.row_group(place).num_rows for place in range(metadata.num_row_groups)] == [
        262_144,
        262_144,
        75_712,
    ]


@given(sizes=st.lists(st.integers(0, 40), max_size=30), row_bound=st.integers(1, 12), byte_bound=st.integers(1, 400))
@settings(max_examples=60, deadline=None)
def test_bounded_pieces_are_the_rows_in_order_and_within_bounds(
    sizes: list[int], row_bound: int, byte_bound: int
) -> None:
    rows = pa.table({"text": pa.array(["x" * size for size in sizes], pa.large_string())})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(longdoc.store.parts, "MAX_GROUP_ROWS", row_bound)
        patch.setattr(longdoc.store.parts, "MAX_GROUP_BYTES", byte_bound)
        pieces = list(bounded(rows))
    assert [value for piece in pieces for value in piece["text"].to_pylist()] == rows["text"].to_pylist()
    assert all(piece.num_rows == 1 or (piece.num_rows <= row_bound and piece.nbytes <= byte_bound) for piece in pieces)


def test_an_exception_inside_the_block_leaves_no_file(tmp_path: Path) -> None:
    def fail() -> None:
        with writer(tmp_path) as open_part:
            open_part.write(token_rows(0, 300_000))
            raise RuntimeError("midway")

    with pytest.raises(RuntimeError, match="midway"):
        fail()
    assert files(tmp_path) == []


def test_while_it_grows_a_part_has_no_parts_name(tmp_path: Path) -> None:
    open_part = writer(tmp_path)
    open_part.write(token_rows(0, 300_000))
    assert [name.endswith(".parquet") for name in files(tmp_path)] == [False]
    assert parse_part_path(f"tokens/bucket=00/{files(tmp_path)[0]}") is None
    open_part.abort()


@pytest.mark.parametrize("num_rows", [10, 300_000])
def test_a_full_disk_is_infrastructure_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_rows: int
) -> None:
    class Full(longdoc.files.HashingFile):
        def write(self, content: bytes) -> int:
            if self.tell() > 100:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(content)

    monkeypatch.setattr(longdoc.store.parts, "HashingFile", Full)
    with (
        pytest.raises(InfrastructureError, match=r"no space is left on the device\. Free some"),
        writer(tmp_path) as open_part,
    ):
        open_part.write(token_rows(0, num_rows))
    assert files(tmp_path) == []


def test_a_short_write_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that says it wrote everything and lost the second half of one write."""

    class Short(longdoc.files.HashingFile):
        def write(self, content: bytes) -> int:
            view = memoryview(content)
            if view.nbytes < 1000:
                return super().write(content)
            self._digest.update(view)
            self._file.write(view[: view.nbytes // 2])
            return view.nbytes

    monkeypatch.setattr(longdoc.store.parts, "HashingFile", Short)
    with pytest.raises(InfrastructureError, match="does not read back"), writer(tmp_path) as open_part:
        open_part.write(token_rows(0, 5000))
    assert files(tmp_path) == []


def test_a_rank_that_wakes_after_its_attempt_was_removed_does_not_bring_it_back(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    with pytest.raises(InfrastructureError, match=r"abandoned by another run, or its folder was removed\. Run again"):
        writer(folder)
    assert not folder.exists()


def test_two_ranks_with_one_number_are_noticed(tmp_path: Path) -> None:
    with writer(tmp_path) as first:
        first.write(token_rows(0, 5))
    with pytest.raises(InfrastructureError, match="another rank has written it"):
        writer(tmp_path)


def test_a_part_without_rows_is_a_file_with_the_schema(tmp_path: Path) -> None:
    with writer(tmp_path) as open_part:
        part = open_part.close()
    assert part.num_rows == 0
    assert pq.read_schema(tmp_path / part.path).equals(schema_of("tokens", IDENTITY))


def test_closing_twice_gives_the_same_part_and_writing_after_it_is_refused(tmp_path: Path) -> None:
    with writer(tmp_path) as open_part:
        open_part.write(token_rows(0, 5))
        assert open_part.close() == open_part.close() == open_part.part
        with pytest.raises(ValueError, match="is closed"):
            open_part.write(token_rows(5, 6))


@pytest.mark.parametrize(
    "rows",
    [
        token_rows(0, 3).drop_columns(["entropy"]),
        token_rows(0, 3).append_column("more", pa.array([1, 2, 3])),
        token_rows(0, 3).set_column(3, "position", pa.array([0, 1, 2], pa.int32())),
    ],
    ids=["column missing", "column too many", "other type"],
)
def test_rows_of_another_schema_are_refused(tmp_path: Path, rows: pa.Table) -> None:
    with pytest.raises(ValueError, match="rows for tokens have the schema"), writer(tmp_path) as open_part:
        open_part.write(rows)
    assert files(tmp_path) == []


def test_a_null_where_none_may_be_is_refused(tmp_path: Path) -> None:
    rows = token_rows(0, 3)
    with_null = rows.set_column(4, rows.schema.field(4), pa.array([1, None, 3], pa.int32()))
    with pytest.raises(ValueError, match="token_id of tokens holds a null"), writer(tmp_path) as open_part:
        open_part.write(with_null)


def test_metadata_must_name_the_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lacks run_id"):
        PartWriter(tmp_path, table="tokens", unit=UNIT, number=0, identity=IDENTITY, metadata={})


@given(unit=st.from_regex(r"[0-9A-Za-z][0-9A-Za-z_-]{0,70}", fullmatch=True), number=st.integers(0, 10_000))
@settings(max_examples=100, deadline=None)
def test_part_paths_are_read_back(unit: str, number: int) -> None:
    assert parse_part_path(part_path("spans", unit, number)) == ("spans", unit, number)


@pytest.mark.parametrize(
    "path",
    [
        f"tokens/bucket=00/{UNIT}-p000.parquet",  # not its bucket
        "tokens/x-p000.parquet",
        part_path("tokens", UNIT, 0).replace("tokens", "colours"),
        part_path("tokens", UNIT, 0) + ".open",
        part_path("tokens", UNIT, 0).replace("-p000", "-p0000"),
        "../" + part_path("tokens", UNIT, 0),
    ],
)
def test_paths_that_break_the_grammar_are_no_parts(path: str) -> None:
    assert parse_part_path(path) is None


@pytest.mark.parametrize(
    ("table", "unit", "number"), [("colours", "a", 0), ("tokens", "../a", 0), ("tokens", "a", -1), ("tokens", "", 0)]
)
def test_names_that_cannot_be_a_path_are_refused(table: str, unit: str, number: Any) -> None:
    with pytest.raises(ValueError, match="no part is called"):
        part_path(table, unit, number)
