"""What the tests of verify do to documents before they are committed, and how they look at what it says."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from synthetic_output import Synthetic, make_document

from longdoc.verify import verify

KEY = make_document(1).doc_key


def faults_of(output: Path) -> list[str]:
    return [str(fault) for fault in verify(str(output)).faults]


def is_told(fault: str, found: list[str]) -> bool:
    """Whether one of the faults matches the pattern."""
    return any(re.search(fault, line) for line in found)


def part(output: Path, table: str, unit: str = KEY, number: int = 0) -> Path:
    (path,) = output.glob(f"{table}/*/{unit}-p{number:03d}.parquet")
    return path


def change_rows(table: str, place: int, **values: Any) -> Callable[[Synthetic], None]:
    def change(document: Synthetic) -> None:
        document.tables[table][place] |= values

    return change


def change_document(**values: Any) -> Callable[[Synthetic], None]:
    return lambda document: document.row.update(values)
