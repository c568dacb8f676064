"""Files of a repository that a vocabulary cannot express: each becomes a segment without text, with a reason.

Owns where a document holds bytes that have no token, and the document that remains when their files are set aside.
Refuses to change a single byte of any other file; no byte is dropped, replaced or escaped.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from longdoc.records import Document, Segment

BYTE_WITHOUT_TOKEN = "byte_without_token"  # noqa: S105, a reason
# RFC 3629, section 1: no text in UTF-8 holds them, and many a vocabulary lacks them.
_NOT_IN_UTF8 = bytes((0xC0, 0xC1, *range(0xF5, 0x100)))


def places_without_token(document: Document, missing: bytes) -> Iterator[tuple[Segment, int, int]]:
    """For each segment that holds bytes of `missing`: the segment, the line (from 1) of the first, and that byte."""
    # Looking for one byte is many times as fast as for one of several, and most texts hold none of them.
    missing = bytes(byte for byte in missing if byte not in _NOT_IN_UTF8 and byte in document.text)
    if not missing:
        return
    pattern = re.compile(b"[" + re.escape(missing) + b"]")
    for segment in document.segments:
        if found := pattern.search(document.text, segment.text_byte_start, segment.text_byte_stop):
            line = 1 + document.text.count(b"\n", segment.text_byte_start, found.start())
            yield segment, line, found.group()[0]


def set_aside(document: Document, missing: bytes) -> Document:
    """The document with the text of the units that hold bytes of `missing` taken out; itself where none does.

    Such a unit's content becomes one segment without text: its source bytes, hash and blob id stay, its reason is
    `byte_without_token`, its title says which byte and where. Its header and padding go. A unit that is no file (the
    repository's header) stays as it is.
    """
    return set_aside_from(document, missing)[0]


def set_aside_from(document: Document, missing: bytes) -> tuple[Document, Sequence[int]]:
    """The same, and the index that each of its segments had before."""
    titles = _titles(document, missing)
    if not titles:
        return document, range(len(document.segments))
    segments: list[Segment] = []
    texts: list[bytes] = []
    before: list[int] = []
    byte = char = 0
    for segment in document.segments:
        if segment.unit in titles:
            if not segment.is_content:
                continue
            segment = _without_text(segment, titles[segment.unit])
        else:
            texts.append(document.segment_text(segment))
        before.append(segment.segment_index)
        segments.append(_moved(segment, len(segments), byte, char))
        byte, char = segments[-1].text_byte_stop, segments[-1].char_stop
    remaining = replace(document, text=b"".join(texts), segments=tuple(segments))
    remaining.check()
    return remaining, before


def _titles(document: Document, missing: bytes) -> dict[int, str]:
    """For each file that holds bytes of `missing`, by its unit: the first of them in words."""
    files = {segment.unit for segment in document.segments if segment.is_content and segment.path is not None}
    titles: dict[int, str] = {}
    for segment, line, byte in places_without_token(document, missing):
        if segment.unit in files:
            where = f"line {line}" if segment.is_content else segment.kind
            titles.setdefault(segment.unit, f"byte 0x{byte:02x} in {where}")
    return titles


def _without_text(segment: Segment, title: str) -> Segment:
    return replace(
        segment,
        title=title,
        encoding=None,
        encoding_source=None,
        reason=BYTE_WITHOUT_TOKEN,
        text_byte_stop=segment.text_byte_start,
        char_stop=segment.char_start,
        num_lines=0,
    )


def _moved(segment: Segment, index: int, byte: int, char: int) -> Segment:
    return replace(
        segment,
        segment_index=index,
        text_byte_start=byte,
        text_byte_stop=byte + segment.text_byte_stop - segment.text_byte_start,
        char_start=char,
        char_stop=char + segment.char_stop - segment.char_start,
    )
