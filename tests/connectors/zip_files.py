"""ZIP archives for tests: whole ones by the standard library, and ones that no honest program writes, record by record.

The records follow PKWARE's APPNOTE 6.3.10, sections 4.3.7, 4.3.9, 4.3.12, 4.3.14 to 4.3.16.
"""

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace


def zip_of(
    members: Mapping[str, bytes], *, method: int = zipfile.ZIP_DEFLATED, comment: bytes = b"", stream: bool = False
) -> bytes:
    """An archive of these members in their order; `stream` writes data descriptors, as to a pipe."""
    file = _Pipe() if stream else io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.comment = comment
    return file.getvalue()


class _Pipe(io.BytesIO):
    """A file that cannot seek."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: int) -> int:
        raise io.UnsupportedOperation

    def tell(self) -> int:
        raise io.UnsupportedOperation


@dataclass(frozen=True, kw_only=True)
class Record:
    """One member as it is to be written; sizes and CRC are the content's unless stated otherwise."""

    name: bytes
    content: bytes = b""
    method: int = 8
    flags: int = 0
    crc32: int | None = None
    num_bytes_content: int | None = None
    data: bytes | None = None
    at: int | None = None  # the offset that the directory states, where it is not the truth
    zip64: bool = False

    def finished(self) -> "Record":
        deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
        data = deflater.compress(self.content) + deflater.flush() if self.method == 8 else self.content
        return replace(
            self,
            data=data if self.data is None else self.data,
            crc32=zlib.crc32(self.content) if self.crc32 is None else self.crc32,
            num_bytes_content=len(self.content) if self.num_bytes_content is None else self.num_bytes_content,
        )


def handmade(
    records: Sequence[Record],
    *,
    between: bytes = b"",
    before: bytes = b"",
    behind: bytes = b"",
    comment: bytes = b"",
    zip64: bool = False,
    num_entries: int | None = None,
) -> bytes:
    """An archive of exactly these records; `between` stands behind every member, offsets leave `before` out."""
    body, directory = bytearray(), bytearray()
    for record in map(Record.finished, records):
        assert record.data is not None
        offset = len(body) if record.at is None else record.at
        sizes = (record.crc32, len(record.data), record.num_bytes_content)
        body += struct.pack("<4s5H3L2H", b"PK\3\4", 20, record.flags, record.method, 0, 33, *sizes, len(record.name), 0)
        body += record.name + record.data + between
        extra = b""
        if record.zip64:
            extra = struct.pack("<2H3Q", 1, 24, sizes[2], sizes[1], offset)
            sizes, offset = (record.crc32, 0xFFFFFFFF, 0xFFFFFFFF), 0xFFFFFFFF
        heads = (20, 20, record.flags, record.method, 0, 33)
        lengths = (len(record.name), len(extra), 0, 0, 0)
        directory += struct.pack("<4s6H3L5H2L", b"PK\1\2", *heads, *sizes, *lengths, 0, offset) + record.name + extra
    count = len(records) if num_entries is None else num_entries
    ends = b""
    if zip64:
        ends += struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(directory), len(body))
        ends += struct.pack("<4sLQL", b"PK\6\7", 0, len(body) + len(directory), 1)
        end = (0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)
    else:
        end = (0, 0, count, count, len(directory), len(body))
    ends += struct.pack("<4s4H2LH", b"PK\5\6", *end, len(comment)) + comment
    return before + bytes(body) + bytes(directory) + ends + behind
