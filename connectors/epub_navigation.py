"""Reads what names the places of an EPUB: the navigation document of EPUB 3, the NCX of EPUB 2. They name, only.

Owns the order, nesting and labels of a table of contents, and the landmarks. The order of reading is the spine's; pages
of a printed edition (`page-list`) and other lists are passed over. Neither needs to be well-formed markup.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from connectors.epub_package import local_name, resolve
from connectors.markup_events import Event, Start
from connectors.xml_tree import Element


@dataclass(frozen=True, slots=True, kw_only=True)
class NavPoint:
    """One entry of a table of contents: its label, and the member and fragment it leads to (None: nowhere inside).

    `depth` is 0 for the outermost. Entries are in the order in which they stand, parents first.
    """

    title: str
    depth: int
    target: tuple[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Navigation:
    """The table of contents and the kinds of places (`bodymatter`, `titlepage` ...), by where they lead."""

    points: tuple[NavPoint, ...] = ()
    landmarks: Mapping[tuple[str, str], str] = field(default_factory=dict)


def read_nav(events: Iterable[Event], name: str) -> Navigation:
    """The lists of a navigation document, member `name`: https://www.w3.org/TR/epub-33/#sec-nav."""
    links = list(_nav_links(events))
    points = [
        NavPoint(title=link.title, depth=link.depth, target=resolve(name, link.href) if link.href else None)
        for link in links
        if "toc" in link.nav and link.title
    ]
    marks: dict[tuple[str, str], str] = {}
    for link in links:
        if "landmarks" in link.nav and (target := resolve(name, link.href)):
            marks.setdefault(target, link.kind)
    return Navigation(points=tuple(points), landmarks=marks)


def read_ncx(root: Element, name: str) -> Navigation:
    """The map of an NCX, member `name`: https://daisy.org/activities/standards/daisy/daisy-2/z39-86-2005/ section 8."""
    points: list[NavPoint] = []
    pending = [(each, 0) for each in reversed(_children(root, "navmap"))]
    while pending:
        element, depth = pending.pop()
        if local_name(element) == "navpoint":
            points += _ncx_point(element, name, depth)
        inner = depth + (local_name(element) == "navpoint")
        pending += [(child, inner) for child in reversed(_children(element, "navpoint"))]
    return Navigation(points=tuple(points))


def _ncx_point(element: Element, name: str, depth: int) -> Iterator[NavPoint]:
    labels = [text for label in _children(element, "navlabel") for text in _children(label, "text")]
    title = " ".join("".join("".join(text.itertext()) for text in labels[:1]).split())
    sources = [content.get("src", "") for content in _children(element, "content")]
    if title:
        yield NavPoint(title=title, depth=depth, target=resolve(name, sources[0]) if sources else None)


def _children(element: Element, name: str) -> list[Element]:
    return [each for each in element if isinstance(each.tag, str) and local_name(each) == name]


@dataclass(slots=True, kw_only=True)
class _Link:
    """An entry of a list of a navigation document: a link, or a heading that leads nowhere."""

    nav: frozenset[str]
    depth: int
    href: str
    kind: str
    texts: list[str] = field(default_factory=list)
    alts: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """Its text on one line, or what stands for it where it is a picture."""
        return " ".join("".join(self.texts).split()) or " ".join(" ".join(self.alts).split())


def _nav_links(events: Iterable[Event]) -> Iterator[_Link]:
    """The entries of all `nav` elements: links and spans that stand directly in a list entry."""
    nav: frozenset[str] | None = None
    names: list[str] = []
    depth, link_depth = -1, 0
    link: _Link | None = None
    for event in events:
        if isinstance(event, str):
            if link is not None:
                link.texts.append(event)
        elif isinstance(event, Start):
            if event.name == "nav":
                nav, depth = frozenset(event.attributes.get("epub:type", "").split()), -1
            depth += event.name == "ol"
            is_entry = event.name == "a" or (event.name == "span" and names[-1:] == ["li"])
            if nav is not None and depth >= 0 and is_entry and link is None:
                attributes = event.attributes
                href, kind = attributes.get("href", ""), attributes.get("epub:type", "")
                link, link_depth = _Link(nav=nav, depth=depth, href=href, kind=kind), len(names)
            elif link is not None:
                link.alts.append(event.attributes.get("alt", ""))
            names.append(event.name)
        else:
            depth -= names.pop() == "ol"
            if link is not None and len(names) == link_depth:
                yield link
                link = None
            nav = None if event.name == "nav" else nav
