"""From a token, or a byte of the text, back to the place in the source that it came from; from an output's files alone.

Owns the arithmetic from rows to places, and what is told where an output holds no text. `longdoc.store.lookup` reads
no more of the tables than it must. Raises `OutputError` for an output that does not hold together.
"""

from dataclasses import dataclass
from typing import Any, Literal

from longdoc.errors import StartError
from longdoc.store.finding import FoundDocument, find_document
from longdoc.store.lookup import damaged, read_group, row_groups, rows_between

Unit = Literal["token", "byte"]
#: Characters of text that are shown on each side.
CONTEXT_CHARS = 200
# How far back the beginning of a line is looked for.
_LINE_BYTES = 1 << 16

_SEGMENT_COLUMNS = (
    *("segment_index", "unit", "kind", "is_content", "display_path", "title", "place", "encoding", "transform"),
    *("text_byte_start", "text_byte_stop", "char_start", "char_stop"),
)
_SPAN_COLUMNS = ("span_index", "text_byte_start", "text_byte_stop", "line_start", "line_stop", "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """The text around a token: the token widened to whole characters, and what stands before and behind it.

    Of text that was left away on a side, `is_cut_before` and `is_cut_after` tell.
    """

    before: str
    marked: str
    after: str
    is_cut_before: bool
    is_cut_after: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where one token came from. Offsets count from 0, lines and columns from 1.

    `segment_kind` is that of the segment that holds the token; `path` and `title` are those of its file or chapter,
    `place` is where that segment begins in it, `transform` the format whose rules made the text. `line` and `column`
    are those of the text of the file or chapter, None for what is no content of it (a header, a note). Without stored
    text, `line` to `last_line` are those of the span; `column` and `excerpt` are None, and so are the characters unless
    the segment is ASCII.
    """

    doc_id: str
    doc_key: str
    kind: str
    source_uri: str
    title: str | None
    revision: str | None
    commit_id: str | None
    token: int
    token_id: int
    text_byte_start: int
    text_byte_stop: int
    segment_index: int
    segment_kind: str
    path: str | None
    section_title: str | None
    place: str | None
    transform: str | None
    char_in_segment: int | None
    char: int | None
    line: int | None
    last_line: int | None
    column: int | None
    excerpt: Excerpt | None


def locate(output: str, document: str, unit: Unit, number: int, *, context_chars: int = CONTEXT_CHARS) -> Location:
    """The place of a token, or of the token that holds a byte of the text.

    Raises `StartError` for a number outside the document, `OutputError` where the output is none, is damaged, or holds
    no such document.
    """
    found = find_document(output, document)
    num_all = found.num_tokens if unit == "token" else found.num_bytes_text
    if not 0 <= number < num_all:
        cause = f"{found.name} has {num_all:,} {unit}s, and {unit} {number:,} is none of them."
        raise StartError(f"{cause} Name one from 0 to {num_all - 1:,}.")
    token = _token(found, number) if unit == "token" else _token_of_byte(found, number)
    segment = _segment(found, token.segment_index)
    owner = segment if segment["is_content"] else _owner(found, segment)
    at = number if unit == "byte" else token.start
    inside = _inside(_Texts(found, segment), segment, token, at, context_chars)
    return Location(
        **found.named(),
        token=token.position,
        token_id=token.token_id,
        text_byte_start=token.start,
        text_byte_stop=token.stop,
        segment_index=segment["segment_index"],
        segment_kind=segment["kind"],
        path=owner["display_path"],
        section_title=owner["title"],
        place=segment["place"],
        transform=segment["transform"],
        **inside,
        char=None if inside["char_in_segment"] is None else segment["char_start"] + inside["char_in_segment"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    position: int
    token_id: int
    start: int
    stop: int
    segment_index: int


def _token(found: FoundDocument, position: int) -> _Token:
    columns = ("token_id", "text_byte_start", "segment_index")
    rows = rows_between(found.files("tokens"), "position", position, position + 2, columns).to_pylist()
    if [row["position"] for row in rows] != list(range(position, min(position + 2, found.num_tokens))):
        raise damaged(found.root / "tokens", f"{found.name} has no token {position}")
    stop = rows[1]["text_byte_start"] if len(rows) > 1 else found.num_bytes_text
    return _Token(
        position=position,
        token_id=rows[0]["token_id"],
        start=rows[0]["text_byte_start"],
        stop=stop,
        segment_index=rows[0]["segment_index"],
    )


def _token_of_byte(found: FoundDocument, byte: int) -> _Token:
    """The last token that starts at or before the byte: in a group around it, or the last one of those before it."""
    groups = list(row_groups(found.files("tokens"), "text_byte_start"))
    around = [group for group in groups if group.least <= byte <= group.greatest]
    before = [group for group in groups if group.greatest < byte]
    chosen = around + sorted(before, key=lambda group: group.greatest)[-1:]
    positions = []
    for group in chosen:
        rows = read_group(group, ["position", "text_byte_start"])
        inside = rows["position"].to_numpy()[rows["text_byte_start"].to_numpy() <= byte]
        positions += [int(inside.max())] if len(inside) else []
    if not positions:
        raise damaged(found.root / "tokens", f"{found.name} has no token at byte {byte}")
    return _token(found, max(positions))


def _segment(found: FoundDocument, index: int) -> dict[str, Any]:
    rows = rows_between(found.files("segments"), "segment_index", index, index + 1, _SEGMENT_COLUMNS).to_pylist()
    if len(rows) != 1:
        raise damaged(found.root / "segments", f"{found.name} has {len(rows)} segments {index}")
    row: dict[str, Any] = rows[0]
    return row


def _owner(found: FoundDocument, segment: dict[str, Any]) -> dict[str, Any]:
    """The content of the file or chapter that a header, padding or note belongs to."""
    unit = segment["unit"]
    rows = rows_between(found.files("segments"), "unit", unit, unit + 1, _SEGMENT_COLUMNS).to_pylist()
    contents: list[dict[str, Any]] = [row for row in rows if row["is_content"]]
    return contents[0] if contents else segment


class _Texts:
    """The stored text of one segment, read span by span; `lines` tells where there is none."""

    def __init__(self, found: FoundDocument, segment: dict[str, Any]) -> None:
        self.found = found
        self.start: int = segment["text_byte_start"]
        self.stop: int = segment["text_byte_stop"]
        self.is_ascii = self.stop - self.start == segment["char_stop"] - segment["char_start"]

    def spans(self, start: int, stop: int) -> list[dict[str, Any]]:
        """The spans that hold bytes of [start, stop), in order."""
        files = self.found.files("spans")
        behind = {(group.path, group.number) for group in row_groups(files, "text_byte_stop") if group.greatest > start}
        rows: list[dict[str, Any]] = []
        for group in row_groups(files, "text_byte_start"):
            if group.least < stop and (group.path, group.number) in behind:
                rows += read_group(group, _SPAN_COLUMNS).to_pylist()
        inside = [row for row in rows if row["text_byte_start"] < stop and row["text_byte_stop"] > start]
        return sorted(inside, key=lambda row: row["span_index"])

    def between(self, start: int, stop: int) -> bytes | None:
        """The text of [start, stop), None where the output holds no text."""
        if start >= stop:
            return b""
        spans = self.spans(start, stop)
        if any(span["text"] is None for span in spans):
            return None
        text = b"".join(span["text"].encode("utf-8") for span in spans)
        first = spans[0]["text_byte_start"] if spans else stop
        if first > start or first + len(text) < stop:
            raise damaged(self.found.root / "spans", f"{self.found.name} has no text for bytes {start} to {stop}")
        return text[start - first : stop - first]


def _inside(texts: "_Texts", segment: dict[str, Any], token: _Token, at: int, context_chars: int) -> dict[str, Any]:
    """Where in its segment a byte is: what `Location` has of character, line, column and text."""
    spans = texts.spans(at, at + 1)
    if not spans:
        raise damaged(texts.found.root / "spans", f"{texts.found.name} has no span at byte {at}")
    span = spans[0]
    # Characters are counted from the segment's beginning, unless they are bytes.
    far = min(at - _LINE_BYTES, span["text_byte_start"]) if texts.is_ascii else texts.start
    start = max(texts.start, far)
    window = texts.between(start, min(texts.stop, token.stop + 4 * context_chars))
    is_content = segment["is_content"]
    if window is None:
        return {
            "char_in_segment": at - texts.start if texts.is_ascii else None,
            "line": span["line_start"] if is_content else None,
            "last_line": span["line_stop"] - 1 if is_content else None,
            "column": None,
            "excerpt": None,
        }
    before = window[: at - start]
    # Lines are counted on from the span's first; a span may begin before the segment, in the header of its file.
    counted_from = max(span["text_byte_start"], texts.start) - start
    line = span["line_start"] + before[counted_from:].count(b"\n") if is_content else None
    return {
        "char_in_segment": at - texts.start if texts.is_ascii else len(before.decode("utf-8", errors="ignore")),
        "line": line,
        "last_line": line,
        "column": _column(before, is_whole=start == texts.start) if is_content else None,
        "excerpt": _excerpt(window, start, token, texts, context_chars),
    }


def _column(before: bytes, *, is_whole: bool) -> int | None:
    """Characters since the line began, from 1; None where that is too far back."""
    newline = before.rfind(b"\n")
    if newline < 0 and not is_whole:
        return None
    return 1 + len(before[newline + 1 :].decode("utf-8", errors="ignore"))


def _excerpt(window: bytes, start: int, token: _Token, texts: _Texts, context_chars: int) -> Excerpt:
    first, last = token.start - start, token.stop - start
    while first > 0 and _is_inside_character(window, first):
        first -= 1
    while last < len(window) and _is_inside_character(window, last):
        last += 1
    before = window[:first].decode("utf-8", errors="ignore")
    after = window[last:].decode("utf-8", errors="ignore")
    return Excerpt(
        before=before[-context_chars:] if context_chars else "",
        marked=window[first:last].decode("utf-8"),
        after=after[:context_chars],
        is_cut_before=start > texts.start or len(before) > context_chars,
        is_cut_after=start + len(window) < texts.stop or len(after) > context_chars,
    )


def _is_inside_character(text: bytes, place: int) -> bool:
    # Bytes 0b10xxxxxx continue a character of UTF-8 (RFC 3629, section 3).
    return text[place] & 0xC0 == 0x80
