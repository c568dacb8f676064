"""The files that documents rows name: all there, byte for byte, of the schema; and none that no row names.

A file whose bytes changed is named and not read further: what it holds proves nothing.
"""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from longdoc.checks.findings import Findings
from longdoc.checks.inventory import parsed
from longdoc.files import sha256_file
from longdoc.store.decisions import PART_TABLES, is_part_of
from longdoc.store.places import Places
from longdoc.store.rows import DAMAGED
from longdoc.store.schemas import METADATA_PREFIX, OutputIdentity, footer_metadata, schema_of


def check_parts(
    findings: Findings, places: Places, identity: OutputIdentity, row: dict[str, Any]
) -> dict[str, list[Path]]:
    """Check one document's files. Returns the sound files of each table whose files are all sound."""
    sound: dict[str, list[Path]] = {table: [] for table in PART_TABLES}
    for part in row["parts"]:
        table, path = str(part["table"]), places.root / str(part["path"])
        if not is_part_of(table, str(part["path"]), str(row["doc_key"])):
            findings.fault("documents", str(row["doc_key"]), f"names {part['path']}, which is no part of it")
        elif _is_sound(findings, table, path, part) and check_form(
            findings, table, path, identity, run_id=row["run_id"], model=row["model"], num_rows=part["rows"]
        ):
            # A table of which another file is damaged is out already.
            sound.get(table, []).append(path)
            findings.counts["parts"] += 1
            findings.counts["bytes"] += part["bytes"]
            continue
        sound.pop(table, None)
    return sound


def check_orphans(
    findings: Findings, places: Places, files: dict[str, set[str]], named: set[str], attempts: dict[str, str]
) -> None:
    """Name every part but those `named` by committed documents, whose attempts are given by doc_key."""
    for table in PART_TABLES:
        for name in sorted(files[table] - named):
            with findings.reading(table, name):
                unit = parsed(name)[1]
                committed = attempts.get(unit)
                if committed is None and places.decision(unit).exists():
                    continue  # named already: this unit was decided and is not rolled forward
                whose = "no committed document" if committed is None else f"not {committed}, which was committed"
                findings.fault(table, name, f"is a part of {_attempt_of(places.root / name)}, {whose}")


def check_form(
    findings: Findings,
    table: str,
    path: Path,
    identity: OutputIdentity,
    *,
    run_id: str,
    model: str | None = None,
    num_rows: int | None = None,
) -> bool:
    """Check schema, footer and number of rows of a file. False after a fault."""
    before = len(findings.faults)
    with findings.reading(table, path), pq.ParquetFile(path) as file:
        if not file.schema_arrow.equals(schema_of(table, identity)):
            findings.fault(table, path, "does not have the table's schema")
        found = {
            key.decode(errors="replace"): value.decode(errors="replace")
            for key, value in (file.schema_arrow.metadata or {}).items()
        }
        wanted = footer_metadata(identity, run_id) | ({} if model is None else {f"{METADATA_PREFIX}model": model})
        if model is None:
            # The same model may go by several names; rows that state no name leave it open.
            wanted.pop(f"{METADATA_PREFIX}model")
        for key, value in wanted.items():
            if found.get(key) != value:
                findings.fault(table, path, f"its footer has {key} = {found.get(key)!r}, not {value!r}")
        if num_rows is not None and file.metadata.num_rows != num_rows:
            findings.fault(table, path, f"has {file.metadata.num_rows} rows, not {num_rows} as committed")
    return len(findings.faults) == before


def _is_sound(findings: Findings, table: str, path: Path, part: dict[str, Any]) -> bool:
    with findings.reading(table, path):
        if not path.is_file():
            findings.fault(table, path, "is missing; a committed document names it")
            return False
        size = path.stat().st_size
        if size == part["bytes"] and sha256_file(path) == part["sha256"]:
            return True
        findings.fault(table, path, f"its bytes changed since it was committed{_difference(path, size, part)}")
    return False


def _difference(path: Path, size: int, part: dict[str, Any]) -> str:
    told = [] if size == part["bytes"] else [f"{size} bytes, not {part['bytes']}"]
    try:
        num_rows = pq.read_metadata(path).num_rows
    except DAMAGED:
        told.append("no longer a Parquet file")
    else:
        told += [] if num_rows == part["rows"] else [f"{num_rows} rows, not {part['rows']}"]
    return f" ({'; '.join(told)})" if told else ""


def _attempt_of(path: Path) -> str:
    try:
        with pq.ParquetFile(path) as file:
            attempts = set(file.read_row_group(0, columns=["attempt_id"])["attempt_id"].to_pylist())
        return f"attempt {', '.join(sorted(attempts))}"
    except DAMAGED:
        return "an attempt that cannot be read"
