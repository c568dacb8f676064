"""Builds the tree of a source's measured parts. Owns the numbering of its entries; measures nothing itself.

Readers of formats with an inner structure add what they measured, parents before children:

    ledger = Ledger()
    member = ledger.add("member", 120, path=b"OEBPS/c1.xhtml", num_bytes_content=300)   # 120 bytes hold 300
    ledger.add("text", 180, parent=member)
    ledger.add("markup", 120, parent=member)
    ledger.add("local_header", 44, reason="container")
    Document(..., ledger=ledger.entries())

`num_bytes` is a part's own size inside its parent. An entry that is broken down says how many bytes its children add
up to in `num_bytes_content`; `Document.check` compares both, level by level.
"""

from dataclasses import dataclass, field, replace

from longdoc.records import LedgerEntry


@dataclass(slots=True)
class Ledger:
    """The entries of one source while it is read."""

    _entries: list[LedgerEntry] = field(default_factory=list)

    def add(
        self,
        kind: str,
        num_bytes: int,
        *,
        parent: int | None = None,
        path: bytes | None = None,
        num_bytes_content: int | None = None,
        encoding: str | None = None,
        reason: str | None = None,
        detail: str | None = None,
    ) -> int:
        """Append one entry and give its index, which is what children and source ranges refer to."""
        entry_index = len(self._entries)
        if parent is not None and not 0 <= parent < entry_index:
            raise ValueError(f"entry {entry_index} lies in entry {parent}, which does not exist yet")
        self._entries.append(
            LedgerEntry(
                entry_index=entry_index,
                parent=parent,
                kind=kind,
                path=path,
                num_bytes=num_bytes,
                num_bytes_content=num_bytes_content,
                encoding=encoding,
                reason=reason,
                detail=detail,
            )
        )
        return entry_index

    def copy(self, entry: LedgerEntry, *, parent: int, shift: int) -> None:
        """Append an entry of another ledger that lies inside `parent`; its first entry has the index `shift` here."""
        inside = parent if entry.parent is None else entry.parent + shift
        self._entries.append(replace(entry, entry_index=len(self._entries), parent=inside))

    def entries(self) -> tuple[LedgerEntry, ...]:
        """All entries, parents first."""
        return tuple(self._entries)
