"""EPUB 2 and 3: the pages of the spine in their order, then what is beside it; the table of contents only names.

Owns which member of the container becomes what: pages are text, anything else has a reason (`metadata`, `navigation`,
`not_in_spine`, `missing`, and those of `connectors.archive`). Refuses books whose pages are encrypted (`drm`, or
`encrypted` where a ZIP password would help), that are no whole EPUB (`damaged`), and that hold no text at all.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from connectors.archive import Archive, MemberError, open_archive, reason_of
from connectors.archive_layout import Member
from connectors.book_document import book_document
from connectors.epub_navigation import Navigation, read_nav, read_ncx
from connectors.epub_package import Item, Package, read_package, read_xml
from connectors.epub_pages import Page, open_page
from connectors.epub_protection import Protection, read_protection
from connectors.epub_units import PlacedPage, begin_units, linked_names
from connectors.ledger import Ledger
from connectors.markup_scan import add_markup
from connectors.markup_walk import walk
from connectors.prose import Flow
from connectors.xml_tree import XmlError
from longdoc.errors import DocumentError
from longdoc.records import Document, display

_MIMETYPE = b"application/epub+zip"
_PAGE_EXTENSIONS = (".xhtml", ".html", ".htm", ".xml", ".svg", ".xht")
_NOT_PAGES = ("image", "audio", "video", "font", "style", "script", "media_overlay", "pronunciation", "metadata")
_SVG = "image/svg+xml"


def read_epub(raw: bytes, *, path: Path) -> Document:
    """An EPUB; `path` gives its address and, failing all else, its title. Raises `DocumentError`."""
    book = _Book(archive=open_archive(raw, str(path)))
    book.open()
    book.load_pages()
    book.lay_pages()
    tiles, source_map = book.flow.lay_out()
    return book_document(
        path,
        num_bytes_source=len(raw),
        metadata=book.package.metadata,
        tiles=tiles,
        ledger=book.ledger.entries(),
        source_map=source_map,
        warnings=tuple(book.archive.warnings),
    )


@dataclass(slots=True, kw_only=True)
class _Book:
    """One EPUB while it is read. `linear` and `auxiliary` are its pages, `reasons` why other members are no text."""

    archive: Archive
    package: Package = field(init=False)
    protection: Protection = field(init=False)
    navigation: Navigation = field(init=False)
    ledger: Ledger = field(default_factory=Ledger)
    flow: Flow = field(default_factory=Flow)
    linear: list[Page] = field(default_factory=list)
    auxiliary: list[Page] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    reasons: dict[Member, str] = field(default_factory=dict)
    items: dict[str, Item] = field(default_factory=dict)
    by_id: dict[str, Item] = field(default_factory=dict)
    shown: dict[Item, Item | None] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def open(self) -> None:
        """What the container says before a page is read."""
        self._check_mimetype()
        self.protection = read_protection(self.archive)
        self.package = self._read_package()
        self.by_id = {item.item_id: item for item in reversed(self.package.items)}
        for item in self.package.items:
            if item.name is not None:
                self.items.setdefault(item.name, item)
        for member in self.package.members:
            self.reasons[member] = "metadata"
        self.navigation = self._read_navigation()

    def _read_package(self) -> Package:
        try:
            return read_package(self.archive)
        except DocumentError as error:
            if error.reason == "damaged" and (self.protection.encrypted or self.protection.scheme):
                raise self.protection.fault(self.archive.subject, "package file") from error
            raise

    def _check_mimetype(self) -> None:
        member = self.archive.find("mimetype")
        if member is None:
            self.archive.warn("The container has no mimetype file.")
            return
        self.reasons[member] = "metadata"
        if self._content(member) not in (_MIMETYPE, None):
            self.archive.warn("The container's mimetype file does not say that it is an EPUB.")

    def _content(self, member: Member) -> bytes | None:
        """A member's content; where that cannot be given the reason is kept, and warned of."""
        try:
            return self.archive.read(member)
        except MemberError as error:
            self.archive.warn(f"{error}.")
            self.reasons[member] = error.reason
            return None

    def _read_navigation(self) -> Navigation:
        """The navigation document; where it names nothing, the NCX."""
        found = self._navigation_of(self.package.nav, is_nav=True)
        if not found.points:
            ncx = self._navigation_of(self.package.ncx, is_nav=False)
            found = Navigation(points=ncx.points, landmarks=found.landmarks)
        points = [
            replace(point, target=self._canonical(point.target)) if point.target else point for point in found.points
        ]
        marks = {self._canonical(target): kind for target, kind in {**self.package.guide, **found.landmarks}.items()}
        return Navigation(points=tuple(points), landmarks=marks)

    def _canonical(self, target: tuple[str, str]) -> tuple[str, str]:
        """A place by its member's own name, where a reference writes that in another case or form."""
        return self.archive.canonical(target[0]), target[1]

    def _navigation_of(self, item: Item | None, *, is_nav: bool) -> Navigation:
        """What one of the two says; one that cannot be read names nothing, with a warning."""
        member = self.archive.find(item.name) if item is not None and item.name is not None else None
        if item is None or member is None or (content := self._content(member)) is None:
            return Navigation()
        self.reasons[member] = "navigation"
        try:
            if not is_nav:
                return read_ncx(read_xml(self.archive, member), item.name or "")
            page = open_page(member, item.name or "", content)
            return Navigation() if page is None else read_nav(page.events(self.archive.warn), page.name)
        except XmlError as error:
            raise self._unsafe(item.name or "", error) from error
        except DocumentError as error:
            if error.reason != "damaged":
                raise
            self.archive.warn(f"{display(item.name or '')} names no chapters: {error}")
            return Navigation()

    def _unsafe(self, name: str, error: XmlError) -> DocumentError:
        return error.fault(f"{self.archive.subject}: {name}", "Get another copy of the book, or leave it out.")

    def load_pages(self) -> None:
        """All pages: the spine's, and those beside it that anything leads to."""
        self._load(self.package.linear, self.linear)
        self._load(self.package.auxiliary, self.auxiliary)
        waiting = list(linked_names([*self.linear, *self.auxiliary], self.navigation.points))
        while waiting:
            linked = [self.items.get(name) or Item(item_id="", name=name) for name in dict.fromkeys(waiting)]
            num_known = len(self.auxiliary)
            self._load([item for item in linked if self._may_be_page(item)], self.auxiliary)
            waiting = list(linked_names(self.auxiliary[num_known:], ()))

    def _may_be_page(self, item: Item) -> bool:
        """Whether what is linked, but not in the spine, is a page: it exists, and is no table of contents."""
        name = self.archive.canonical(item.name or "")
        member = self.archive.find(name) if name and name not in self.names else None
        is_markup = "html" in item.media_type or name.lower().endswith(_PAGE_EXTENSIONS)
        return member is not None and is_markup and member not in self.reasons

    def _load(self, items: Iterable[Item], into: list[Page]) -> None:
        for item in items:
            shown = self._shown(item)
            if shown is None:
                continue
            if shown.name is None:
                self.archive.warn(f"The page {display(shown.item_id)} is outside the book and is not fetched.")
                continue
            name = self.archive.canonical(shown.name)
            if name not in self.names:
                self.names.add(name)
                if page := self._page(name):
                    into.append(page)

    def _shown(self, item: Item) -> Item | None:
        """The item itself, or what it falls back to where it is no page: EPUB 3.3, 3.5.1."""
        passed: list[Item] = []
        each: Item | None = item
        while each is not None and each not in self.shown:
            if _is_page(each):
                self.shown[each] = each
                break
            # Until more is known; so that a chain that comes back to itself ends.
            self.shown[each] = None
            passed.append(each)
            each = self.by_id.get(each.fallback or "")
        found = self.shown.get(each) if each is not None else None
        self.shown.update(dict.fromkeys(passed, found))
        return found or (item if self._sounds_like_page(item) else None)

    def _sounds_like_page(self, item: Item) -> bool:
        """A page with a wrong media type is one all the same."""
        return (item.name or "").lower().endswith(_PAGE_EXTENSIONS)

    def _page(self, name: str) -> Page | None:
        """One page, looked over. What is missing, damaged or no text is noted and left out; encrypted is refused."""
        member = self.archive.find(name)
        if member is None:
            self.archive.warn(f"The page {display(name)} is not in the archive.")
            self.missing.append(name)
            return None
        if {name, member.name} & self.protection.encrypted:
            raise self.protection.fault(self.archive.subject, name)
        if member.fault == "encrypted":
            cause = f"{display(self.archive.subject)} is encrypted: its page {display(name)} needs a password."
            message = f"{cause} Unpack it with the password and pack it again without."
            raise DocumentError(message, stage="read", reason="encrypted", needs="a copy without a password")
        content = self._content(member)
        if content is None:
            return None
        page = open_page(member, name, content)
        is_garbled = name in self.protection.obfuscated and not (page and page.decoded.text.lstrip().startswith("<"))
        if page is None or is_garbled:
            self._note_binary(member, name, is_garbled=is_garbled)
            return None
        try:
            page.look_over(self.archive.warn)
        except XmlError as error:
            raise self._unsafe(name, error) from error
        self.reasons.pop(member, None)
        return page

    def _note_binary(self, member: Member, name: str, *, is_garbled: bool) -> None:
        if self.protection.scheme or is_garbled:
            raise self.protection.fault(self.archive.subject, name)
        self.archive.warn(f"The page {display(name)} is no text but binary.")
        self.reasons[member] = "binary"

    def lay_pages(self) -> None:
        """Feed all pages to the flow, begin the units, and account for all that is no page."""
        notes: dict[str, set[str]] = {}
        for page in (*self.linear, *self.auxiliary):
            for name, fragment in map(self._canonical, page.notes):
                notes.setdefault(name, set()).add(fragment)
        placed = [self._lay(page, notes, is_auxiliary=False) for page in self.linear]
        placed += [self._lay(page, notes, is_auxiliary=True) for page in self.auxiliary]
        if not any(each.first_block < each.stop_block for each in placed):
            raise self._without_text()
        if num_lost := begin_units(self.flow, placed, self.navigation.points, self.navigation.landmarks):
            self.archive.warn(f"{num_lost:,} entries of the table of contents lead to no page of the book.")
        for name in self.missing:
            self.flow.textless("member", reason="missing", path=name.encode("utf-8", errors="surrogateescape"))
        self.archive.add_rest(self.ledger, self.flow, self._reason)

    def _lay(self, page: Page, notes: dict[str, set[str]], *, is_auxiliary: bool) -> PlacedPage:
        member, decoded = page.member, page.decoded
        events = page.events(self.archive.warn)
        entry_index = self.archive.add_member(
            self.ledger, member, num_bytes_content=page.num_bytes, encoding=decoded.encoding
        )
        # Pages that are read as HTML were written as XHTML: where their tags end is XML's rule.
        add_markup(self.ledger, decoded, parent=entry_index, is_xml=True)
        self.flow.source(
            entry_index, path=member.path, transform="epub", num_bytes=member.num_bytes, sha256=page.sha256
        )
        first_block = self.flow.num_blocks
        walk(events, self.flow, notes=notes.get(page.name, ()))
        return PlacedPage(
            page=page,
            entry_index=entry_index,
            first_block=first_block,
            stop_block=self.flow.num_blocks,
            is_auxiliary=is_auxiliary,
        )

    def _without_text(self) -> DocumentError:
        """Why there is nothing to read: pages that are pictures, or no page that could be read."""
        subject = display(self.archive.subject)
        if self.linear or self.auxiliary:
            message = f"{subject} holds no text: its pages are pictures or blank. Get an edition with text, or run OCR."
            return DocumentError(message, stage="read", reason="no_text_layer")
        causes = " ".join(self.archive.warnings[:3])
        message = f"{subject} is not a whole EPUB: none of its pages can be read. {causes} Get another copy of it."
        return DocumentError(message, stage="read", reason="damaged")

    def _reason(self, member: Member) -> str:
        """Why a member that is no page is no text."""
        name = member.name.replace("\\", "/")
        if known := self.reasons.get(member):
            return known
        if name in self.protection.encrypted:
            return "encrypted"
        if name.startswith("META-INF/"):
            return "metadata"
        item = self.items.get(name)
        media_type = item.media_type if item else ""
        is_markup = "html" in media_type or name.lower().endswith((".xhtml", ".html", ".htm"))
        return "not_in_spine" if is_markup else reason_of(name, media_type)


def _is_page(item: Item) -> bool:
    """Whether a resource is a page by its media type or, where that says nothing, by its name."""
    is_markup = item.media_type == _SVG or "html" in item.media_type
    return is_markup or reason_of(item.name or "", item.media_type) not in _NOT_PAGES
