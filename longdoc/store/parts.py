"""One Parquet file of one attempt: where it lies, how it is encoded, and how it is finished.

A part grows under a name that no publisher looks for and gets its own name only after it was closed, opened again and
found to hold what was meant: a `ParquetWriter` left by an exception closes to a valid, shorter file (arrow#40502).
It runs in the process of a rank and knows a folder, never the output.
"""

import errno
import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

from longdoc.errors import InfrastructureError, ensure
from longdoc.files import HashingFile, fsync_path, make_folder, sha256_file
from longdoc.records import Part
from longdoc.store.columns import TABLES
from longdoc.store.schemas import METADATA_PREFIX, OutputIdentity, footer_metadata, schema_of

MAX_GROUP_ROWS = 262_144
MAX_GROUP_BYTES = 64_000_000
_OPEN_SUFFIX = ".open"
_UNIT = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]*")
_PATH = re.compile(
    r"(?P<table>[a-z]+)/bucket=(?P<bucket>[0-9a-f]{2})/(?P<unit>[0-9A-Za-z_-]+)-p(?P<number>\d{3,})\.parquet"
)

SORTED_BY = {
    "documents": "doc_key",
    "segments": "segment_index",
    "spans": "span_index",
    "tokens": "position",
    "quarantine": "attempts",
    "runs": "run_id",
}
# Values that repeat get a dictionary. Measured over 2 M tokens: 10.6 MB with these encodings, 30.3 MB without.
_DICTIONARY = {"doc_id", "doc_key", "attempt_id", "token_id", "kind", "encoding", "encoding_source", "reason", "stage"}
_DELTA = {"position", "text_byte_start", "text_byte_stop", "token_start", "token_stop", "char_start", "char_stop"}
# A dictionary of float32 makes them grow; bytes of equal significance side by side compress (bf16 states: 2.9 times).
_SPLIT = {"logprob", "entropy", "mean_logprob", "max_surprisal"}


def is_unit(name: object) -> bool:
    """Whether `name` can name a unit; such a name is no way out of a folder."""
    return isinstance(name, str) and _UNIT.fullmatch(name) is not None


def part_path(table: str, unit: str, number: int) -> str:
    """The path of a part below the output. The bucket is the first byte of the SHA-256 of the unit's name."""
    if table not in TABLES or not is_unit(unit) or number < 0:
        raise ValueError(f"no part is called {table!r}, {unit!r}, {number!r}")
    bucket = hashlib.sha256(unit.encode()).hexdigest()[:2]
    return f"{table}/bucket={bucket}/{unit}-p{number:03d}.parquet"


def parse_part_path(path: str) -> tuple[str, str, int] | None:
    """Table, unit and number of a part's path, or None where the path breaks the grammar."""
    found = _PATH.fullmatch(path)
    if found is None or found["table"] not in TABLES:
        return None
    table, unit, number = found["table"], found["unit"], int(found["number"])
    return (table, unit, number) if part_path(table, unit, number) == path else None


def open_writer(sink: object, *, table: str, identity: OutputIdentity, metadata: Mapping[str, str]) -> pq.ParquetWriter:
    """A Parquet writer with a table's schema and encodings. `metadata` is the footer's key-value pairs."""
    schema = schema_of(table, identity).with_metadata(dict(metadata))
    splits = {f"{name}.list.element" if name == "embedding" else name for name in {"embedding", *_SPLIT}}
    encodings = dict.fromkeys(splits, "BYTE_STREAM_SPLIT") | dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED")
    names = {name if name != "embedding" else "embedding.list.element" for name in schema.names}
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=[name for name in schema.names if name in _DICTIONARY],
        column_encoding={
            name: encoding for name, encoding in encodings.items() if name in names and table != "documents"
        },
        sorting_columns=pq.SortingColumn.from_ordering(schema, [(SORTED_BY[table], "ascending")]),
        write_page_index=True,
        write_page_checksum=True,
    )


def bounded(rows: pa.Table) -> Iterator[pa.Table]:
    """`rows` in order in pieces of at most `MAX_GROUP_ROWS` rows and `MAX_GROUP_BYTES` bytes; one row is never cut."""
    if rows.num_rows > 1 and (rows.num_rows > MAX_GROUP_ROWS or rows.nbytes > MAX_GROUP_BYTES):
        cut = MAX_GROUP_ROWS if rows.num_rows > MAX_GROUP_ROWS else rows.num_rows // 2
        yield from bounded(rows.slice(0, cut))
        yield from bounded(rows.slice(cut))
    elif rows.num_rows:
        yield rows


class PartWriter:
    """Writes one part below `folder` and hands back its `Part` from `close`.

    As a context manager it closes at the end of the block, and after an exception leaves no file behind. `metadata`
    must hold the run's id as `run_id`. Raises `InfrastructureError` when the disk is full, what was written does not
    read back, or the folder is gone because the attempt was abandoned; `ValueError` for rows of another schema.
    """

    def __init__(
        self, folder: Path, *, table: str, unit: str, number: int, identity: OutputIdentity, metadata: Mapping[str, str]
    ) -> None:
        self._table, self._folder = table, folder
        self._path = part_path(table, unit, number)
        self._final = folder / self._path
        self._open = self._final.with_name(self._final.name + _OPEN_SUFFIX)
        self._schema = schema_of(table, identity)
        extra = {f"{METADATA_PREFIX}{key.removeprefix(METADATA_PREFIX)}": value for key, value in metadata.items()}
        if f"{METADATA_PREFIX}run_id" not in extra:
            raise ValueError(f"metadata of {self._path} lacks run_id")
        footer = footer_metadata(identity, extra[f"{METADATA_PREFIX}run_id"])
        self._waiting: list[pa.Table] = []
        self._waiting_rows = self._waiting_bytes = self._num_rows = 0
        self.part: Part | None = None
        try:
            self._make_folders()
            self._sink = HashingFile(self._open)
        except OSError as error:
            raise self._failed(error) from error
        self._writer = open_writer(self._sink, table=table, identity=identity, metadata=extra | footer)

    def write(self, rows: pa.Table) -> None:
        """Append rows, in the order of the table's sorting column."""
        if not rows.schema.equals(self._schema):
            raise ValueError(f"rows for {self._table} have the schema {rows.schema}, not {self._schema}")
        for field, column in zip(self._schema, rows.columns, strict=True):
            if column.null_count and not field.nullable:
                raise ValueError(f"{field.name} of {self._table} holds a null")
        if self.part is not None:
            raise ValueError(f"{self._path} is closed")
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        if self._waiting_rows >= MAX_GROUP_ROWS or self._waiting_bytes >= MAX_GROUP_BYTES:
            self._guarded_flush()

    def close(self) -> Part:
        """Finish, read back and name the file. A second call returns the same part."""
        if self.part is None:
            try:
                self._flush(last=True)
                self._writer.close()
                self._sink.close()
                self.part = self._check()
                self._open.rename(self._final)
                fsync_path(self._final.parent)
            except (OSError, pa.ArrowException) as error:
                self.part = None
                self.abort()
                raise self._failed(error) from error
            except BaseException:
                self.part = None
                self.abort()
                raise
        return self.part

    def abort(self) -> None:
        """Drop the file. What the library still buffers goes nowhere: the writer is never used again."""
        self._waiting.clear()
        for close in (self._writer.close, self._sink.close):
            # The error that led here is the one to report; a full disk fails a second time while closing.
            try:
                close()
            except (OSError, ValueError, pa.ArrowException):
                continue
        self._open.unlink(missing_ok=True)

    def __enter__(self) -> "PartWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        elif self.part is None:
            self.abort()

    def _make_folders(self) -> None:
        # `folder` itself is never made: a rank that wakes after its attempt was abandoned must not bring it back.
        for folder in (self._final.parent.parent, self._final.parent):
            make_folder(folder, parents=False)
        if self._final.exists():
            raise FileExistsError(errno.EEXIST, "another rank has written it", str(self._final))

    def _guarded_flush(self) -> None:
        try:
            self._flush(last=False)
        except (OSError, pa.ArrowException) as error:
            self.abort()
            raise self._failed(error) from error

    def _flush(self, *, last: bool) -> None:
        if not self._waiting:
            return
        pieces = list(bounded(pa.concat_tables(self._waiting)))
        # Only the last row group of a part is small: a remainder waits for more rows.
        self._waiting = [] if last else pieces[-1:]
        self._waiting_rows = sum(rows.num_rows for rows in self._waiting)
        self._waiting_bytes = sum(rows.nbytes for rows in self._waiting)
        for piece in pieces if last else pieces[:-1]:
            self._writer.write_table(piece, row_group_size=piece.num_rows)
            self._num_rows += piece.num_rows

    def _check(self) -> Part:
        digest = sha256_file(self._open)
        if digest != self._sink.sha256:
            raise OSError(errno.EIO, "what was written does not read back", str(self._open))
        with pq.ParquetFile(self._open) as file:
            ensure(file.metadata.num_rows == self._num_rows, f"{self._path}: rows were lost while writing")
            ensure(file.schema_arrow.equals(self._schema), f"{self._path}: the schema changed while writing")
        size = self._open.stat().st_size
        return Part(table=self._table, path=self._path, num_rows=self._num_rows, num_bytes=size, sha256=digest)

    def _failed(self, error: Exception) -> InfrastructureError:
        if not self._folder.is_dir():
            cause = "its attempt was abandoned by another run, or its folder was removed. Run again"
        elif isinstance(error, OSError) and error.errno == errno.ENOSPC:
            cause = "no space is left on the device. Free some and run again"
        else:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            cause = f"{reason}. Check the disk that holds {self._folder} and run again"
        return InfrastructureError(f"{self._path} could not be written: {cause}.")
