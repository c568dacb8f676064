"""The parts of a DOCX, which is a ZIP archive, and how they refer to each other (ECMA-376, part 2: Open Packaging).

Owns the relationships, the core properties, and the reason of each member that is not read. Refuses XML that declares
entities, which no Office program writes. Nothing that lies outside the package is ever fetched.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote

from connectors.archive import Archive, MemberError, reason_of
from connectors.archive_layout import Member
from connectors.book_document import Metadata
from connectors.decode import Decoded
from connectors.markup import decode_markup
from connectors.xml_tree import Element, XmlError, parse_xml
from longdoc.errors import DocumentError
from longdoc.records import display

#: A tree takes up to twenty times the memory of its XML.
MOST_XML = 128 << 20
_ROOT = ""
_SEVERAL = re.compile(r"\s*;\s*")
# By the folder below the main part's, or the name.
_REASONS = (
    ("embeddings/", "embedded"),
    ("afchunk", "embedded"),
    ("glossary/", "glossary"),
    ("vbaproject", "script"),
    ("vbadata", "script"),
    ("activex/", "script"),
    ("styles", "style"),
    ("theme/", "style"),
    ("header", "not_referenced"),
    ("footer", "not_referenced"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relationship:
    """Where a part leads. `kind` is the last step of its type (`styles`, `footnotes`), `target` a member's name."""

    relationship_id: str
    kind: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The XML of one member."""

    member: Member
    content: bytes = field(repr=False)
    decoded: Decoded = field(repr=False)
    root: Element = field(repr=False)


@dataclass(slots=True)
class Package:
    """One DOCX. `faults` are the reasons of members that could not be read, or that nothing shows."""

    archive: Archive
    faults: dict[Member, str] = field(default_factory=dict)

    def relationships(self, name: str = _ROOT) -> list[Relationship]:
        """What a part refers to inside the package, in the order of its file; the package itself without a name."""
        folder, base = posixpath.split(name)
        part = self.try_read(posixpath.join(folder, "_rels", f"{base}.rels"))
        return [] if part is None else list(_relationships(part.root, folder))

    def read(self, name: str) -> Part | None:
        """The XML of a member, None where there is no such member.

        Raises `MemberError` and `XmlError`, and `DocumentError` `too_large_when_expanded` before anything is expanded.
        """
        member = self.archive.find(name)
        if member is None:
            return None
        if member.num_bytes_content > MOST_XML:
            cause = f"{display(self.archive.subject)}: {display(name)} expands to more than {MOST_XML >> 20} MiB of XML"
            message = f"{cause}. Leave it out, or split it."
            raise DocumentError(message, stage="read", reason="too_large_when_expanded")
        content = self.archive.read(member)
        decoded = decode_markup(content)
        if "<!DOCTYPE" in decoded.text or "<!ENTITY" in decoded.text:
            raise XmlError("it declares a document type, which no Office program does", reason="unsafe")
        return Part(member=member, content=content, decoded=decoded, root=parse_xml(decoded.text))

    def try_read(self, name: str) -> Part | None:
        """The XML of a member that the document can do without: one at fault is None, with a warning."""
        try:
            return self.read(name)
        except (MemberError, XmlError) as error:
            if member := self.archive.find(name):
                self.faults[member] = error.reason
            self.archive.warn(f"{display(name)} is left unread: {error}.")
            return None

    def pass_over(self, names: Iterable[str]) -> None:
        """Note members that nothing of the document shows."""
        for name in names:
            if member := self.archive.find(name):
                self.faults.setdefault(member, "not_referenced")

    def reason(self, member: Member) -> str:
        """Why a member that was not read as text is none."""
        if fault := self.faults.get(member):
            return fault
        below = member.name.lower().partition("/")[2] or member.name.lower()
        for start, why in _REASONS:
            if below.startswith(start):
                return why
        return "metadata" if member.name.lower().endswith(".xml") else reason_of(member.name)


def _relationships(root: Element, folder: str) -> Iterator[Relationship]:
    for element in root:
        if not isinstance(element.tag, str) or element.get("TargetMode") == "External":
            continue
        target = unquote(element.get("Target", "")).partition("#")[0]
        joined = target if target.startswith("/") else posixpath.join(folder, target)
        yield Relationship(
            relationship_id=element.get("Id", ""),
            kind=element.get("Type", "").rpartition("/")[2],
            target=posixpath.normpath(joined).lstrip("/"),
        )


def read_properties(root: Element | None) -> Metadata:
    """The core properties of a package: Dublin Core (part 2, 11); none without their part.

    `date` is when the document was created; nothing says who published it.
    """
    texts: dict[str, list[str]] = {}
    for element in () if root is None else root:
        if isinstance(element.tag, str) and (text := " ".join("".join(element.itertext()).split())):
            texts.setdefault(element.tag.rpartition("}")[2], []).append(text)
    creators = [name for creator in texts.get("creator", ()) for name in _SEVERAL.split(creator) if name]
    return Metadata(
        title=_first(texts, "title"),
        authors=tuple(dict.fromkeys(creators)),
        language=_first(texts, "language"),
        identifiers=tuple(texts.get("identifier", ())),
        date=_first(texts, "created"),
    )


def _first(texts: dict[str, list[str]], name: str) -> str | None:
    return next(iter(texts.get(name, ())), None)
