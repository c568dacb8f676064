"""Reading which documents are committed, and the rows of quarantine and runs.

A row of quarantine or runs is kept below `_longdoc/rows/` first, created only if absent, and then published as a file
of its own: two drivers never take one number, and a row that a dying process kept is published by the next recovery.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from longdoc.errors import InfrastructureError, OutputError
from longdoc.store.parts import parse_part_path
from longdoc.store.places import LEDGER_TABLES, Places, entries
from longdoc.store.publish import publish_bytes, stand
from longdoc.store.rows import DAMAGED, read_rows, rows_file
from longdoc.store.schemas import OutputIdentity

#: What `Ledger.quarantined` reads of a row.
QUARANTINED_COLUMNS = ("doc_id", "doc_key", "source_uri", "stage", "reason", "error", "needs", "attempts", "last_at")
_COMMITTED_COLUMNS = (
    *("doc_id", "doc_key", "attempt_id", "kind", "source_uri", "previous_doc_key", "num_tokens", "committed_at"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedDocument:
    """What a later run needs to know of a committed document."""

    doc_id: str
    doc_key: str
    attempt_id: str
    kind: str
    source_uri: str
    previous_doc_key: str | None
    num_tokens: int
    committed_at: datetime


class Ledger:
    """The rows of an output that are read and written one document at a time."""

    def __init__(self, places: Places, identity: OutputIdentity) -> None:
        self._places = places
        self._identity = identity

    def committed(self) -> dict[str, CommittedDocument]:
        """Committed documents by doc_key. Raises `OutputError` for a file that cannot be read or a doubled row."""
        found: dict[str, CommittedDocument] = {}
        for row in self.rows("documents", _COMMITTED_COLUMNS):
            document = CommittedDocument(**row)
            if document.doc_key in found:
                raise OutputError(
                    f"{self._places.root} holds document {document.doc_key} twice. Run `longdoc verify` on it; "
                    "it names the file to remove."
                )
            found[document.doc_key] = document
        return found

    def quarantined(self, committed: Mapping[str, CommittedDocument] | None = None) -> dict[str, dict[str, Any]]:
        """The newest row of each document in quarantine. A document that was committed since has left it.

        `committed` is what `committed()` returned, where the caller has it already. Earlier rows are not opened: a
        source that fails every night has one for each.
        """
        newest: dict[str, dict[str, Any]] = {}
        for path in self._newest_of_units("quarantine"):
            for row in self._read(path, "quarantine", QUARANTINED_COLUMNS):
                newest[row["doc_key"] or row["doc_id"]] = row
        if committed is None:
            committed = self.committed() if newest else {}
        read_since: dict[str, datetime] = {}
        for document in committed.values():
            read_since[document.doc_id] = max(
                document.committed_at, read_since.get(document.doc_id, document.committed_at)
            )
        return {key: row for key, row in newest.items() if key not in committed and not _has_left(row, read_since)}

    def quarantine(self, row: Mapping[str, Any], *, run_id: str) -> None:
        """Add a row for one more failure, numbered after those before."""
        unit = quarantine_unit(row)
        first_at, number = self._earlier_failures(unit)
        while True:
            number += 1
            now = datetime.now(UTC)
            full = dict(row) | {"attempts": number, "first_at": first_at or now, "last_at": now}
            content = rows_file("quarantine", self._identity, [full], run_id=run_id)
            if self._keep("quarantine", unit, number, content):
                return

    def record_run(self, row: Mapping[str, Any]) -> None:
        """Add a run's row."""
        run_id = str(row.get("run_id", ""))
        content = rows_file("runs", self._identity, [row], run_id=run_id)
        if not self._keep("runs", run_id, 0, content):
            raise ValueError(f"run {run_id} was recorded before")

    def republish(self) -> None:
        """Publish rows that were kept by a process that died before it published them.

        Raises `InfrastructureError` for a kept file that does not hold a row of its table.
        """
        for table in LEDGER_TABLES:
            for path in entries(self._places.kept_rows(table)):
                target = self._places.kept_target(table, path.name)
                if target is not None and not target.exists():
                    publish_bytes(target, self._kept_row(path, table), scratch=self._places.scratch)

    def _kept_row(self, path: Path, table: str) -> bytes:
        try:
            content = path.read_bytes()
            (_,) = read_rows(content, table, self._identity)
        except DAMAGED as error:
            raise InfrastructureError(
                f"{path} is damaged: {error}. Move it out of the output, and run again."
            ) from error
        return content

    def _keep(self, table: str, unit: str, number: int, content: bytes) -> bool:
        target = self._places.published(table, unit, number)
        if stand(self._places.kept_rows(table) / target.name, content) != content:
            return False
        publish_bytes(target, content, scratch=self._places.scratch)
        return True

    def _earlier_failures(self, unit: str) -> tuple[datetime | None, int]:
        """When a document failed first, and how often. Asked for one file at a time: listing them all is dear."""
        folder, number = self._places.kept_rows("quarantine"), 0
        last = first_at = None
        while (path := folder / self._places.published("quarantine", unit, number + 1).name).exists():
            last, number = path, number + 1
        if last is not None:
            # Each row repeats when the document failed first.
            first_at = min((row["first_at"] for row in self._read(last, "quarantine", ("first_at",))), default=None)
        return first_at, number

    def rows(self, table: str, columns: tuple[str, ...] | None) -> Iterator[dict[str, Any]]:
        """The rows of a table that are published. Raises `OutputError` for a file that cannot be read."""
        for path, _, _ in self._files(table):
            yield from self._read(path, table, columns)

    def _files(self, table: str) -> Iterator[tuple[Path, str, int]]:
        """The files of a table in order, with the unit and the number that their names say."""
        for path in sorted((self._places.root / table).glob("bucket=*/*.parquet")):
            if (parsed := parse_part_path(path.relative_to(self._places.root).as_posix())) is not None:
                yield path, *parsed[1:]

    def _newest_of_units(self, table: str) -> list[Path]:
        """The file of the highest number of each unit: `_keep` numbers rows in their order."""
        newest: dict[str, tuple[int, Path]] = {}
        for path, unit, number in self._files(table):
            newest[unit] = max(newest.get(unit, (number, path)), (number, path))
        return [path for _, path in newest.values()]

    def _read(self, path: Path, table: str, columns: tuple[str, ...] | None) -> list[dict[str, Any]]:
        try:
            return read_rows(path, table, self._identity, columns)
        except FileNotFoundError:
            raise
        except DAMAGED as error:
            raise OutputError(f"{path} cannot be read: {error}. Run `longdoc verify` on the output.") from error


def _has_left(row: Mapping[str, Any], read_since: Mapping[str, datetime]) -> bool:
    """Whether a document that could not be read, and so had no doc_key, was committed later."""
    return row["doc_key"] is None and row["doc_id"] in read_since and read_since[row["doc_id"]] > row["last_at"]


def quarantine_unit(row: Mapping[str, Any]) -> str:
    """The unit of a quarantine row: its doc_key, or where that is null the SHA-256 of its doc_id."""
    if row["doc_key"] is not None:
        return str(row["doc_key"])
    if row["doc_id"] is None:
        raise ValueError("a document in quarantine needs a doc_key or a doc_id")
    return hashlib.sha256(str(row["doc_id"]).encode("utf-8", "surrogatepass")).hexdigest()
