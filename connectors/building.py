"""Lays segments end to end into a document. Owns every offset: bytes, characters, lines. Reads nothing.

Connectors say what a piece is; where it lies in the text is counted here and nowhere else.
"""

from dataclasses import dataclass, field

from longdoc.records import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a segment's text came from: a stretch of source bytes, measured, and how it was decoded."""

    path: bytes | None = None
    encoding: str | None = None
    encoding_source: str | None = None
    num_bytes: int = 0
    sha256: str | None = None
    blob_id: str | None = None
    transform: str | None = None
    place: str | None = None


_NOWHERE = Origin()


@dataclass(slots=True)
class Tiles:
    """The segments of one document while it is being built, and their text in UTF-8.

    Whoever cannot hold a whole document takes away (`take`) what has been laid so far; offsets and numbers go on.
    """

    segments: list[Segment] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    num_bytes: int = 0
    num_chars: int = 0
    num_taken: int = 0

    def add(
        self,
        text: str = "",
        *,
        kind: str,
        unit: int,
        is_content: bool = False,
        title: str | None = None,
        reason: str | None = None,
        origin: Origin = _NOWHERE,
        utf8: bytes | None = None,
    ) -> None:
        """Append one segment. A segment without text takes no place in the text but is in the ledger.

        `utf8` is `text` in UTF-8, from a caller who has it at hand.
        """
        if utf8 is None:
            utf8 = text.encode("utf-8")
        segment = Segment(
            segment_index=self.num_taken + len(self.segments),
            unit=unit,
            kind=kind,
            is_content=is_content,
            path=origin.path,
            title=title,
            encoding=origin.encoding,
            encoding_source=origin.encoding_source,
            reason=reason,
            num_bytes_source=origin.num_bytes,
            source_sha256=origin.sha256,
            blob_id=origin.blob_id,
            transform=origin.transform,
            place=origin.place,
            text_byte_start=self.num_bytes,
            text_byte_stop=self.num_bytes + len(utf8),
            char_start=self.num_chars,
            char_stop=self.num_chars + len(text),
            num_lines=count_lines(utf8),
        )
        self.segments.append(segment)
        self.pieces.append(utf8)
        self.num_bytes = segment.text_byte_stop
        self.num_chars = segment.char_stop

    def take(self) -> list[tuple[Segment, bytes]]:
        """The segments since the last time, each with its text in UTF-8; they are not held here any longer."""
        taken = list(zip(self.segments, self.pieces, strict=True))
        self.num_taken += len(taken)
        self.segments.clear()
        self.pieces.clear()
        return taken

    def text(self) -> bytes:
        """The document's text in UTF-8."""
        return b"".join(self.pieces)


def count_lines(utf8: bytes) -> int:
    r"""Lines end at "\n" and nowhere else, so CRLF is one; a last line without a newline is a line."""
    return utf8.count(b"\n") + (bool(utf8) and not utf8.endswith(b"\n"))
