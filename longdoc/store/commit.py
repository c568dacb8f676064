"""The commit: a document is in the tables exactly once, or not at all, whoever dies when.

Owns attempts from `begin` to their end, the decision which of them a unit belongs to, and the roll-forward of what was
decided. Refuses to undo: after step 2 an attempt only ever moves forward, by its own process or by the next `recover`.

1. `staged`             parts are checked; the documents rows lie beside them as the attempt's decision.
2. `attempt_committed`  `attempts/<attempt>` = `committed`, only if absent. A cleaner creates the same file as
                        `abandoned`; whoever comes second stops.
3. `decided`            `decisions/<unit>` = the decision, only if absent. A second attempt at the unit ends here.
4. `part_published`     once for each part, then `documents_published`, then `staging_removed`.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from longdoc.errors import InfrastructureError
from longdoc.records import Part, display
from longdoc.store import attempts as owners
from longdoc.store.attempts import Attempt, Heartbeat
from longdoc.store.decisions import is_part_of, read_decision
from longdoc.store.ledger import CommittedDocument, Ledger
from longdoc.store.output import open_output, read_output
from longdoc.store.places import Places, entries, is_temporary
from longdoc.store.publish import disk_faults, publish_bytes, publish_file, read_if_present, stand
from longdoc.store.rows import rows_file
from longdoc.store.schemas import OutputIdentity
from longdoc.store.versions import Versions, time_after

__all__ = ["COMMIT_STEPS", "Attempt", "CommittedDocument", "OutputStore", "RecoveryReport"]

COMMIT_STEPS = (
    "staged",
    "attempt_committed",
    "decided",
    "part_published",
    "documents_published",
    "staging_removed",
)
COMMITTED, ABANDONED = b"committed", b"abandoned"
DECISION = "decision"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """What `recover` did: units that were published, attempts whose staging it removed, attempts it left alone."""

    rolled_forward: tuple[str, ...]
    removed: tuple[str, ...]
    live: tuple[str, ...]


class OutputStore:
    """One output, open for writing (`open`) or for reading (`read`)."""

    def __init__(self, places: Places, identity: OutputIdentity) -> None:
        self.places = places
        self.identity = identity
        self._ledger = Ledger(places, identity)
        self._versions = Versions(places, identity)
        self._heartbeat = Heartbeat()
        self._begun: list[Attempt] = []

    @classmethod
    def open(cls, output: str, identity: OutputIdentity) -> "OutputStore":
        """Create or open an output. Raises `OutputError` where it is another's, foreign or not writable."""
        return cls(open_output(output, identity), identity)

    @classmethod
    def read(cls, output: str) -> "OutputStore":
        """Open an output that exists, to read it. Raises `OutputError` where there is none."""
        return cls(*read_output(output))

    def on_step(self, name: str) -> None:
        """Called after each step of a commit with a name of `COMMIT_STEPS`; does nothing. Tests die here."""

    def begin(self, unit: str) -> Attempt:
        """Start an attempt at a unit (a document's doc_key). Ranks write their parts below its folder `staging`."""
        with disk_faults(f"no attempt at {unit} could be started"):
            attempt = owners.new_attempt(self.places.staging_root, unit)
            # Noted before anything is made: an interrupt in between leaves nothing that `close` does not know.
            self._begun.append(attempt)
            owners.make_staging(attempt)
        self._heartbeat.add(attempt.staging)
        return attempt

    def close(self) -> None:
        """Clear away what attempts of this store left in staging, once nobody writes there any more.

        What a commit had decided stays for the next recovery, as in `discard`.
        """
        for attempt in self._begun:
            if attempt.staging.exists():
                self.discard(attempt)
        self._begun.clear()

    def commit(self, attempt: Attempt, *, document_row: Mapping[str, Any], parts: Sequence[Part]) -> bool:
        """Make the document visible; False when another attempt at it was first, whose rows then stand.

        `document_row` holds the documents columns; those about the commit (attempt_id, previous_doc_key, parts,
        committed_at) are filled in here. Raises
        `ValueError` for rows or parts that do not belong together and `InfrastructureError` when the attempt was
        abandoned by another run or the disk fails; what had been decided is then finished by the next `recover`.
        """
        with disk_faults(f"the commit of {attempt.unit} was interrupted"):
            decision = self._stage(attempt, document_row, parts)
            self.on_step("staged")
            self._mark_committed(attempt)
            self.on_step("attempt_committed")
            if stand(self.places.decision(attempt.unit), decision) != decision:
                self.discard(attempt)
                return False
            self.on_step("decided")
            self._publish(attempt.unit, decision)
            self._remove(attempt.staging)
            self.on_step("staging_removed")
        return True

    def discard(self, attempt: Attempt) -> None:
        """End an attempt that is not wanted; its staging goes.

        An attempt whose commit got past step 2 and failed there is let go, not removed: the next recovery finishes it.
        """
        with disk_faults(f"attempt {attempt.attempt_id} could not be discarded"):
            state = stand(self.places.attempt(attempt.attempt_id), ABANDONED)
            if state == COMMITTED and self._decided_for(attempt.unit) in (None, attempt.attempt_id):
                self._heartbeat.remove(attempt.staging)
            else:
                self._remove(attempt.staging)

    def recover(self) -> RecoveryReport:
        """Finish what was decided and clear away attempts whose owner is gone; never one that may be alive.

        Raises `InfrastructureError` where a decision or a part it needs was damaged or removed from outside, or where
        something lies below `_longdoc` that longdoc did not put there.
        """
        with disk_faults(f"{self.places.root} could not be recovered"):
            for path in self.places.foreign():
                raise InfrastructureError(
                    f"{display(str(path))} is not longdoc's. Move it out of the output and run again."
                )
            now = owners.file_system_time(self.places.scratch)
            gone, live = self._staged_attempts(now)
            ended = [folder for folder in gone if self._end_for_the_dead(folder)]
            rolled_forward = self._roll_forward()
            for folder in ended:
                self._remove(folder)
            self._ledger.republish()
            self._sweep(now)
        return RecoveryReport(
            rolled_forward=tuple(rolled_forward),
            removed=tuple(folder.name for folder in ended),
            live=tuple(folder.name for folder in live),
        )

    def committed(self) -> dict[str, CommittedDocument]:
        """The committed documents by doc_key, read from the rows of the documents table."""
        found = self._ledger.committed()
        self._versions.know(found.values())
        return found

    def quarantined(self, committed: Mapping[str, CommittedDocument] | None = None) -> dict[str, dict[str, Any]]:
        """The newest quarantine row of each document not committed since, by doc_key, or doc_id where that is null.

        Rows have the columns `longdoc.store.ledger.QUARANTINED_COLUMNS`. `committed` is what `committed()` returned,
        where the caller has it already; it is read again otherwise.
        """
        return self._ledger.quarantined(committed)

    def quarantine(
        self,
        *,
        source_uri: str,
        doc_id: str | None,
        doc_key: str | None,
        stage: str,
        reason: str,
        error: str,
        needs: str | None = None,
        attempt_id: str | None = None,
        run_id: str = "",
    ) -> None:
        """Record that a document failed once more. Raises `ValueError` without doc_id and doc_key."""
        row = {
            "doc_id": doc_id,
            "doc_key": doc_key,
            "attempt_id": attempt_id,
            "source_uri": source_uri,
            "stage": stage,
            "reason": reason,
            "error": error,
            "needs": needs,
        }
        with disk_faults(f"the failure of {source_uri} could not be recorded"):
            self._ledger.quarantine(row, run_id=run_id)

    def record_run(self, row: Mapping[str, Any]) -> None:
        """Record a finished run; mappings become JSON. Raises `ValueError` where the run was recorded before."""
        with disk_faults(f"run {row.get('run_id')} could not be recorded"):
            self._ledger.record_run(row)

    def _stage(self, attempt: Attempt, document_row: Mapping[str, Any], parts: Sequence[Part]) -> bytes:
        doc_key = document_row.get("doc_key", attempt.unit)
        previous = self._versions.before(document_row.get("doc_id", ""), doc_key)
        row = dict(document_row) | {
            "attempt_id": attempt.attempt_id,
            "doc_key": doc_key,
            "previous_doc_key": None if previous is None else previous.doc_key,
            "committed_at": time_after(datetime.now(UTC), previous),
            "parts": [_part_row(part) for part in sorted(parts, key=lambda part: part.path)],
        }
        _check_parts(attempt, row, parts)
        for part in parts:
            self._check_staged(attempt, part)
        decision = rows_file("documents", self.identity, [row], run_id=str(row.get("run_id", "")))
        return stand(attempt.staging / DECISION, decision)

    def _check_staged(self, attempt: Attempt, part: Part) -> None:
        path = attempt.staging / part.path
        if not path.is_file() or path.stat().st_size != part.num_bytes:
            state = read_if_present(self.places.attempt(attempt.attempt_id))
            cause = (
                "another run abandoned this attempt" if state == ABANDONED else "it is not in staging as it was written"
            )
            raise InfrastructureError(f"{part.path} cannot be committed: {cause}. Run again.")

    def _mark_committed(self, attempt: Attempt) -> None:
        state = stand(self.places.attempt(attempt.attempt_id), COMMITTED)
        if state != COMMITTED:
            self._heartbeat.remove(attempt.staging)
            raise InfrastructureError(
                f"the attempt at {attempt.unit} was abandoned by another run while this process stood still; "
                "nothing was written. Run again."
            )

    def _decided_for(self, unit: str) -> str | None:
        """The attempt that a unit was decided for."""
        path = self.places.decision(unit)
        content = read_if_present(path)
        return None if content is None else str(read_decision(path, unit, self.identity, content)["attempt_id"])

    def _publish(self, unit: str, decision: bytes) -> None:
        row = read_decision(self.places.decision(unit), unit, self.identity, decision)
        for part in row["parts"]:
            try:
                publish_file(
                    self.places.staging(row["attempt_id"]) / part["path"],
                    self.places.root / part["path"],
                    num_bytes=part["bytes"],
                    sha256=part["sha256"],
                )
            except FileNotFoundError as error:
                raise InfrastructureError(
                    f"{part['path']} was decided, but is neither staged nor published: somebody removed it. To have "
                    f"the document computed again, remove {self.places.decision(unit)} and every {unit}-p*.parquet "
                    "below the tables, and run again."
                ) from error
            self.on_step("part_published")
        publish_bytes(self.places.documents(unit), decision, scratch=self.places.scratch)
        self.on_step("documents_published")

    def _roll_forward(self) -> list[str]:
        units = [path.name for path in entries(self.places.decisions)]
        # The documents rows are published last, so that their file says that all the rest is there.
        waiting = [unit for unit in units if not self.places.documents(unit).exists()]
        for unit in waiting:
            self._publish(unit, self.places.decision(unit).read_bytes())
        return waiting

    def _staged_attempts(self, now: float) -> tuple[list[Path], list[Path]]:
        """Staging folders whose owner is gone, and those whose owner may be alive."""
        folders = entries(self.places.staging_root)
        gone = [folder for folder in folders if owners.is_gone(folder, now)]
        return gone, [folder for folder in folders if folder not in gone]

    def _end_for_the_dead(self, folder: Path) -> bool:
        """Step 3 for an attempt that took step 2 and died; one that did not is abandoned. True where it has an end."""
        decision, unit = read_if_present(folder / DECISION), owners.unit_of(folder)
        state = stand(self.places.attempt(folder.name), ABANDONED)
        if state == COMMITTED and decision is not None and unit is not None:
            read_decision(folder / DECISION, unit, self.identity, decision)
            stand(self.places.decision(unit), decision)
        return state in (COMMITTED, ABANDONED)

    def _remove(self, folder: Path) -> None:
        self._heartbeat.remove(folder)
        # What cannot be removed now harms no reader, and the next recovery tries again.
        shutil.rmtree(folder, ignore_errors=True)

    def _sweep(self, now: float) -> None:
        """Remove half-made files of processes that died while making them."""
        folders = [self.places.internal, self.places.decisions, self.places.attempts, self.places.scratch]
        for folder in [*folders, self.places.kept_rows("quarantine"), self.places.kept_rows("runs")]:
            for path in folder.iterdir() if folder.is_dir() else ():
                is_unfinished = is_temporary(path.name) or folder == self.places.scratch
                if is_unfinished and path.is_file() and now - path.stat().st_mtime > owners.STALE_SECONDS:
                    path.unlink(missing_ok=True)


def _check_parts(attempt: Attempt, row: Mapping[str, Any], parts: Sequence[Part]) -> None:
    if row["doc_key"] != attempt.unit:
        raise ValueError(f"attempt at {attempt.unit} cannot commit document {row['doc_key']}")
    if not parts:
        raise ValueError(f"attempt at {attempt.unit} has no parts")
    if len({part.path for part in parts}) != len(parts):
        raise ValueError(f"two parts of {attempt.unit} have one path")
    for part in parts:
        if not is_part_of(part.table, part.path, attempt.unit):
            raise ValueError(f"{part.path} is no part of {attempt.unit}")
    # What must be conserved is checked where it is joined: here the ranks' rows become one document.
    num_rows = sum(part.num_rows for part in parts if part.table == "tokens")
    if num_rows != row.get("num_tokens"):
        raise ValueError(
            f"the parts of {attempt.unit} hold {num_rows} tokens, the document has {row.get('num_tokens')}"
        )


def _part_row(part: Part) -> dict[str, Any]:
    return {
        "table": part.table,
        "path": part.path,
        "rows": part.num_rows,
        "bytes": part.num_bytes,
        "sha256": part.sha256,
    }
