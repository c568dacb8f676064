"""Where the parts of a ZIP archive lie in its file: every byte is in exactly one. Expands nothing.

Owns the records of PKWARE's APPNOTE 6.3.10 (section numbers in the comments) and their offsets: local headers, data,
data descriptors, the central directory, the end records with those of ZIP64, and what lies between, before and behind
them. Refuses an archive without a directory, one of several volumes, and one whose parts overlap.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from longdoc.errors import DocumentError
from longdoc.records import display

_LOCAL = struct.Struct("<4s5H3L2H")  # 4.3.7: signature, ..., name length, extra length
_CENTRAL = struct.Struct("<4s6H3L5H2L")  # 4.3.12
_END = struct.Struct("<4s4H2LH")  # 4.3.16
_END64 = struct.Struct("<4sQ2H2L4Q")  # 4.3.14
_LOCATOR64 = struct.Struct("<4sLQL")  # 4.3.15
_LOCAL_SIGNATURE, _CENTRAL_SIGNATURE, _END_SIGNATURE = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
_END64_SIGNATURE, _LOCATOR64_SIGNATURE, _DESCRIPTOR_SIGNATURE = b"PK\x06\x06", b"PK\x06\x07", b"PK\x07\x08"
_LONGEST_COMMENT = 0xFFFF
_IN_EXTRA, _IN_EXTRA_16 = 0xFFFFFFFF, 0xFFFF
_EXTRA_ZIP64 = 1
_FLAG_ENCRYPTED, _FLAG_DESCRIPTOR, _FLAG_MASKED = 1, 1 << 3, 1 << 13
# Each needs about 2 KB here and 76 bytes in a file; no book has a hundredth of this.
MOST_MEMBERS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One entry of an archive's directory, and where its parts are: header, data, descriptor, in this order.

    Offsets are bytes of the file. `num_bytes_content` and `crc32` are what the directory states. `fault` says why the
    content is not given: `directory`, `encrypted`, `unsupported_compression`, `unsafe_name`, `duplicate`, `damaged`.
    A member whose header is not where it should be has no bytes: they lie in a gap.
    """

    path: bytes
    name: str
    start: int
    data_start: int
    data_stop: int
    stop: int
    num_bytes_content: int
    crc32: int
    method: int
    fault: str | None = None

    @property
    def num_bytes(self) -> int:
        """Header, data and descriptor."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """A stretch of the file: a `member`, or a part of the container that `kind` names."""

    kind: str
    start: int
    stop: int
    member: Member | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The whole file, in order and without gaps; members in the directory's order."""

    members: tuple[Member, ...]
    extents: tuple[Extent, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Directory:
    """Where the central directory is, what all offsets in it are shifted by, and the end records behind it."""

    start: int
    stop: int
    shift: int
    num_entries: int
    ends: tuple[Extent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One record of the central directory."""

    path: bytes
    flags: int
    method: int
    crc32: int
    num_bytes_data: int
    num_bytes_content: int
    offset: int


def read_layout(raw: bytes, subject: str) -> Layout:
    """The parts of the archive `raw`; `subject` names it in errors.

    Raises `DocumentError`: `damaged` without a usable directory, `unsafe` where parts overlap or are too many.
    """
    directory = _find_directory(raw)
    if directory is None:
        cause = f"{display(subject)} is no whole ZIP archive: the directory at its end is missing or damaged."
        raise DocumentError(f"{cause} Get a whole copy of it.", stage="read", reason="damaged")
    entries, stop = _entries(raw, directory)
    if len(entries) > MOST_MEMBERS:
        cause = f"{display(subject)} is a ZIP archive of more than {MOST_MEMBERS:,} members, which no book has."
        raise DocumentError(f"{cause} Leave it out.", stage="read", reason="unsafe")
    members = tuple(_last_of_a_name([_member(raw, entry, directory.shift) for entry in entries]))
    warnings: tuple[str, ...] = ()
    if len(entries) % 0x10000 != directory.num_entries % 0x10000:
        warnings = (f"The archive's directory states {directory.num_entries:,} members and lists {len(entries):,}.",)
    extents = [Extent(kind="member", start=m.start, stop=m.stop, member=m) for m in members if m.num_bytes]
    extents += [Extent(kind="central_directory", start=directory.start, stop=stop), *directory.ends]
    return Layout(members=members, extents=tuple(_tiled(extents, len(raw), subject)), warnings=warnings)


def _find_directory(raw: bytes) -> _Directory | None:
    """The directory of an end record that ends the file; failing that, of the last one with something behind it."""
    lowest = max(0, len(raw) - _END.size - _LONGEST_COMMENT)
    positions: list[int] = []
    position = len(raw)
    while (position := raw.rfind(_END_SIGNATURE, lowest, position)) >= 0:
        if position + _END.size <= len(raw):
            positions.append(position)
    # A comment may hold what looks like an end record.
    positions.sort(key=lambda start: _end_stop(raw, start) != len(raw))
    return next((found for start in positions if (found := _directory_before(raw, start))), None)


def _end_stop(raw: bytes, position: int) -> int:
    """Where an end record ends with its comment."""
    length: int = _END.unpack_from(raw, position)[-1]
    return position + _END.size + length


def _directory_before(raw: bytes, position: int) -> _Directory | None:
    _, disk, first_disk, _, num_entries, num_bytes, offset, comment = _END.unpack_from(raw, position)
    comment_start = position + _END.size
    stop = _end_stop(raw, position)
    if stop > len(raw) or (disk, first_disk) not in ((0, 0), (_IN_EXTRA_16, _IN_EXTRA_16), (0, _IN_EXTRA_16)):
        return None
    ends = [Extent(kind="end_record", start=position, stop=comment_start)]
    ends += [Extent(kind="comment", start=comment_start, stop=stop)] if comment else []
    records_start = position
    if large := _find_end64(raw, position):
        num_entries, num_bytes, offset, records = large
        records_start = records[0].start
        ends = [*records, *ends]
    start = _directory_start(raw, records_start, num_bytes, offset)
    if start is None:
        return None
    shift = start - offset
    return _Directory(start=start, stop=start + num_bytes, shift=shift, num_entries=num_entries, ends=tuple(ends))


def _find_end64(raw: bytes, position: int) -> tuple[int, int, int, tuple[Extent, Extent]] | None:
    """Entries, size and offset of the directory by the ZIP64 records before an end record, and those records."""
    locator = position - _LOCATOR64.size
    if locator < 0 or not raw.startswith(_LOCATOR64_SIGNATURE, locator):
        return None
    _, _, stated, _ = _LOCATOR64.unpack_from(raw, locator)
    for start in (locator - _END64.size, stated):
        if not 0 <= start <= locator - _END64.size or not raw.startswith(_END64_SIGNATURE, start):
            continue
        _, size, _, _, _, _, _, num_entries, num_bytes, offset = _END64.unpack_from(raw, start)
        # 4.3.14.1: the size leaves out the signature and itself.
        stop = start + 12 + size
        if _END64.size <= stop - start and stop <= locator:
            records = (
                Extent(kind="zip64_end_record", start=start, stop=stop),
                Extent(kind="zip64_end_locator", start=locator, stop=position),
            )
            return num_entries, num_bytes, offset, records
    return None


def _directory_start(raw: bytes, records_start: int, num_bytes: int, offset: int) -> int | None:
    """Directly before the end records, as every writer puts it, also with bytes before the archive; or as stated."""
    for start in (records_start - num_bytes, offset):
        is_inside = max(0, offset) <= start <= records_start - num_bytes
        if is_inside and (num_bytes == 0 or raw.startswith(_CENTRAL_SIGNATURE, start)):
            return start
    return None


def _entries(raw: bytes, directory: _Directory) -> tuple[list[_Entry], int]:
    """The records of the central directory, and where the last whole one ends."""
    entries: list[_Entry] = []
    position = directory.start
    while position + _CENTRAL.size <= directory.stop and raw.startswith(_CENTRAL_SIGNATURE, position):
        fields = _CENTRAL.unpack_from(raw, position)
        _, _, _, flags, method, _, _, crc32, num_bytes_data, num_bytes_content, *lengths, _, _, _, offset = fields
        name_start = position + _CENTRAL.size
        extra_start = name_start + lengths[0]
        extra_stop = extra_start + lengths[1]
        if extra_stop + lengths[2] > directory.stop or len(entries) > MOST_MEMBERS:
            break
        sizes = _with_zip64(raw[extra_start:extra_stop], (num_bytes_content, num_bytes_data, offset))
        entries.append(
            _Entry(
                path=raw[name_start:extra_start],
                flags=flags,
                method=method,
                crc32=crc32,
                num_bytes_content=sizes[0],
                num_bytes_data=sizes[1],
                offset=sizes[2],
            )
        )
        position = extra_stop + lengths[2]
    return entries, position


def _with_zip64(extra: bytes, sizes: tuple[int, int, int]) -> list[int]:
    """4.5.3: the sizes and the offset that do not fit 32 bits stand in an extra field, in this order."""
    large = _extra_field(extra, _EXTRA_ZIP64)
    resolved: list[int] = []
    for size in sizes:
        if size == _IN_EXTRA and len(large) >= 8:
            size, large = int.from_bytes(large[:8], "little"), large[8:]
        resolved.append(size)
    return resolved


def _extra_field(extra: bytes, wanted: int) -> bytes:
    position = 0
    while position + 4 <= len(extra):
        header, length = struct.unpack_from("<HH", extra, position)
        if header == wanted:
            return extra[position + 4 : position + 4 + length]
        position += 4 + length
    return b""


def _member(raw: bytes, entry: _Entry, shift: int) -> Member:
    member = Member(
        path=entry.path,
        name=_name(entry),
        start=0,
        data_start=0,
        data_stop=0,
        stop=0,
        num_bytes_content=entry.num_bytes_content,
        crc32=entry.crc32,
        method=entry.method,
        fault="damaged",
    )
    start = entry.offset + shift
    if start + _LOCAL.size > len(raw) or not raw.startswith(_LOCAL_SIGNATURE, start):
        return member
    _, _, flags, *_, name_length, extra_length = _LOCAL.unpack_from(raw, start)
    data_start = start + _LOCAL.size + name_length + extra_length
    data_stop = data_start + entry.num_bytes_data
    if data_stop > len(raw):
        return member
    stop = data_stop + (_descriptor_length(raw, data_stop, entry) if flags & _FLAG_DESCRIPTOR else 0)
    fault = _fault(entry, member.name)
    return replace(member, start=start, data_start=data_start, data_stop=data_stop, stop=stop, fault=fault)


def _last_of_a_name(members: Sequence[Member]) -> Iterator[Member]:
    """Of several members of one name the last one holds: that is how archives are updated."""
    last = {member.name: index for index, member in enumerate(members)}
    for index, member in enumerate(members):
        is_last = last[member.name] == index
        yield member if is_last or member.fault else replace(member, fault="duplicate")


def _name(entry: _Entry) -> str:
    """A member's name as text: UTF-8 where it is, flagged or not; otherwise code page 437 (Appendix D)."""
    try:
        return entry.path.decode("utf-8")
    except UnicodeDecodeError:
        return entry.path.decode("cp437")


def _descriptor_length(raw: bytes, start: int, entry: _Entry) -> int:
    """4.3.9: the CRC and both sizes, of 4 or 8 bytes, usually behind a signature; 0 where no such record stands."""
    for signature in (_DESCRIPTOR_SIGNATURE, b""):
        for form in ("<3L", "<LQQ"):
            length = len(signature) + struct.calcsize(form)
            if not raw.startswith(signature, start) or start + length > len(raw):
                continue
            found = struct.unpack_from(form, raw, start + len(signature))
            if found == (entry.crc32, entry.num_bytes_data, entry.num_bytes_content):
                return length
    return 0


def _fault(entry: _Entry, name: str) -> str | None:
    if entry.flags & (_FLAG_ENCRYPTED | _FLAG_MASKED):
        return "encrypted"
    if not is_safe_name(name):
        return "unsafe_name"
    return "directory" if name.endswith(("/", "\\")) else None


def is_safe_name(name: str) -> bool:
    r"""Whether a name stays inside the archive: no `..`, no root, no drive, no NUL; `\` counts as `/`."""
    steps = name.replace("\\", "/").split("/")
    return bool(name) and "\0" not in name and steps[0] != "" and ":" not in steps[0][:2] and ".." not in steps


def _tiled(extents: Sequence[Extent], num_bytes: int, subject: str) -> Iterator[Extent]:
    """All parts in order, with what lies between them. Raises `DocumentError` where two overlap."""
    position = 0
    in_order = sorted((each for each in extents if each.start < each.stop), key=lambda each: each.start)
    for extent in in_order:
        if extent.start < position:
            where = f"at byte {extent.start:,}"
            cause = (
                f"{display(subject)} is a ZIP archive whose parts overlap {where}, as in one made to expand endlessly."
            )
            message = f"{cause} Get a copy from a source you trust."
            raise DocumentError(message, stage="read", reason="unsafe")
        if extent.start > position:
            yield Extent(kind="gap" if position else "prepended", start=position, stop=extent.start)
        yield extent
        position = extent.stop
    if position < num_bytes:
        yield Extent(kind="trailing", start=position, stop=num_bytes)
