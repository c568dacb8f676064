"""Where things lie below an output's root. Tables hold finished Parquet files only; the rest is below `_longdoc/`.

<table>/bucket=<2 hex>/<unit>-p<nnn>.parquet   published parts and rows
_longdoc/output.json            the identity of the output
_longdoc/staging/<attempt>/     an attempt's unpublished parts, its owner, its heartbeat, its decision
_longdoc/attempts/<attempt>     `committed` or `abandoned`, created once
_longdoc/decisions/<unit>       the unit's documents rows, created once: byte for byte the documents part
_longdoc/rows/<table>/          the same for rows of quarantine and runs
_longdoc/scratch/               files that are being made
"""

from dataclasses import dataclass
from pathlib import Path

from longdoc.store.parts import part_path


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
