"""Books in a gzip file (RFC 1952): expanded within bounds, read by whoever reads what is inside, every byte measured.

Owns the parts of the file (headers, compressed data, trailers, what stands behind the last member) and their place in
the ledger; members that follow each other are one book. Refuses data that does not give its own checksum, expands
without bound, or is gzip again.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path

from connectors.archive import FREELY_EXPANDED, MOST_EXPANDED, MOST_RATIO
from connectors.decode import decode_unless_binary
from connectors.formats import FORMATS, format_of_name, recognise
from connectors.ledger import Ledger
from longdoc.errors import DocumentError
from longdoc.records import Document, Segment, SourceRange, display

_MAGIC = b"\x1f\x8b"
_DEFLATE = 8
_HEADER_BYTES, _TRAILER_BYTES = 10, 8
_FLAG_HEADER_CRC, _FLAG_EXTRA, _FLAG_NAME, _FLAG_COMMENT, _FLAGS_RESERVED = 2, 4, 8, 16, 0xE0
_CHUNK = 1 << 16
_TAR_MARK, _TAR_MARK_AT = b"ustar", 257


class _GzipError(ValueError):
    """The file is not whole."""


@dataclass(slots=True)
class _Expanded:
    """The content of a gzip file, and how many of the file's bytes each of its parts has."""

    content: bytes = field(default=b"", repr=False)
    num_members: int = 0
    num_header_bytes: int = 0
    num_data_bytes: int = 0
    num_trailer_bytes: int = 0
    num_trailing_bytes: int = 0


def read_gzip(raw: bytes, *, path: Path) -> Document:
    """The book in a gzip file; without its `.gz`, the name of `path` says what it is.

    Raises `DocumentError`: `damaged`, `too_large_when_expanded`, `empty`, `unsafe` for gzip in gzip, `unknown_format`
    for what is no book, or what the reader of the content raises.
    """
    try:
        if not raw.startswith(_MAGIC):
            raise _GzipError("it does not begin like one; if it was expanded already, name it without .gz")
        expanded = _expand(raw, path)
    except _GzipError as error:
        message = f"{display(str(path))} is a damaged gzip file: {error}. Get a whole copy of it."
        raise DocumentError(message, stage="read", reason="damaged") from error
    inner_path = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    content = expanded.content
    _refuse(content, path)
    try:
        found = recognise(BytesIO(content), str(inner_path))
        is_unnamed = found.format is FORMATS["text"] and format_of_name(str(inner_path)) is None
        if is_unnamed and decode_unless_binary(content) is None:
            raise _no_book(path, "binary content that is no known book")
        document = found.format.read(content, path=inner_path)
    except DocumentError as error:
        raise DocumentError(
            f"In {display(str(path))}: {error}", stage=error.stage, reason=error.reason, needs=error.needs
        ) from error
    wrapped = _wrapped(document, expanded, len(raw), path)
    wrapped = replace(wrapped, warnings=(*found.warnings, *document.warnings))
    wrapped.check()
    return wrapped


def _refuse(content: bytes, path: Path) -> None:
    """Raise where the content is nothing that a reader should see."""
    subject = display(str(path))
    if not content:
        message = f"{subject} is empty: the gzip file holds no byte. Leave it out, or fill it."
        raise DocumentError(message, stage="read", reason="empty")
    if content.startswith(_MAGIC):
        message = f"{subject} holds a gzip file in a gzip file, which is not followed. Expand it once."
        raise DocumentError(message, stage="read", reason="unsafe")
    if content[_TAR_MARK_AT : _TAR_MARK_AT + len(_TAR_MARK)] == _TAR_MARK:
        raise _no_book(path, "a tar archive")


def _no_book(path: Path, kind: str) -> DocumentError:
    message = f"{display(str(path))} holds {kind}. Expand it and name the books in it, or leave it out."
    return DocumentError(message, stage="read", reason="unknown_format")


def _expand(raw: bytes, path: Path) -> _Expanded:
    expanded = _Expanded()
    pieces: list[bytes] = []
    bound = min(MOST_EXPANDED, max(FREELY_EXPANDED, MOST_RATIO * len(raw)))
    room = bound
    position = 0
    while raw.startswith(_MAGIC, position):
        data_start = _header_stop(raw, position)
        inflated, trailer_start = _inflate(raw, data_start, room + 1)
        num_bytes = sum(map(len, inflated))
        room -= num_bytes
        if room < 0:
            raise _too_large(path, len(raw), bound)
        checksum = 0
        for piece in inflated:
            checksum = zlib.crc32(piece, checksum)
        pieces += inflated
        stop = trailer_start + _TRAILER_BYTES
        _check_trailer(raw[trailer_start:stop], checksum, num_bytes)
        expanded.num_members += 1
        expanded.num_header_bytes += data_start - position
        expanded.num_data_bytes += trailer_start - data_start
        expanded.num_trailer_bytes += stop - trailer_start
        position = stop
    expanded.num_trailing_bytes = len(raw[position:])
    expanded.content = b"".join(pieces)
    return expanded


def _too_large(path: Path, num_bytes: int, bound: int) -> DocumentError:
    message = (
        f"{display(str(path))} has {num_bytes:,} bytes and expands to more than {bound:,}, so it is not read: no book"
    )
    message = f"{message} is compressed like that. Expand it yourself if you trust it."
    return DocumentError(message, stage="read", reason="too_large_when_expanded")


def _header_stop(raw: bytes, start: int) -> int:
    """Where a member's compressed data begins: RFC 1952, 2.3."""
    if len(raw) < start + _HEADER_BYTES:
        raise _GzipError("it ends within a header")
    method, flags = raw[start + 2], raw[start + 3]
    if method != _DEFLATE or flags & _FLAGS_RESERVED:
        raise _GzipError(f"a header has method {method} and flags {flags:#04x}")
    position = start + _HEADER_BYTES
    if flags & _FLAG_EXTRA:
        position += 2 + int.from_bytes(raw[position : position + 2], "little")
    for flag in (_FLAG_NAME, _FLAG_COMMENT):
        if flags & flag:
            position = raw.find(b"\0", position) + 1 or len(raw) + 1
    position += 2 * bool(flags & _FLAG_HEADER_CRC)
    if position > len(raw):
        raise _GzipError("it ends within a header")
    return position


def _inflate(raw: bytes, start: int, room: int) -> tuple[list[bytes], int]:
    """A member's content in pieces, at most `room` bytes of it, and where the compressed data ended."""
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    view = memoryview(raw)
    pieces: list[bytes] = []
    position = start
    while not inflater.eof and room > 0:
        chunk = view[position : position + _CHUNK]
        if not chunk:
            raise _GzipError("its data ends early")
        try:
            piece = inflater.decompress(chunk, min(room, _CHUNK << 4))
        except zlib.error as error:
            raise _GzipError(f"its data cannot be expanded ({error})") from error
        # At the end zlib may name what it left both as behind the end and as not consumed: it is one stretch.
        left = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
        position += len(chunk) - len(left)
        room -= len(piece)
        pieces.append(piece)
    return pieces, position


def _check_trailer(trailer: bytes, checksum: int, num_bytes: int) -> None:
    if len(trailer) < _TRAILER_BYTES:
        raise _GzipError("it ends within a trailer")
    if trailer != checksum.to_bytes(4, "little") + (num_bytes & 0xFFFFFFFF).to_bytes(4, "little"):
        raise _GzipError("its content does not give its own checksum")


def _wrapped(document: Document, expanded: _Expanded, num_bytes: int, path: Path) -> Document:
    """The document of the content as one of the gzip file."""
    ledger = Ledger()
    detail = f"{expanded.num_members} members" if expanded.num_members > 1 else None
    data = ledger.add("gzip_data", expanded.num_data_bytes, num_bytes_content=len(expanded.content), detail=detail)
    first_inner = len(ledger.entries())
    if document.ledger:
        for entry in document.ledger:
            ledger.copy(entry, parent=data, shift=first_inner)
    else:
        encoding = next((segment.encoding for segment in document.segments if segment.encoding), None)
        ledger.add("text", len(expanded.content), parent=data, encoding=encoding)
    segments = list(_segments(document, expanded.num_data_bytes))
    for kind, size, reason in (
        ("gzip_header", expanded.num_header_bytes, "container"),
        ("gzip_trailer", expanded.num_trailer_bytes, "container"),
        ("trailing_bytes", expanded.num_trailing_bytes, "trailing_bytes"),
    ):
        if size:
            ledger.add(kind, size, reason=reason, detail=detail)
            segments.append(_textless(segments[-1], kind, size, reason))
    return replace(
        document,
        source_uri=path.resolve().as_uri(),
        num_bytes_source=num_bytes,
        segments=tuple(segments),
        ledger=ledger.entries(),
        source_map=tuple(_source_map(document, first_inner)),
    )


def _segments(document: Document, num_data_bytes: int) -> Iterator[Segment]:
    """The segments, whose bytes are those of the compressed data: they stand on the first that had any."""
    is_carried = False
    position = 0
    for segment in document.segments:
        place = segment.place
        if segment.encoding is not None:
            place, position = f"byte {position}", position + segment.num_bytes_source
        made = segment.transform or (f"charset={segment.encoding}" if segment.encoding else None)
        carries = not is_carried and segment.num_bytes_source > 0
        is_carried = is_carried or carries
        yield replace(
            segment,
            encoding=None,
            encoding_source=None,
            transform=f"gzip; {made}" if made else None,
            place=place,
            num_bytes_source=num_data_bytes if carries else 0,
            source_sha256=None,
        )


def _textless(last: Segment, kind: str, num_bytes: int, reason: str) -> Segment:
    return Segment(
        segment_index=last.segment_index + 1,
        unit=last.unit + 1,
        kind=kind,
        is_content=True,
        reason=reason,
        num_bytes_source=num_bytes,
        text_byte_start=last.text_byte_stop,
        text_byte_stop=last.text_byte_stop,
        char_start=last.char_stop,
        char_stop=last.char_stop,
        num_lines=0,
    )


def _source_map(document: Document, first_inner: int) -> Iterator[SourceRange]:
    """The content's own map, or, for text, the byte of the content at which each segment begins."""
    for each in document.source_map:
        yield replace(each, entry_index=each.entry_index + first_inner)
    if document.source_map:
        return
    position = 0
    for segment in document.segments:
        if segment.text_byte_start < segment.text_byte_stop:
            yield SourceRange(
                text_byte_start=segment.text_byte_start,
                text_byte_stop=segment.text_byte_stop,
                entry_index=first_inner,
                place=f"byte {position}",
            )
        position += segment.num_bytes_source
