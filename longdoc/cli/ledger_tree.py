"""The byte ledger of a document as an indented tree, for people. Owns its lines; reads and sums nothing.

Lines are printed as they come: nothing of a document is kept but the folders on the way to the last file.
"""

from collections.abc import Callable, Iterator

from longdoc.cli.ledger_reading import Sums
from longdoc.cli.printing import plural, printable
from longdoc.records import Document, LedgerEntry, Segment, SourceRange

_INDENT = "  "
# Folders below folders; what lies deeper is one branch with a long name.
_LEVELS = 20


def head_lines(document: Document) -> Iterator[str]:
    """What the document is: its kind, title, authors and commit; what its source states; its warnings."""
    facts = [document.kind, document.title or "", ", ".join(document.authors), document.commit_id or ""]
    yield _joined(facts)
    stated = [document.language or "", document.publisher or "", document.date or "", *document.identifiers]
    if any(stated):
        yield _INDENT + _joined(stated)
    for warning in document.warnings:
        yield f"{_INDENT}warning: {printable(warning)}"


def _joined(facts: list[str]) -> str:
    return " · ".join(printable(fact) for fact in facts if fact)


class SegmentLines:
    """The lines of a document's segments: the files of a repository in their folders, the chapters of a book.

    What belongs to a file but holds no byte of it (its header, its padding) has no line; the sums count it. The parts
    of a chapter (notes, captions) stand below it.
    """

    def __init__(self, *, in_folders: bool) -> None:
        self._in_folders = in_folders
        self._folders: tuple[str, ...] = ()

    def lines(self, segment: Segment, num_tokens: int | None, *, with_tokens: bool) -> Iterator[str]:
        """The line of one segment, and of each folder that begins with it."""
        facts = _segment_facts(segment)
        if with_tokens and segment.text_byte_stop > segment.text_byte_start:
            facts.append("no tokens: a byte without one" if num_tokens is None else plural(num_tokens, "token"))
        if not self._in_folders or segment.display_path is None:
            yield _INDENT * (1 if segment.is_content else 2) + _line(_named(segment), facts)
        elif segment.is_content:
            *parents, name = segment.display_path.split("/")
            yield from self._enter(parents)
            kind = "" if segment.kind == "file" else segment.kind
            parts = (name, kind, printable(segment.title or ""))
            yield _INDENT * (1 + len(self._folders)) + _line(parts, facts)

    def _enter(self, parents: list[str]) -> Iterator[str]:
        shown, deeper = tuple(parents[:_LEVELS]), "/".join(parents[_LEVELS:])
        folders = (*shown, deeper) if deeper else shown
        common = 0
        for ours, theirs in zip(folders, self._folders, strict=False):
            if ours != theirs:
                break
            common += 1
        for depth in range(common, len(folders)):
            yield f"{_INDENT * (1 + depth)}{folders[depth]}/"
        self._folders = folders


def _named(segment: Segment) -> tuple[str, ...]:
    title = segment.title or ("" if segment.reason is None else segment.display_path) or ""
    return (segment.kind, printable(title))


def _segment_facts(segment: Segment) -> list[str]:
    if segment.transform is not None:
        facts = [f"{segment.text_byte_stop - segment.text_byte_start:,} bytes of text", segment.transform]
        return facts + [printable(each) for each in (segment.display_path, segment.place) if each]
    facts = [f"{segment.num_bytes_source:,} bytes"]
    if segment.encoding is not None:
        # "utf-8, by strict UTF-8" says it twice; how any other encoding was found is worth a word.
        known_from = "" if segment.encoding_source == segment.encoding else f" ({segment.encoding_source})"
        facts.append(segment.encoding + known_from)
    if segment.reason is not None:
        facts.append(f"not text: {segment.reason}")
    return facts


def ledger_lines(document: Document) -> Iterator[str]:
    """The parts of the source below each other: an archive, its members, their text and markup."""
    below: dict[int | None, list[LedgerEntry]] = {}
    for entry in document.ledger:
        below.setdefault(entry.parent, []).append(entry)
    pending: list[tuple[int, bytes | None, LedgerEntry]] = []
    pending += [(1, None, entry) for entry in reversed(below.get(None, []))]
    while pending:
        depth, around, entry = pending.pop()
        yield _INDENT * depth + _entry_line(entry, around)
        pending += [(depth + 1, entry.path, child) for child in reversed(below.get(entry.entry_index, []))]


def _entry_line(entry: LedgerEntry, around: bytes | None) -> str:
    inside = entry.num_bytes_content
    facts = [f"{entry.num_bytes:,} bytes" + (f", {inside:,} inside" if inside not in (None, entry.num_bytes) else "")]
    facts += [printable(each) for each in (entry.encoding, entry.detail) if each]
    if entry.reason is not None:
        facts.append(f"not text: {entry.reason}")
    path = entry.display_path if entry.path != around else None
    return _line((entry.kind, path or ""), facts)


def map_lines(document: Document, shown: Callable[[SourceRange], str]) -> Iterator[str]:
    """Where each stretch of a transformed text came from; `shown` is its text, shortened."""
    for each in document.source_map:
        entry = document.ledger[each.entry_index]
        where = " ".join(part for part in (entry.display_path, printable(each.place)) if part)
        yield f"{_INDENT}{each.text_byte_start:,}-{each.text_byte_stop:,}  {where}  {shown(each)}"


def total_lines(sums: Sums, model: str | None) -> Iterator[str]:
    """The sums: every byte of the source, the text, and its tokens where `model` says whose."""
    in_text, with_reason = sums.num_bytes_in_text, sums.num_bytes_with_reason
    yield f"{sums.num_bytes_source:,} source bytes = {in_text:,} in text segments + {with_reason:,} with a reason"
    added = sums.num_bytes_added
    beside = f", {added:,} of them headers and padding that no file holds" if added else ""
    yield f"{sums.num_bytes_text:,} bytes of text in UTF-8{beside}"
    if model is not None:
        left = plural(sums.num_without_tokens, "segment")
        without = f"; {left} not counted, with a byte that has none" if sums.num_without_tokens else ""
        yield f"{plural(sums.num_tokens, 'token')} of {printable(model)}{without}"


def _line(parts: tuple[str, ...], facts: list[str]) -> str:
    return "  ".join(part for part in (*parts, " · ".join(facts)) if part)
