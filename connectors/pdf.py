"""PDF books: one page after the other, as pdfium reads them.

Owns how pages become segments. A page is a unit of kind `page`, its place `page 12` (`page 12 (xii)` where it is
labelled otherwise); where a chapter begins on it, the page is cut there and the title stands on what begins. What
Project Gutenberg puts around a book is `boilerplate`. Form fields, readers' annotations and alternative texts of
pictures stand behind their page, labelled. The text is pdfium's; only the marker that it sets for a hyphen at a line's
end is a hyphen again, and the source map says where. All bytes of the file stand on the first segment with text.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from connectors.book_document import book_document
from connectors.building import Origin, Tiles
from connectors.gutenberg import Header, find_body, read_header
from connectors.ledger import Ledger
from connectors.pdf_chapters import Beginning, find_beginnings
from connectors.pdf_metadata import read_metadata
from connectors.pdf_process import read_records
from connectors.pdf_records import FileFacts, Page
from longdoc.errors import DocumentError
from longdoc.records import Document, SourceRange, display

_BETWEEN_PAGES = "\n\n"
_HYPHEN = "line-end hyphen"
_MARKER_ENDS = "***"
_WRAPPED_MARKER = re.compile(r"(?:[^\n]+\n){0,2}?[^\n]*\*{3}[^\n]*\n?")
# Pages that a warning names before it counts the rest.
_NAMED = 10


def read_pdf(raw: bytes, *, path: Path) -> Document:
    """A PDF; `path` gives its address and, failing all else, its title.

    Raises `DocumentError`: `encrypted`, `drm`, `damaged`, `too_large_when_expanded`, `no_text_layer`, `empty`.
    """
    facts: FileFacts | None = None
    pages: list[Page] = []
    for record in read_records(raw, str(path)):
        if isinstance(record, FileFacts):
            facts = record
        else:
            pages.append(record)
    if facts is None:
        raise AssertionError("the file's facts come before its pages")
    return assemble(raw, facts, pages, path=path)


def assemble(raw: bytes, facts: FileFacts, pages: Sequence[Page], *, path: Path) -> Document:
    """The document of what pdfium said. Raises `DocumentError`: `no_text_layer`, `empty`."""
    _refuse_without_text(pages, path)
    texts = [page.text + _BETWEEN_PAGES for page in pages]
    body, header = _gutenberg("".join(texts))
    plan = _Plan()
    cuts = _cuts(pages, texts, body, find_beginnings(pages, facts.bookmarks))
    for page, cut in zip(pages, cuts, strict=True):
        plan.add_page(page, cut)
    for name in facts.attachments:
        plan.add_attachment(name)
    tiles, source_map = plan.lay_out(len(raw))
    stated = read_metadata(raw, facts)
    ledger = Ledger()
    ledger.add("pdf", len(raw))
    metadata = replace(
        stated,
        title=header.title or stated.title,
        authors=header.authors or stated.authors,
        language=stated.language or header.language,
    )
    return book_document(
        path,
        num_bytes_source=len(raw),
        metadata=metadata,
        tiles=tiles,
        ledger=ledger.entries(),
        source_map=source_map,
        warnings=tuple(_warnings(facts, pages)),
    )


def _gutenberg(text: str) -> tuple[tuple[int, int], Header]:
    """The characters between the markers, and what the header says. A marker may have been wrapped on the page."""
    start, stop = find_body(text)
    if not start:
        return (start, stop), Header()
    if not text[:start].rstrip().endswith(_MARKER_ENDS) and (rest := _WRAPPED_MARKER.match(text, start)):
        start = min(rest.end(), stop)
    return (start, stop), read_header(text[:start])


def _refuse_without_text(pages: Sequence[Page], path: Path) -> None:
    if any(page.text.strip() or page.form_fields or page.annotations for page in pages):
        return
    name = display(str(path))
    if faults := [page for page in pages if page.fault is not None]:
        cause = f"{name}: none of its {len(pages):,} pages holds text, and {len(faults):,} cannot be loaded."
        raise DocumentError(f"{cause} Get a whole copy of it.", stage="read", reason="damaged")
    if any(page.has_marks for page in pages):
        cause = f"{name} has no text layer: its {len(pages):,} pages are pictures, as a scanner makes them."
        message = f"{cause} Run it through text recognition (OCR), then try again."
        raise DocumentError(message, stage="read", reason="no_text_layer")
    message = f"{name} is empty: {len(pages):,} pages without text or pictures. Leave it out, or fill it."
    raise DocumentError(message, stage="read", reason="empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """What begins at a character of a page's text."""

    start: int
    kind: str
    title: str | None = None


def _cuts(
    pages: Sequence[Page], texts: Sequence[str], body: tuple[int, int], beginnings: Sequence[Beginning]
) -> Iterator[list[_Cut]]:
    """For each page, what begins where on it; the first cut is at 0."""
    by_page: dict[int, list[Beginning]] = {}
    for beginning in beginnings:
        by_page.setdefault(beginning.page, []).append(beginning)
    offset = 0
    for number, text in enumerate(texts):
        start, stop = body[0] - offset, body[1] - offset
        # The first of a page begins with it where nothing but white space stands before.
        titles = {
            each.start if text[: each.start].strip() else 0: each.title
            for each in reversed(by_page.get(number, []))
            if start <= each.start < stop
        }
        edges = {edge for edge in (start, stop) if edge > 0 and text[:edge].strip() and text[edge:].strip()}
        yield [
            _Cut(start=at, kind="page" if start <= _first(text, at) < stop else "boilerplate", title=titles.get(at))
            for at in sorted({0, *titles, *edges})
        ]
        offset += len(text)


def _first(text: str, start: int) -> int:
    """The first character at or behind `start` that is no white space."""
    return len(text) - len(text[start:].lstrip()) if text[start:].strip() else start


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A segment without its offsets. `hyphens` are characters of its text; `goes_on` is text of the same page."""

    kind: str
    unit: int
    is_content: bool
    place: str | None
    text: str = ""
    title: str | None = None
    hyphens: tuple[int, ...] = ()
    reason: str | None = None
    goes_on: bool = False


@dataclass(slots=True)
class _Plan:
    """The segments in order, before it is known what sets each apart from the next one."""

    segments: list[_Planned] = field(default_factory=list)
    unit: int = -1

    def add_page(self, page: Page, cuts: Sequence[_Cut]) -> None:
        """One page: its text in pieces, what stands behind it, or the reason why there is neither."""
        place = f"page {page.index + 1}"
        if page.label not in ("", str(page.index + 1)):
            place = f"{place} ({display(page.label)})"
        has_unit = bool(page.text.strip())
        if has_unit:
            self._add_text(page, cuts, place)
        behind = {"form_field": page.form_fields, "annotation": page.annotations, "alt_text": page.alt_texts}
        for kind, texts in behind.items():
            if texts:
                self._add(kind=kind, text="\n".join(texts), place=place, is_content=not has_unit)
                has_unit = True
        if not has_unit:
            marks = "no_text_layer" if page.has_marks else "no_text"
            self._add(kind="page", reason=marks if page.fault is None else "damaged", place=place)

    def _add_text(self, page: Page, cuts: Sequence[_Cut], place: str) -> None:
        stops = [cut.start for cut in cuts[1:]] + [len(page.text)]
        for cut, stop in zip(cuts, stops, strict=True):
            self._add(
                kind=cut.kind,
                title=cut.title,
                text=page.text[cut.start : stop],
                hyphens=tuple(hyphen - cut.start for hyphen in page.hyphens if cut.start <= hyphen < stop),
                place=place,
                goes_on=cut.start > 0,
            )

    def add_attachment(self, name: str) -> None:
        """A file inside the file: it is no page and stays unread."""
        self._add(kind="attachment", reason="attachment", title=display(name) or None)

    def _add(self, *, is_content: bool = True, place: str | None = None, **fields: Any) -> None:
        self.unit += is_content
        self.segments.append(_Planned(unit=self.unit, is_content=is_content, place=place, **fields))

    def lay_out(self, num_bytes_source: int) -> tuple[Tiles, tuple[SourceRange, ...]]:
        """The segments at their places, and where each came from. The first with text carries the file's bytes."""
        tiles = Tiles()
        ranges: list[SourceRange] = []
        following = [planned for planned in self.segments if planned.text][1:]
        carried = num_bytes_source
        for planned in self.segments:
            apart = ""
            if planned.text:
                ranges += _ranges(planned, tiles.num_bytes)
                apart = "" if not following or following.pop(0).goes_on else _BETWEEN_PAGES
            tiles.add(
                planned.text + apart,
                kind=planned.kind,
                unit=planned.unit,
                is_content=planned.is_content,
                title=planned.title,
                reason=planned.reason,
                origin=Origin(
                    transform="pdf" if planned.text else None,
                    place=planned.place,
                    num_bytes=carried if planned.text else 0,
                ),
            )
            carried = 0 if planned.text else carried
        return tiles, tuple(ranges)


def _ranges(planned: _Planned, offset: int) -> Iterator[SourceRange]:
    """The segment's text by place, in bytes from `offset`; hyphens that were markers are ranges of their own."""
    start = 0
    place = planned.place or ""
    for hyphen in (*planned.hyphens, len(planned.text)):
        for stop, where in ((hyphen, place), (hyphen + 1, f"{place}, {_HYPHEN}")):
            num_bytes = len(planned.text[start:stop].encode("utf-8"))
            if num_bytes:
                yield SourceRange(text_byte_start=offset, text_byte_stop=offset + num_bytes, entry_index=0, place=where)
            offset, start = offset + num_bytes, stop


def _warnings(facts: FileFacts, pages: Sequence[Page]) -> Iterator[str]:
    """What a user should know, each said once, with its pages."""
    if facts.is_rebuilt:
        yield "The file's table of objects is broken, and pdfium rebuilt it: pages may be missing."
    if len(pages) != facts.num_pages:
        yield f"The file states {facts.num_pages:,} pages, and {len(pages):,} were read."
    if facts.is_xfa:
        yield "The file holds an XFA form, which is not read; the pages are what it shows to programs without XFA."
    yield from _page_warnings(pages)
    if facts.attachments:
        yield f"{len(facts.attachments):,} attached files are not read."


def _page_warnings(pages: Sequence[Page]) -> Iterator[str]:
    num_unmapped = sum(page.num_unmapped for page in pages)
    num_hyphens = sum(len(page.hyphens) for page in pages)
    scanned = [page for page in pages if page.has_marks and not page.text.strip()]
    sayings = (
        ("cannot be loaded", [page for page in pages if page.fault is not None]),
        ("have no text layer", scanned),
        (f"have glyphs without a character ({num_unmapped:,} in all)", [page for page in pages if page.num_unmapped]),
        ("seem to be read across their columns (tables look the same)", [p for p in pages if p.is_interleaved]),
        (
            f"have hyphens at line ends, joined to what follows ({num_hyphens:,} in all)",
            [p for p in pages if p.hyphens],
        ),
    )
    for saying, found in sayings:
        if found:
            named = ", ".join(str(page.index + 1) for page in found[:_NAMED]) + (", ..." if len(found) > _NAMED else "")
            yield f"{len(found):,} of {len(pages):,} pages {saying}: {named}."
