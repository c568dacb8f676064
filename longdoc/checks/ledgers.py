"""Quarantine and runs: every row kept and published alike, numbered without gaps, and well formed."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from longdoc.checks.findings import Findings
from longdoc.checks.inventory import parsed
from longdoc.checks.parts import check_form
from longdoc.store.ledger import quarantine_unit
from longdoc.store.parts import part_path
from longdoc.store.places import LEDGER_TABLES, Places, entries
from longdoc.store.rows import JSON_COLUMNS, read_rows
from longdoc.store.schemas import OutputIdentity

EXIT_CODES = frozenset({0, 1, 2, 3, 4, 5, 130})


def check_ledgers(findings: Findings, places: Places, identity: OutputIdentity, files: dict[str, set[str]]) -> None:
    """Check both tables."""
    for table in LEDGER_TABLES:
        _check_kept(findings, places, table, files[table])
        numbers: dict[str, set[int]] = defaultdict(set)
        for name in sorted(files[table]):
            _, unit, number = parsed(name)
            numbers[unit].add(number)
            _check_file(findings, table, places.root / name, identity, unit=unit, number=number)
            findings.counts[table] += 1
        for unit, taken in numbers.items() if table == "quarantine" else ():
            if missing := set(range(1, max(taken))) - taken:
                findings.fault(table, part_path(table, unit, min(missing)), "is missing; a later failure is there")


def _check_kept(findings: Findings, places: Places, table: str, files: set[str]) -> None:
    """Each file is there twice, byte for byte: below its table and below `_longdoc/rows`."""
    folder = places.kept_rows(table)
    # One that has no rows file's name was named by the inventory.
    names = {path.name for path in entries(folder) if places.kept_target(table, path.name) is not None}
    for name in sorted(files):
        path = places.root / name
        with findings.reading(table, name):
            if path.name not in names:
                findings.fault(table, name, f"no run wrote it: _longdoc/rows/{table}/{path.name} is missing")
            elif path.read_bytes() != (folder / path.name).read_bytes():
                findings.fault(table, name, f"differs from _longdoc/rows/{table}/{path.name}")
    for name in sorted(names - {Path(file).name for file in files}):
        findings.fault(table, f"_longdoc/rows/{table}/{name}", "is not published: run again to publish it")


def _check_file(
    findings: Findings, table: str, path: Path, identity: OutputIdentity, *, unit: str, number: int
) -> None:
    with findings.reading(table, path):
        rows = read_rows(path, table, identity)
        if len(rows) != 1:
            findings.fault(table, path, f"has {len(rows)} rows, not 1")
            return
        (row,) = rows
        # A failure's footer names the run it happened in, which its row does not.
        if table == "runs":
            check_form(findings, table, path, identity, run_id=str(row["run_id"]))
        problems = _quarantine_problems(row, unit, number) if table == "quarantine" else _run_problems(row, unit)
        for problem in problems:
            findings.fault(table, path, problem)


def _quarantine_problems(row: dict[str, Any], unit: str, number: int) -> list[str]:
    problems = [f"has no {name}" for name in ("source_uri", "stage", "reason", "error") if not row[name]]
    if (row["doc_key"] or row["doc_id"]) is None or quarantine_unit(row) != unit:
        problems.append("is of another document than its file name says")
    if row["attempts"] != number:
        problems.append(f"counts {row['attempts']} attempts, its file name says {number}")
    if row["first_at"] > row["last_at"]:
        problems.append("failed last before it failed first")
    return problems


def _run_problems(row: dict[str, Any], unit: str) -> list[str]:
    problems = []
    if row["run_id"] != unit:
        problems.append(f"is run {row['run_id']}, its file name says {unit}")
    if row["started_at"] > row["finished_at"]:
        problems.append("finished before it started")
    if row["exit_code"] not in EXIT_CODES:
        problems.append(f"has exit code {row['exit_code']}, which longdoc never gives")
    return problems + [f"{name} is not JSON" for name in sorted(JSON_COLUMNS) if not _is_json(row[name])]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
