"""What a benchmark found: what ran, tables, and targets that were met or missed. Knows no terminal and no torch."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

Cell = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table. `spec` formats its numbers (`str.format`); a cell of None is what could not be measured."""

    name: str
    spec: str = "{}"

    def show(self, cell: Cell) -> str:
        """A cell as text; words stand as they are."""
        if cell is None:
            return "-"
        return cell if isinstance(cell, str) else self.spec.format(cell)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under one title. Raises `ValueError` for a row of another width."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.title!r}: a row of {len(row)} cells under {len(self.columns)} columns")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A number that is held against a bound. `value` is None where it could not be measured: that is a miss."""

    name: str
    value: float | None
    relation: Literal["at most", "at least"]
    bound: float
    spec: str = "{:.3f}"

    @property
    def met(self) -> bool:
        """Whether the number was measured and keeps to its bound."""
        if self.value is None or math.isnan(self.value):
            return False
        return self.value <= self.bound if self.relation == "at most" else self.value >= self.bound

    def __str__(self) -> str:
        value = "not measured" if self.value is None else self.spec.format(self.value)
        verdict = "ok  " if self.met else "MISS"
        return f"{verdict} {self.name}: {value}, target {self.relation} {self.spec.format(self.bound)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All of one benchmark. `facts` say what ran: versions, threads, cores, commit, settings."""

    bench: str
    facts: dict[str, Cell]
    tables: tuple[Table, ...]
    targets: tuple[Target, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def missed(self) -> tuple[Target, ...]:
        """The targets that were not met."""
        return tuple(target for target in self.targets if not target.met)

    def as_json(self) -> dict[str, Any]:
        """Everything, unformatted; a row is an object by column names, a number that is not finite is null."""
        return {
            "bench": self.bench,
            "facts": {name: _json_cell(cell) for name, cell in self.facts.items()},
            "tables": [
                {
                    "title": table.title,
                    "rows": [
                        {column.name: _json_cell(cell) for column, cell in zip(table.columns, row, strict=True)}
                        for row in table.rows
                    ],
                }
                for table in self.tables
            ],
            "targets": [
                {
                    "name": target.name,
                    "value": _json_cell(target.value),
                    "relation": target.relation,
                    "bound": target.bound,
                    "met": target.met,
                }
                for target in self.targets
            ],
            "notes": list(self.notes),
        }


def _json_cell(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell
