"""Which files lie where: only finished Parquet files under the tables, each with a path that says what it is.

Below `_longdoc` only what longdoc puts there: a recovery stops at anything else.
"""

from pathlib import Path

from longdoc.checks.findings import Findings
from longdoc.store.columns import TABLES
from longdoc.store.commit import ABANDONED, COMMITTED
from longdoc.store.parts import parse_part_path
from longdoc.store.places import LEDGER_TABLES, Places, entries, is_attempt_id


def parsed(name: str) -> tuple[str, str, int]:
    """Table, unit and number of a file that `inventory` gave."""
    found = parse_part_path(name)
    if found is None:
        raise AssertionError(f"{name} passed the inventory")
    return found


def inventory(findings: Findings, places: Places) -> dict[str, set[str]]:
    """The files of each table, as paths below the output. Anything else under a table is a fault."""
    files: dict[str, set[str]] = {table: set() for table in TABLES}
    for table in TABLES:
        for path in sorted((places.root / table).rglob("*")):
            name = path.relative_to(places.root).as_posix()
            with findings.reading(table, name):
                if path.is_dir() and not path.is_symlink():
                    continue
                if problem := _problem(path, name):
                    findings.fault(table, name, problem)
                else:
                    files[table].add(name)
    _check_internal(findings, places)
    return files


def _check_internal(findings: Findings, places: Places) -> None:
    with findings.reading("documents", places.internal):
        for path in places.foreign():
            table = path.parent.name if path.parent.name in LEDGER_TABLES else "documents"
            findings.fault(table, path, "is not longdoc's; the next run stops at it. Move it out of the output")
    for path in entries(places.attempts):
        if is_attempt_id(path.name):
            with findings.reading("documents", path):
                if path.read_bytes() not in (COMMITTED, ABANDONED):
                    findings.fault("documents", path, "says neither that the attempt was committed nor abandoned")


def _problem(path: Path, name: str) -> str | None:
    if not path.is_file():
        return "is no file"
    if path.suffix != ".parquet":
        return "is not a Parquet file; tables hold finished Parquet files and nothing else"
    if parse_part_path(name) is None:
        return "does not have a path of the form <table>/bucket=<2 hex>/<unit>-p<nnn>.parquet"
    return None
