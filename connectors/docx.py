"""DOCX books: what Word shows of a document, in its order, as chapters.

Owns which parts of the package are read and where they stand. The document comes first, its headings are the chapters;
each footnote stands behind the paragraph or table that refers to it, what charts and diagrams say likewise; then come
endnotes, comments, and the headers and footers of pages, each once. Old `.doc` files, and documents with a password,
are no ZIP archives and are told apart by `connectors.formats`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from connectors.archive import MemberError, open_archive
from connectors.book_document import book_document
from connectors.building import Tiles
from connectors.docx_names import name_of
from connectors.docx_package import Package, Part, Relationship, read_properties
from connectors.docx_scan import count_part
from connectors.docx_steps import PartReading, Step
from connectors.docx_styles import Styles
from connectors.docx_walk import read_part
from connectors.gutenberg import Header
from connectors.headings import label_units
from connectors.ledger import Ledger
from connectors.markup_scan import add_counts
from connectors.prose import Flow
from connectors.xml_tree import XmlError
from longdoc.errors import DocumentError
from longdoc.records import Document, SourceRange, display

_USUAL_MAIN = "word/document.xml"
_NOTES = {"footnote": "footnotes", "endnote": "endnotes", "comment": "comments"}
_WHOLE_COPY = "Get a whole copy of it."


def read_docx(raw: bytes, *, path: Path) -> Document:
    """A DOCX book; `path` gives its address and, failing all else, its title.

    Raises `DocumentError`: `damaged` and `encrypted` for an archive or main part that cannot be read, `unknown_format`
    for another kind of Office document, `no_text_layer` for one that is only pictures, `empty`, `unsafe`,
    `too_large_when_expanded`.
    """
    package = Package(open_archive(raw, str(path)))
    relationships = {each.kind: each.target for each in reversed(package.relationships())}
    core = package.try_read(relationships.get("core-properties", "docProps/core.xml"))
    book = _Book(package=package, main_name=relationships.get("officeDocument", _USUAL_MAIN))
    book.read()
    tiles, source_map = book.lay_out()
    if not tiles.num_bytes:
        raise _without_text(package, path)
    stated = read_properties(None if core is None else core.root)
    metadata = replace(
        stated,
        title=book.header.title or stated.title or book.first_title(),
        authors=book.header.authors or stated.authors,
        language=book.header.language or stated.language or book.styles.language or None,
    )
    return book_document(
        path,
        num_bytes_source=len(raw),
        metadata=metadata,
        tiles=tiles,
        ledger=book.ledger.entries(),
        source_map=source_map,
        warnings=tuple(package.archive.warnings),
    )


def _without_text(package: Package, path: Path) -> DocumentError:
    name = display(str(path))
    if any(package.reason(member) == "image" for member in package.archive.members):
        cause = f"{name} has no text: it holds pictures only."
        message = f"{cause} Run them through text recognition (OCR), then try again."
        return DocumentError(message, stage="read", reason="no_text_layer")
    message = f"{name} is empty: it holds no text. Leave it out, or fill it."
    return DocumentError(message, stage="read", reason="empty")


@dataclass(slots=True, kw_only=True)
class _ReadPart:
    """A part that was read: its entry in the ledger, and whether text of it has been laid down already."""

    part: Part
    entry: int
    reading: PartReading
    relationships: dict[str, Relationship]
    is_begun: bool = False


@dataclass(slots=True, kw_only=True)
class _Book:
    """One document while it is read. `present` is the part whose text was laid down last."""

    package: Package
    main_name: str
    ledger: Ledger = field(default_factory=Ledger)
    flow: Flow = field(default_factory=Flow)
    styles: Styles = field(default_factory=lambda: Styles(None))
    header: Header = field(default_factory=Header)
    parts: dict[str, _ReadPart | None] = field(default_factory=dict)
    present: _ReadPart | None = None
    played: set[tuple[str, str]] = field(default_factory=set)
    first_kind: str = "text"
    num_missing_notes: int = 0
    notes_names: dict[str, str] = field(default_factory=dict)
    later: dict[str, list[str]] = field(default_factory=lambda: {"endnote": [], "comment": []})

    def read(self) -> None:
        """Everything that is text, in its order."""
        main = self._read_main()
        self._find_notes(main)
        self.play(main.reading.steps, main)
        self.header = label_units(self.flow)
        self.first_kind = "front_matter" if self.flow.headings() else "text"
        for kind in _NOTES:
            self._play_later(kind)
        for kind, relationship_id in main.reading.headers:
            self._play_margin(kind, main.relationships.get(relationship_id))
        self.package.pass_over(self._unshown_margins(main))
        for part in self.parts.values():
            if part is not None and not part.is_begun:
                member = part.part.member
                self.flow.textless("member", reason="no_text", path=member.path, num_bytes=member.num_bytes)
        self.package.archive.add_rest(self.ledger, self.flow, self.package.reason)
        self._warn()

    def lay_out(self) -> tuple[Tiles, tuple[SourceRange, ...]]:
        """The segments and the source map."""
        return self.flow.lay_out(first_kind=self.first_kind)

    def first_title(self) -> str | None:
        """The title that stands above all headings, or the first heading."""
        return next((heading.title for heading in self.flow.headings() if heading.title), None)

    def _read_main(self) -> _ReadPart:
        subject = self.package.archive.subject
        try:
            part = self.package.read(self.main_name)
        except (MemberError, XmlError) as error:
            raise error.fault(subject, _WHOLE_COPY) from error
        if part is None:
            cause = f"{display(subject)} is damaged: its main part, {display(self.main_name)}, is missing."
            raise DocumentError(f"{cause} {_WHOLE_COPY}", stage="read", reason="damaged")
        if name_of(part.root) != "w:document":
            cause = f"{display(subject)} is an Office document, but no text document (it begins with"
            message = f"{cause} {display(name_of(part.root))}). Save it as .docx, or leave it out."
            raise DocumentError(message, stage="read", reason="unknown_format")
        relationships = self.package.relationships(self.main_name)
        styles = next((each.target for each in relationships if each.kind == "styles"), "")
        found = self.package.try_read(styles) if styles else None
        self.styles = Styles(None if found is None else found.root)
        return self._add(self.main_name, part, relationships)

    def _find_notes(self, main: _ReadPart) -> None:
        """The parts that hold notes; one part is read for one kind."""
        targets = {each.kind: each.target for each in main.relationships.values()}
        for kind, plural in _NOTES.items():
            name = targets.get(plural, self.main_name)
            if name != self.main_name and name not in self.notes_names.values():
                self.notes_names[kind] = name

    def _add(self, name: str, part: Part, relationships: Sequence[Relationship]) -> _ReadPart:
        reading = read_part(part.root, self.styles)
        encoding = part.decoded.encoding
        entry = self.package.archive.add_member(
            self.ledger, part.member, num_bytes_content=len(part.content), encoding=encoding
        )
        add_counts(self.ledger, part.decoded, count_part(part.decoded, reading), parent=entry)
        by_id = {each.relationship_id: each for each in relationships}
        added = self.parts[name] = _ReadPart(part=part, entry=entry, reading=reading, relationships=by_id)
        return added

    def _part(self, name: str) -> _ReadPart | None:
        """A part besides the main one; None, with a warning, where it cannot be read."""
        if name not in self.parts:
            self.parts[name] = None
            part = self.package.try_read(name)
            if part is not None and not self.package.archive.is_added(part.member):
                self._add(name, part, self.package.relationships(name))
        return self.parts[name]

    def _new_part(self, relationship: Relationship | None) -> _ReadPart | None:
        """A part that was not read before: a header or a chart stands once, however often it is shown."""
        if relationship is None or relationship.target in self.parts:
            return None
        return self._part(relationship.target)

    def play(self, steps: Sequence[Step], part: _ReadPart) -> None:
        """Do what the walk through a part has said."""
        for step in steps:
            if step.name == "note":
                self._play_note(*step.arguments)
            elif step.name == "figure":
                self._play_figure(part.relationships.get(step.arguments[0]))
            elif step.name == "chunk":
                chunk = part.relationships.get(step.arguments[0])
                name = display(chunk.target) if chunk else "a part that is missing"
                self.package.archive.warn(f"Another document that belongs into this one is not read: {name}.")
            else:
                if step.name in ("exact", "aside"):
                    self._begin(part)
                getattr(self.flow, step.name)(*step.arguments)

    def _begin(self, part: _ReadPart) -> None:
        """What follows comes from this part, whose bytes are told once."""
        if self.present is part:
            return
        member = part.part.member
        self.flow.source(
            part.entry,
            path=member.path,
            transform="docx",
            num_bytes=0 if part.is_begun else member.num_bytes,
            sha256=hashlib.sha256(part.part.content).hexdigest(),
        )
        self.present, part.is_begun = part, True

    def _play_note(self, kind: str, note_id: str) -> None:
        """Footnotes stand here, endnotes and comments at the end of the document."""
        if kind in self.later:
            self.later[kind].append(note_id)
        else:
            self._lay_note(kind, note_id)

    def _notes_part(self, kind: str) -> _ReadPart | None:
        name = self.notes_names.get(kind)
        return None if name is None else self._part(name)

    def _lay_note(self, kind: str, note_id: str) -> None:
        part = self._notes_part(kind)
        steps = None if part is None else part.reading.notes.get(note_id)
        if part is None or steps is None:
            self.num_missing_notes += 1
        elif (kind, note_id) not in self.played:
            self.played.add((kind, note_id))
            self.flow.begin("comment" if kind == "comment" else "note", "/")
            self.play(steps, part)
            self.flow.end()

    def _play_later(self, kind: str) -> None:
        """Notes that stand at the end, and after them those that nothing refers to."""
        part = self._notes_part(kind)
        if part is None:
            self.num_missing_notes += len(self.later.get(kind, ()))
            return
        rest = [note_id for note_id in part.reading.notes if (kind, note_id) not in self.played]
        note_ids = [*self.later.get(kind, ()), *rest]
        if note_ids or part.reading.steps:
            self.flow.unit("comments" if kind == "comment" else "notes")
        for note_id in note_ids:
            self._lay_note(kind, note_id)
        self.play(part.reading.steps, part)

    def _play_figure(self, relationship: Relationship | None) -> None:
        """What a chart or a diagram says in words."""
        if part := self._new_part(relationship):
            self.flow.begin("figure", f"/{name_of(part.part.root)}")
            self.play(part.reading.steps, part)
            self.flow.end()

    def _play_margin(self, kind: str, relationship: Relationship | None) -> None:
        """A header or footer, once, whatever the number of pages and sections that show it."""
        if part := self._new_part(relationship):
            self.flow.unit(f"page_{kind}")
            self.play(part.reading.steps, part)

    def _unshown_margins(self, main: _ReadPart) -> list[str]:
        """The headers and footers that the document has and no section shows, whatever their members are called."""
        margins = [each.target for each in main.relationships.values() if each.kind in ("header", "footer")]
        return [target for target in margins if target not in self.parts]

    def _warn(self) -> None:
        warn = self.package.archive.warn
        read = [part.reading for part in self.parts.values() if part is not None]
        if num_symbols := sum(reading.num_symbols for reading in read):
            warn(f"{num_symbols:,} characters of symbol fonts stand as characters of the private use area.")
        if self.num_missing_notes:
            warn(f"{self.num_missing_notes:,} references to notes or comments lead to none.")
