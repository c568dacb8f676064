"""Reads an EPUB's package: what is in the book, in which order it is read, and what it says of itself.

Owns the way from `META-INF/container.xml` to the package file, its metadata, manifest, spine and guide, in EPUB 2
(OPF 2.0.1) and EPUB 3 (3.3), and the resolution of references inside a container. What is broken but clear is read with
a warning; a package that cannot be read is refused, because nothing else knows the order. Reads no chapter.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from connectors.archive import Archive, MemberError
from connectors.archive_layout import Member
from connectors.book_document import Metadata
from connectors.markup import decode_markup
from connectors.xml_repair import parse_repaired
from connectors.xml_tree import Element, XmlError
from longdoc.errors import DocumentError
from longdoc.records import display

CONTAINER = "META-INF/container.xml"
_PACKAGE_TYPE = "application/oebps-package+xml"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One resource of the manifest. `name` is its member's, resolved against the package file; None where outside."""

    item_id: str
    name: str | None
    media_type: str = ""
    properties: frozenset[str] = frozenset()
    fallback: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package file. `linear` and `auxiliary` are the spine: what is read in order, and what is beside it.

    `guide` gives the kinds of the places that an EPUB 2 names, by member and fragment.
    """

    name: str
    members: tuple[Member, ...]
    metadata: Metadata
    items: tuple[Item, ...]
    linear: tuple[Item, ...]
    auxiliary: tuple[Item, ...]
    ncx: Item | None
    guide: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def nav(self) -> Item | None:
        """The navigation document of an EPUB 3."""
        return next((item for item in self.items if "nav" in item.properties), None)


def read_package(archive: Archive) -> Package:
    """The package of a container. Warnings go to the archive's.

    Raises `DocumentError`: `damaged` without a package that can be read, `unsafe` where its XML is.
    """
    container, name = _find_package(archive)
    member = archive.find(name)
    if member is None:
        raise _damaged(archive, f"there is no package file {display(name)}")
    root = read_xml(archive, member)
    items = tuple(_items(root, member.name))
    by_id: dict[str, Item] = {}
    for item in items:
        if item.item_id in by_id:
            archive.warn(f"The manifest has several items {display(item.item_id)}: the first one holds.")
        by_id.setdefault(item.item_id, item)
    spine = _child(root, "spine")
    linear, auxiliary = _spine(archive, spine, by_id, items)
    toc = by_id.get(spine.get("toc", "")) if spine is not None else None
    return Package(
        name=member.name,
        members=(*container, member),
        metadata=_metadata(root),
        items=items,
        linear=tuple(linear),
        auxiliary=tuple(auxiliary),
        ncx=toc or next((item for item in items if item.media_type == "application/x-dtbncx+xml"), None),
        guide=dict(_guide(root, member.name)),
    )


def resolve(base: str, reference: str) -> tuple[str, str] | None:
    """The member and the fragment that a reference in member `base` leads to; None for what is outside the container.

    EPUB 3.3, 4.2.5: references are relative URLs; steps that would leave the container stay at its root.
    """
    reference = reference.strip()
    if _SCHEME.match(reference):
        return None
    path, _, fragment = reference.partition("#")
    path = unquote(path.partition("?")[0]).replace("\\", "/")
    fragment = unquote(fragment)
    if not path:
        return base, fragment
    steps = [] if path.startswith("/") else base.split("/")[:-1]
    for step in path.split("/"):
        if step == "..":
            steps = steps[:-1]
        elif step not in ("", "."):
            steps.append(step)
    return "/".join(steps), fragment


def read_xml(archive: Archive, member: Member) -> Element:
    """The tree of one of the container's own files. Raises `DocumentError` where that cannot be read."""
    try:
        text = decode_markup(archive.read(member)).text
        return parse_repaired(text, member.name, archive.warn)
    except MemberError as error:
        raise error.fault(archive.subject, "Get a whole copy of the book.") from error
    except XmlError as error:
        raise error.fault(f"{archive.subject}: {display(member.path)}", "Get another copy of the book.") from error


def _find_package(archive: Archive) -> tuple[tuple[Member, ...], str]:
    """The container file, where there is one, and the name of the package file."""
    container = archive.find(CONTAINER)
    if container is None:
        found = [member.name for member in archive.members if member.name.lower().endswith(".opf")]
        if not found:
            raise _damaged(archive, f"there is neither {CONTAINER} nor a package file (.opf)")
        archive.warn(f"There is no {CONTAINER}: {display(found[0])} was taken for the package file.")
        return (), found[0]
    roots = [each for each in _all(read_xml(archive, container), "rootfile") if each.get("full-path")]
    packages = [each for each in roots if each.get("media-type", _PACKAGE_TYPE) == _PACKAGE_TYPE] or roots
    if not packages:
        raise _damaged(archive, f"{CONTAINER} names no package file")
    if len(packages) > 1:
        archive.warn(f"The book has {len(packages)} renditions: the first one is read.")
    return (container,), (resolve("", packages[0].get("full-path")) or ("", ""))[0]


def _damaged(archive: Archive, cause: str) -> DocumentError:
    message = f"{display(archive.subject)} is not a whole EPUB: {cause}. Get another copy of the book."
    return DocumentError(message, stage="read", reason="damaged")


def _items(root: Element, base: str) -> Iterator[Item]:
    manifest = _child(root, "manifest")
    for element in _all(manifest, "item") if manifest is not None else ():
        target = resolve(base, element.get("href", ""))
        yield Item(
            item_id=element.get("id", ""),
            name=target[0] if target and target[0] != base else None,
            media_type=element.get("media-type", "").strip().lower(),
            properties=frozenset(element.get("properties", "").split()),
            fallback=element.get("fallback"),
        )


def _spine(
    archive: Archive, spine: Element | None, by_id: Mapping[str, Item], items: tuple[Item, ...]
) -> tuple[list[Item], list[Item]]:
    """The spine's items, each once: those in the linear order and those beside it."""
    references = list(_all(spine, "itemref")) if spine is not None else []
    if not references:
        archive.warn("The package has no spine: its pages are read in the order of the manifest.")
        pages = [item for item in items if "html" in item.media_type and "nav" not in item.properties]
        return pages, []
    linear: list[Item] = []
    auxiliary: list[Item] = []
    seen: set[Item] = set()
    for reference in references:
        item = by_id.get(reference.get("idref", ""))
        if item is None:
            archive.warn(f"The spine names {display(reference.get('idref', ''))}, which the manifest does not have.")
        elif item in seen:
            archive.warn(f"The spine names {display(item.item_id)} more than once: it is read where it comes first.")
        else:
            seen.add(item)
            (auxiliary if reference.get("linear", "").strip().lower() == "no" else linear).append(item)
    return linear, auxiliary


def _metadata(root: Element) -> Metadata:
    """Dublin Core, with the attributes of EPUB 2 (`opf:role`) and the refinements of EPUB 3 (`meta refines`)."""
    metadata = _child(root, "metadata")
    if metadata is None:
        return Metadata()
    fields: dict[str, list[Element]] = {}
    refined: dict[tuple[str, str], str] = {}
    for element in metadata.iter():
        if isinstance(element.tag, str):
            fields.setdefault(local_name(element), []).append(element)
    for meta in fields.get("meta", []):
        if meta.get("refines") and meta.get("property"):
            refined.setdefault((meta.get("refines").lstrip("#"), meta.get("property")), _text(meta))
    facts = _Facts(fields=fields, refined=refined)
    return Metadata(
        title=facts.title(),
        authors=facts.authors(),
        language=next(iter(facts.texts("language")), None),
        identifiers=facts.identifiers(root.get("unique-identifier")),
        publisher=next(iter(facts.texts("publisher")), None),
        date=facts.date(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """The metadata's elements by name, and what refines them by (id, property)."""

    fields: Mapping[str, list[Element]]
    refined: Mapping[tuple[str, str], str]

    def texts(self, name: str) -> list[str]:
        """The texts of one kind of element, empty ones left out."""
        return [text for element in self.fields.get(name, []) if (text := _text(element))]

    def title(self) -> str | None:
        """The main title where the book says which it is, else the first one."""
        titles = [element for element in self.fields.get("title", []) if _text(element)]
        main = [element for element in titles if self._about(element, "title-type") == "main"]
        return next((_text(element) for element in [*main, *titles]), None)

    def authors(self) -> tuple[str, ...]:
        """The creators who are authors or of no stated role, in order; where there is none, all creators."""
        creators = [element for element in self.fields.get("creator", []) if _text(element)]
        authors = [element for element in creators if self._about(element, "role") in ("", "aut")]
        return tuple(dict.fromkeys(_text(element) for element in authors or creators))

    def identifiers(self, unique: str | None) -> tuple[str, ...]:
        """All identifiers, the package's unique one first."""
        elements = [element for element in self.fields.get("identifier", []) if _text(element)]
        elements.sort(key=lambda element: element.get("id") != unique)
        return tuple(dict.fromkeys(_text(element) for element in elements))

    def date(self) -> str | None:
        """The date of publication, or one of no stated event."""
        dates = [(self._about(element, "event"), _text(element)) for element in self.fields.get("date", [])]
        of_publication = [date for event, date in dates if date and event in ("publication", "original-publication")]
        return next(iter([*of_publication, *(date for event, date in dates if date and not event)]), None)

    def _about(self, element: Element, name: str) -> str:
        attribute = next((value for key, value in element.attrib.items() if key.rpartition("}")[2] == name), "")
        return str(attribute or self.refined.get((element.get("id", ""), name), "")).strip().lower()


def _guide(root: Element, base: str) -> Iterator[tuple[tuple[str, str], str]]:
    guide = _child(root, "guide")
    for reference in _all(guide, "reference") if guide is not None else ():
        if target := resolve(base, reference.get("href", "")):
            yield target, reference.get("type", "").strip().lower()


def local_name(element: Element) -> str:
    """An element's name without its namespace, in lower case: OEB 1 wrote `dc:Title`."""
    tag: str = element.tag
    return tag.rpartition("}")[2].lower()


def _all(parent: Element, name: str) -> Iterator[Element]:
    return (each for each in parent.iter() if isinstance(each.tag, str) and local_name(each) == name)


def _child(root: Element, name: str) -> Element | None:
    return next((each for each in root if isinstance(each.tag, str) and local_name(each) == name), None)


def _text(element: Element) -> str:
    return " ".join("".join(element.itertext()).split())
