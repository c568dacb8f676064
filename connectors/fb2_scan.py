"""Counts the bytes of a FictionBook: text, markup, what is left unread with its reason, and every binary by itself.

Every byte is counted once, by what the tokenizer says it is and by the elements it stands in, none as what is left
over. A binary's bytes are those of its element, tags included.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from connectors.decode import Decoded
from connectors.fb2_walk import READ_AGAIN, UNREAD
from connectors.markup_scan import count_stretches, num_bytes_mark
from connectors.markup_tokens import Token, tokens

_CDATA_OPEN, _CDATA_CLOSE = len(b"<![CDATA["), len(b"]]>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fb2Bytes:
    """Source bytes: `counts` by kind (`text`, `markup`, or a reason) without binaries, and one number a binary."""

    counts: Counter[str]
    num_bytes_mark: int
    binaries: tuple[int, ...]

    @property
    def num_bytes_document(self) -> int:
        """All but the binaries: the byte-order mark, and the sum of the counts."""
        return self.num_bytes_mark + self.counts.total()


def count_fb2(decoded: Decoded) -> Fb2Bytes:
    """The bytes of a well-formed FictionBook. Binaries are in the order of the file."""
    utf8 = decoded.text.encode("utf-8")
    scan = _Scan()
    counts = count_stretches(decoded, utf8, scan.stretches(utf8))
    binaries = tuple(counts.pop(name) for name in scan.binaries)
    return Fb2Bytes(counts=counts, num_bytes_mark=num_bytes_mark(decoded), binaries=binaries)


@dataclass(slots=True, kw_only=True)
class _Scan:
    """The elements that are open, and the names that the binaries are counted under."""

    names: list[str] = field(default_factory=list)
    binaries: list[str] = field(default_factory=list)
    binary_depth: int = 0

    def stretches(self, utf8: bytes) -> Iterator[tuple[str, int, int]]:
        """What each stretch is; they tile the document."""
        for token in tokens(utf8, is_xml=True):
            if token.kind == "start":
                self._start(token)
            if self.binary_depth:
                yield self.binaries[-1], token.start, token.stop
            else:
                yield from self._outside(token)
            if token.kind == "end" or token.is_closed:
                self._end()

    def _start(self, token: Token) -> None:
        # A name may have a prefix: `fb:binary`.
        self.names.append(token.name.rpartition(":")[2])
        if self.names[-1] == "binary" and not self.binary_depth:
            self.binary_depth = len(self.names)
            self.binaries.append(f"binary {len(self.binaries)}")

    def _end(self) -> None:
        if self.binary_depth == len(self.names):
            self.binary_depth = 0
        if self.names:
            self.names.pop()

    def _outside(self, token: Token) -> Iterator[tuple[str, int, int]]:
        if token.kind == "cdata":
            opened, closing = token.start + _CDATA_OPEN, token.stop - _CDATA_CLOSE
            yield "markup", token.start, opened
            yield self._kind(), opened, closing
            yield "markup", closing, token.stop
        elif token.kind in ("text", "raw"):
            yield self._kind(), token.start, token.stop
        else:
            yield "comment" if token.kind == "comment" else "markup", token.start, token.stop

    def _kind(self) -> str:
        """What the characters of the innermost element are."""
        if READ_AGAIN in self.names and self.names[1:3] == ["description", "title-info"]:
            return "text"
        return next((UNREAD[name] for name in self.names if name in UNREAD), "text")
