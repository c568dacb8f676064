"""Which files lie where: only finished Parquet files under the tables, each with a path that says what it is."""

from pathlib import Path

from longdoc.checks.findings import Findings
from longdoc.store.columns import TABLES
from longdoc.store.parts import parse_part_path
from longdoc.store.places import Places


def inventory(findings: Findings, places: Places) -> dict[str, set[str]]:
    """The files of each table, as paths below the output. Anything else under a table is a fault."""
    files: dict[str, set[str]] = {table: set() for table in TABLES}
    for table in TABLES:
        for path in sorted((places.root / table).rglob("*")):
            if path.is_dir() and not path.is_symlink():
                continue
            name = path.relative_to(places.root).as_posix()
            if problem := _problem(path, name):
                findings.fault(table, name, problem)
            else:
                files[table].add(name)
    return files


def _problem(path: Path, name: str) -> str | None:
    if not path.is_file():
        return "is no file"
    if path.suffix != ".parquet":
        return "is not a Parquet file; tables hold finished Parquet files and nothing else"
    if parse_part_path(name) is None:
        return "does not have a path of the form <table>/bucket=<2 hex>/<unit>-p<nnn>.parquet"
    return None
