"""A decision read back: the documents row of one unit, believed only where it is about that unit and its own parts.

Owns what makes a decision sound, for the commit that acts on it and for `verify`. What a decision names becomes paths
that are linked, so one that names anything but parts of its own unit is damaged, whoever wrote it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longdoc.errors import InfrastructureError
from longdoc.store.parts import parse_part_path
from longdoc.store.places import is_attempt_id
from longdoc.store.rows import DAMAGED, read_rows
from longdoc.store.schemas import OutputIdentity

PART_TABLES = ("segments", "spans", "tokens")
_COLUMNS = ("doc_key", "attempt_id", "parts")


def is_part_of(table: str, path: str, unit: str) -> bool:
    """Whether `path` is the path of a part of `unit` in a table that a document has parts in."""
    found = parse_part_path(path)
    return found is not None and found[:2] == (table, unit) and table in PART_TABLES


def decision_problem(row: Mapping[str, Any], unit: str) -> str | None:
    """What is wrong with a documents row (doc_key, attempt_id, parts) as the decision about `unit`; None if nothing."""
    if row["doc_key"] != unit:
        return f"it is about document {row['doc_key']}"
    if not is_attempt_id(row["attempt_id"]):
        return f"{row['attempt_id']!r} is no attempt"
    for part in row["parts"]:
        if not is_part_of(part["table"], part["path"], unit):
            return f"it names {part['path']!r}, which is no part of the unit"
    return None


def read_decision(
    path: Path, unit: str, identity: OutputIdentity, content: bytes | None = None, *, also: Sequence[str] = ()
) -> dict[str, Any]:
    """The doc_key, attempt_id and parts of the decision at `path`, whose bytes are `content` where they are known.

    `also` names further columns. Raises `InfrastructureError` where it cannot be read or is no decision about `unit`.
    """
    try:
        (row,) = read_rows(path if content is None else content, "documents", identity, columns=(*_COLUMNS, *also))
        if problem := decision_problem(row, unit):
            raise ValueError(problem)
    except DAMAGED as error:
        raise InfrastructureError(
            f"{path} is damaged: {error}. Restore it, or copy the unit's documents part over it, and run "
            "`longdoc verify` on the output."
        ) from error
    return row
