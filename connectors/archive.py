"""Reads ZIP archives that strangers made: members by name, expanded within bounds, every byte of the file measured.

Owns the lookup of members, the bounds on expansion, the check of every CRC that is read, and the archive's part of the
ledger. Writes nothing to a disk, so no name leads anywhere; members with names that would (`../x`, `C:x`) are set apart
all the same. `connectors.archive_layout` says where the parts are. A reader of a format inside an archive does

    archive = open_archive(raw, str(path))
    member = archive.find("OEBPS/package.opf")            # None where there is none
    content = archive.read(member)                        # raises MemberError (DocumentError where too much)
    entry = archive.add_member(ledger, member, num_bytes_content=len(content))   # the entry of its data
    ledger.add("text", ..., parent=entry)                 # ... broken down to len(content)
    flow.source(entry, path=member.path, transform="epub", num_bytes=member.num_bytes)
    ...
    archive.add_rest(ledger, flow, reason)                # all that was not added: members with reasons, the container

Every member is one top-level entry (its local header, data and descriptor are that entry's parts), and so is every part
of the container, whose reason is `container`.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from unicodedata import normalize
from urllib.parse import unquote

from connectors.archive_layout import Layout, Member, read_layout
from connectors.ledger import Ledger
from connectors.prose import Flow
from longdoc.errors import DocumentError
from longdoc.records import display

#: What may be expanded of one archive: bytes in all, and beyond the first 64 MiB as a multiple of the file's size.
MOST_EXPANDED = 1 << 30
FREELY_EXPANDED = 64 << 20
MOST_RATIO = 200
_STORED, _DEFLATED = 0, 8


class MemberError(ValueError):
    """One member's content cannot be given. `reason` is a word for its segment: `damaged`, `encrypted`, ..."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason

    def fault(self, subject: str, advice: str) -> DocumentError:
        """The same as a fault of the document that cannot do without the member."""
        return DocumentError(f"{display(subject)}: {self}. {advice}", stage="read", reason=self.reason)


_FAULTS = {
    "directory": "is a folder",
    "encrypted": "is encrypted",
    "unsafe_name": "has a name that leads out of the archive",
    "duplicate": "is superseded by a later member of the same name",
    "damaged": "is not where the archive's directory says",
}


@dataclass(slots=True, kw_only=True)
class Archive:
    """One archive. `warnings` grow while it is read; `find` and `read` cost nothing but what they expand."""

    raw: bytes = field(repr=False)
    subject: str
    layout: Layout
    warnings: list[str]
    by_name: dict[str, Member] = field(default_factory=dict, repr=False)
    by_folded: dict[str, list[Member]] = field(default_factory=dict, repr=False)
    _added: set[Member] = field(default_factory=set, repr=False)
    _warned: set[str] = field(default_factory=set, repr=False)
    _num_bytes_expanded: int = 0

    @property
    def members(self) -> tuple[Member, ...]:
        """All members, as the archive's directory lists them."""
        return self.layout.members

    def find(self, name: str) -> Member | None:
        """The member of a name with `/` between its steps; failing that, the only one that is similar.

        Similar is what differs in case, in Unicode's form, or in being percent-encoded.
        """
        if exact := self.by_name.get(name):
            return exact
        similar = self.by_folded.get(_folded(name), [])
        if len(similar) != 1:
            return None
        self.warn(f"{display(name)} is named {display(similar[0].path)} in the archive.")
        return similar[0]

    def canonical(self, name: str) -> str:
        """The name that a member has in the archive, with `/`; a name that no member has stays as it is."""
        member = self.find(name)
        return name if member is None else member.name.replace("\\", "/")

    def warn(self, warning: str) -> None:
        """Note something for the reader of the result, once."""
        if warning not in self._warned:
            self._warned.add(warning)
            self.warnings.append(warning)

    def read(self, member: Member) -> bytes:
        """A member's content, of the size and CRC that the directory states.

        Raises `MemberError`: `damaged`, `encrypted`, `unsupported_compression` and the other faults of a member.
        Raises `DocumentError` `too_large_when_expanded` before anything beyond the bounds is expanded.
        """
        name = display(member.path)
        if member.fault is not None:
            raise MemberError(f"{name} {_FAULTS[member.fault]}", reason=member.fault)
        if member.method not in (_STORED, _DEFLATED):
            message = f"{name} is compressed by method {member.method}, which no book format has"
            raise MemberError(message, reason="unsupported_compression")
        self._spend(member)
        data = self.raw[member.data_start : member.data_stop]
        content = data if member.method == _STORED else _inflated(data, member)
        if len(content) != member.num_bytes_content:
            message = f"{name} does not hold the {member.num_bytes_content:,} bytes that the directory states"
            raise MemberError(message, reason="damaged")
        if zlib.crc32(content) != member.crc32:
            raise MemberError(f"{name} has another checksum than the directory states", reason="damaged")
        return content

    def _spend(self, member: Member) -> None:
        bound = min(MOST_EXPANDED, max(FREELY_EXPANDED, MOST_RATIO * len(self.raw)))
        self._num_bytes_expanded += member.num_bytes_content
        if self._num_bytes_expanded > bound:
            cause = f"{display(self.subject)} expands to more than {bound:,} bytes, from {len(self.raw):,}"
            message = f"{cause} (at {display(member.path)}). Leave it out, or unpack it yourself if you trust it."
            raise DocumentError(message, stage="read", reason="too_large_when_expanded")

    def add_member(
        self,
        ledger: Ledger,
        member: Member,
        *,
        num_bytes_content: int | None = None,
        encoding: str | None = None,
        reason: str | None = None,
        detail: str | None = None,
    ) -> int:
        """Add a member and its parts; give the entry of its data, which is broken down where its content is counted."""
        self._added.add(member)
        inside = member.num_bytes
        parent = ledger.add("member", inside, path=member.path, num_bytes_content=inside, reason=reason, detail=detail)
        ledger.add("local_header", member.data_start - member.start, parent=parent, reason="container")
        data = ledger.add(
            "data",
            member.data_stop - member.data_start,
            parent=parent,
            path=member.path,
            num_bytes_content=num_bytes_content,
            encoding=encoding,
            reason=reason,
        )
        if member.stop > member.data_stop:
            ledger.add("data_descriptor", member.stop - member.data_stop, parent=parent, reason="container")
        return data

    def is_added(self, member: Member) -> bool:
        """Whether `add_member` had this one."""
        return member in self._added

    def add_rest(self, ledger: Ledger, flow: Flow, reason: Callable[[Member], str]) -> None:
        """Add all that is not in the ledger yet, in the order of the file, each with a segment without text.

        `reason` is asked for members without a fault of their own.
        """
        for extent in self.layout.extents:
            if extent.member is not None:
                self._add_textless(ledger, flow, extent.member, reason)
                continue
            ledger.add(extent.kind, extent.stop - extent.start, reason="container")
            flow.textless(extent.kind, reason="container", num_bytes=extent.stop - extent.start)
        for member in self.members:
            if not member.num_bytes:
                self._add_textless(ledger, flow, member, reason)

    def _add_textless(self, ledger: Ledger, flow: Flow, member: Member, reason: Callable[[Member], str]) -> None:
        if self.is_added(member):
            return
        why = member.fault or reason(member)
        if member.fault in ("damaged", "duplicate", "unsafe_name"):
            self.warn(f"{display(member.path)} {_FAULTS[member.fault]}.")
        self.add_member(ledger, member, reason=why)
        flow.textless("member", reason=why, path=member.path, num_bytes=member.num_bytes)


def open_archive(raw: bytes, subject: str) -> Archive:
    """The archive `raw`; `subject` names it in errors. Expands nothing.

    Raises `DocumentError`: `damaged` without a usable directory, `unsafe` where parts overlap or are too many.
    """
    layout = read_layout(raw, subject)
    archive = Archive(raw=raw, subject=subject, layout=layout, warnings=list(layout.warnings))
    for member in layout.members:
        if member.fault == "duplicate":
            continue
        name = member.name.replace("\\", "/")
        archive.by_name.setdefault(name, member)
        # Some programs put the name of a URL, with its %20, into the archive.
        for similar in {_folded(name), _folded(unquote(name))}:
            archive.by_folded.setdefault(similar, []).append(member)
    return archive


def _folded(name: str) -> str:
    return normalize("NFC", name).casefold()


def _inflated(data: bytes, member: Member) -> bytes:
    """At most one byte more than the directory states: whoever states less than there is gets no further."""
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        return inflater.decompress(data, member.num_bytes_content + 1)
    except zlib.error as error:
        raise MemberError(f"{display(member.path)} cannot be expanded ({error})", reason="damaged") from error


_REASONS = {
    "image": "image",
    "audio": "audio",
    "video": "video",
    "font": "font",
    "text/css": "style",
    "text/javascript": "script",
    "application/javascript": "script",
    "application/ecmascript": "script",
    "application/x-javascript": "script",
    "application/vnd.ms-opentype": "font",
    "application/x-font-ttf": "font",
    "application/x-font-otf": "font",
    "application/x-font-opentype": "font",
    "application/x-font-truetype": "font",
    "application/font-sfnt": "font",
    "application/font-woff": "font",
    "application/smil+xml": "media_overlay",
    "application/pls+xml": "pronunciation",
}
_REASONS_BY_EXTENSION = {
    "image": "apng avif bmp emf gif ico jfif jp2 jpe jpeg jpg jxl png svg svgz tif tiff webp wmf",
    "audio": "aac flac m4a m4b mp3 oga ogg opus wav",
    "video": "avi m4v mkv mov mp4 mpg ogv webm",
    "font": "eot odttf otf ttc ttf woff woff2",
    "style": "css xpgt",
    "script": "js mjs",
    "media_overlay": "smil",
    "pronunciation": "pls",
    "metadata": "ncx opf plist rdf rels xmp",
}
_BY_EXTENSION = {extension: why for why, all_ in _REASONS_BY_EXTENSION.items() for extension in all_.split()}


def reason_of(name: str, media_type: str = "") -> str:
    """Why a member that is no text of its book is none, by its media type or else its extension; `binary` failing both.

    image, audio, video, font, style, script, media_overlay, pronunciation, metadata.
    """
    kind = media_type.partition(";")[0].strip().lower()
    by_type = _REASONS.get(kind) or _REASONS.get(kind.partition("/")[0])
    return by_type or _BY_EXTENSION.get(name.rpartition(".")[2].lower(), "binary")
