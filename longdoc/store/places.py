"""Where things lie below an output's root. Tables hold finished Parquet files only; the rest is below `_longdoc/`.

<table>/bucket=<2 hex>/<unit>-p<nnn>.parquet   published parts and rows
_longdoc/output.json            the identity of the output
_longdoc/staging/<attempt>/     an attempt's unpublished parts, its owner, its heartbeat, its decision
_longdoc/attempts/<attempt>     `committed` or `abandoned`, created once
_longdoc/decisions/<unit>       the unit's documents rows, created once: byte for byte the documents part
_longdoc/rows/<table>/          the same for rows of quarantine and runs
_longdoc/scratch/               files that are being made
_longdoc/schedule/<entry>/      what schedulers decided, see longdoc.scheduling.journal; nothing here reads it

A name below `_longdoc` becomes part of a path, so it is looked at before it is used; what has another name than
these is foreign and never touched. Names with a dot in front are files that are being made, or a file manager's.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from longdoc.store.parts import is_unit, part_path

LEDGER_TABLES = ("quarantine", "runs")
_ATTEMPT_ID = re.compile(r"[0-9a-f]{32}")
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}")
_KEPT_ROW = re.compile(r"(?P<unit>.+)-p(?P<number>[0-9]{3,9})\.parquet")


def is_attempt_id(name: object) -> bool:
    """Whether `name` is what an attempt is called."""
    return isinstance(name, str) and _ATTEMPT_ID.fullmatch(name) is not None


def is_temporary(name: str) -> bool:
    """Whether `name` is what `longdoc.files` calls a file that it is making."""
    return _TEMPORARY.fullmatch(name) is not None


def entries(folder: Path) -> list[Path]:
    """What lies in a folder below `_longdoc`, in order of the names, without what is being made."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The paths of one output."""

    root: Path

    @property
    def internal(self) -> Path:
        """Everything that is not a table."""
        return self.root / "_longdoc"

    @property
    def output_json(self) -> Path:
        """The file that makes a folder an output."""
        return self.internal / "output.json"

    @property
    def scratch(self) -> Path:
        """Files that are being made; on the same file system as the tables."""
        return self.internal / "scratch"

    @property
    def staging_root(self) -> Path:
        """The folder of all attempts' staging folders."""
        return self.internal / "staging"

    @property
    def decisions(self) -> Path:
        """The folder of all decisions."""
        return self.internal / "decisions"

    @property
    def attempts(self) -> Path:
        """The folder of all attempts' ends."""
        return self.internal / "attempts"

    def staging(self, attempt_id: str) -> Path:
        """An attempt's own folder."""
        return self.staging_root / attempt_id

    def attempt(self, attempt_id: str) -> Path:
        """The file that says how an attempt ended."""
        return self.attempts / attempt_id

    def decision(self, unit: str) -> Path:
        """The file that says which attempt a unit belongs to."""
        return self.decisions / unit

    def kept_rows(self, table: str) -> Path:
        """Copies of the rows files of quarantine or runs, made before they are published."""
        return self.internal / "rows" / table

    def published(self, table: str, unit: str, number: int) -> Path:
        """A part where readers find it."""
        return self.root / part_path(table, unit, number)

    def documents(self, unit: str) -> Path:
        """The published documents rows of a unit."""
        return self.published("documents", unit, 0)

    def kept_target(self, table: str, name: str) -> Path | None:
        """Where the kept rows file `name` is published; None where no rows file has such a name."""
        found = _KEPT_ROW.fullmatch(name)
        if found is None or not is_unit(found["unit"]):
            return None
        target = self.published(table, found["unit"], int(found["number"]))
        return target if target.name == name else None

    def foreign(self) -> Iterator[Path]:
        """Everything in the folders below `_longdoc` that has another name, or is of another kind, than it may."""
        for path in entries(self.decisions):
            if not (is_unit(path.name) and path.is_file()):
                yield path
        for path in entries(self.attempts):
            if not (is_attempt_id(path.name) and path.is_file()):
                yield path
        for path in entries(self.staging_root):
            if not (is_attempt_id(path.name) and path.is_dir() and not path.is_symlink()):
                yield path
        for table in LEDGER_TABLES:
            for path in entries(self.kept_rows(table)):
                if not (self.kept_target(table, path.name) is not None and path.is_file()):
                    yield path
