"""What the walk through a part of a DOCX gives: steps to play, and what became of every element's characters.

Owns the records only. `connectors.docx_walk` makes them, `connectors.docx` plays the steps, `connectors.docx_scan`
counts by what was read.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Step(NamedTuple):
    """What to do next: a method of `Flow` and its arguments, or `note`, `figure`, `chunk` and an identifier."""

    name: str
    arguments: tuple[Any, ...] = ()


@dataclass(slots=True)
class PartReading:
    """One part, read. `notes` holds the steps of each note by its identifier; the rest of the part is in `steps`.

    Elements are numbered in the order of their start tags, from 0: `read` are those whose own characters became text,
    `unread` gives the reason for those of others. `headers` are (`header` or `footer`, relationship).
    """

    steps: list[Step] = field(default_factory=list)
    notes: dict[str, list[Step]] = field(default_factory=dict)
    read: set[int] = field(default_factory=set)
    unread: dict[int, str] = field(default_factory=dict)
    headers: list[tuple[str, str]] = field(default_factory=list)
    num_symbols: int = 0


@dataclass(slots=True, kw_only=True)
class Paragraph:
    """A paragraph that is open: its text so far, what stands beside it, and what comes behind it."""

    start: list[Step]
    end: list[Step]
    texts: list[str] = field(default_factory=list)
    asides: list[Step] = field(default_factory=list)
    behind: list[Step] = field(default_factory=list)
    notes: list[Step] = field(default_factory=list)


@dataclass(slots=True)
class Story:
    """Paragraphs and tables: the part's own, or those of a text box or note. `fields` are True inside their code."""

    steps: list[Step]
    fields: list[bool] = field(default_factory=list)
    paragraphs: list[Paragraph] = field(default_factory=list)
    tables: int = 0
    was_entry: bool = False
    notes: list[Step] = field(default_factory=list)
