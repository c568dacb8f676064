"""Counts the bytes of an HTML or XML document: text, markup, and what is left unread, each with its reason.

Every byte is counted once, by what the tokenizer says it is, none as what is left over. Characters inside an element
that `markup_names` calls unread, or that is hidden, have that reason; tags are markup wherever they stand. Where a
document is not well-formed the end of an unread element is guessed from the tags alone, so the split between text and
unread may be off there; the sum never is.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from connectors.decode import Decoded
from connectors.ledger import Ledger
from connectors.markup_names import BLOCKS, HEADINGS, LISTS, UNREAD, VOID, is_hidden
from connectors.markup_tokens import Token, tokens
from longdoc.encodings import FROM_MARK, MARKS, encode_pieces

_TEXT, _MARKUP = "text", "markup"
_CDATA_OPEN, _CDATA_CLOSE = len(b"<![CDATA["), len(b"]]>")
_RAW_TEXT_READ = frozenset({"textarea", "xmp", "plaintext"})
# Elements whose end tag may be left out: what begins behind them ends them, unless it lies in a container of its own.
# https://html.spec.whatwg.org/#optional-tags
_PARTS = frozenset({"tbody", "tfoot", "thead"})
_ENDED_BY: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "p": (BLOCKS | frozenset(HEADINGS) | {"table"}, frozenset()),
    "li": (frozenset({"li"}), LISTS),
    "dt": (frozenset({"dt", "dd"}), LISTS),
    "dd": (frozenset({"dt", "dd"}), LISTS),
    "td": (_PARTS | {"td", "th", "tr"}, frozenset({"table"})),
    "th": (_PARTS | {"td", "th", "tr"}, frozenset({"table"})),
    "tr": (_PARTS | {"tr"}, frozenset({"table"})),
    "option": (frozenset({"option", "optgroup"}), frozenset()),
    "rp": (frozenset({"rb", "rp", "rt", "rtc"}), frozenset()),
    "rt": (frozenset({"rb", "rp", "rt", "rtc"}), frozenset()),
}
_ATTRIBUTE = re.compile(
    rb"([^\t\n\f\r />=][^\t\n\f\r />=]*+)(?:[\t\n\f\r ]*+=[\t\n\f\r ]*+(\"[^\"]*+\"|'[^']*+'|[^\t\n\f\r >]*+))?+"
)
_HIDING = re.compile(rb"hidden|style", re.IGNORECASE)


def add_markup(
    ledger: Ledger, decoded: Decoded, *, parent: int, is_xml: bool, unread: Mapping[str, str] = UNREAD
) -> None:
    """Break `parent`, whose content `decoded` is, down into its mark, text, markup and what is unread.

    `unread` gives the elements whose text is not read, and the reason; `parent`'s `num_bytes_content` is the number of
    bytes that were decoded.
    """
    add_counts(ledger, decoded, count_markup(decoded, is_xml=is_xml, unread=unread), parent=parent)


def add_counts(ledger: Ledger, decoded: Decoded, counts: Counter[str], *, parent: int) -> None:
    """Break `parent` down into the byte-order mark of `decoded` and what `count_markup` or the like counted."""
    if num_bytes := num_bytes_mark(decoded):
        ledger.add("byte_order_mark", num_bytes, parent=parent)
    for kind in (_TEXT, _MARKUP):
        if counts[kind]:
            ledger.add(kind, counts[kind], parent=parent)
    for reason, num_bytes in sorted(counts.items()):
        if num_bytes and reason not in (_TEXT, _MARKUP):
            ledger.add("unread", num_bytes, parent=parent, reason=reason)


def num_bytes_mark(decoded: Decoded) -> int:
    """The length of a document's byte-order mark, 0 where it has none."""
    if decoded.encoding_source != FROM_MARK:
        return 0
    return next(len(mark) for mark, stored, _ in MARKS if stored == decoded.encoding)


def count_markup(decoded: Decoded, *, is_xml: bool, unread: Mapping[str, str] = UNREAD) -> Counter[str]:
    """Source bytes, without a byte-order mark, by what they are: `text`, `markup`, or a reason for being unread."""
    utf8 = decoded.text.encode("utf-8")
    return count_stretches(decoded, utf8, _stretches(utf8, is_xml=is_xml, unread=unread))


def count_stretches(decoded: Decoded, utf8: bytes, stretches: Iterable[tuple[str, int, int]]) -> Counter[str]:
    """Source bytes, without a byte-order mark, of each kind of stretch; these tile the text in UTF-8."""
    counts: Counter[str] = Counter()
    if decoded.encoding in ("utf-8", "utf-8-sig"):
        for kind, start, stop in stretches:
            counts[kind] += stop - start
        return counts
    kinds: list[str] = []

    def pieces() -> Iterator[str]:
        for kind, start, stop in stretches:
            kinds.append(kind)
            yield utf8[start:stop].decode("utf-8")

    raw_pieces = encode_pieces(pieces(), decoded.encoding, decoded.encoding_source)
    sizes = [len(raw) for raw in raw_pieces]
    if sizes:
        sizes[0] -= num_bytes_mark(decoded)
    for kind, size in zip(kinds, sizes, strict=True):
        counts[kind] += size
    return counts


@dataclass(slots=True)
class _Unread:
    """An element whose text is not read, and the elements that are open in it."""

    reason: str
    names: list[str]
    counts: Counter[str] = field(default_factory=Counter)

    def start(self, name: str) -> None:
        self.names.append(name)
        self.counts[name] += 1

    def is_ended_by(self, name: str) -> bool:
        """Whether the start of an element ends the unread one, whose own end tag was left out."""
        ends, containers = _ENDED_BY.get(self.names[0], (frozenset(), frozenset()))
        return name in ends and not any(self.counts[container] for container in containers)

    def end(self, name: str) -> bool:
        """Whether the unread element has ended."""
        if not self.counts[name]:
            # The end of something outside: it ends what may leave its own end out.
            return self.names[0] in _ENDED_BY
        while self.names:
            last = self.names.pop()
            self.counts[last] -= 1
            if last == name:
                break
        return not self.names


def _stretches(source: bytes, *, is_xml: bool, unread: Mapping[str, str]) -> Iterator[tuple[str, int, int]]:
    """What each stretch of the source is: text, markup, or a reason; they tile it."""
    inside: _Unread | None = None
    for token in tokens(source, is_xml=is_xml):
        kind = token.kind
        if kind in ("text", "raw", "cdata"):
            yield from _characters(token, _TEXT if inside is None else inside.reason, unread)
            continue
        yield "comment" if kind == "comment" else _MARKUP, token.start, token.stop
        if kind == "end":
            if inside is not None and inside.end(token.name):
                inside = None
        elif kind == "start" and not token.is_closed and (is_xml or token.is_foreign or token.name not in VOID):
            if inside is not None and not is_xml and inside.is_ended_by(token.name):
                inside = None
            if inside is not None:
                inside.start(token.name)
            elif reason := _reason(source, token, unread):
                inside = _Unread(reason, [])
                inside.start(token.name)


def _characters(token: Token, kind: str, unread: Mapping[str, str]) -> Iterator[tuple[str, int, int]]:
    if token.kind == "cdata":
        opened = min(token.start + _CDATA_OPEN, token.stop)
        closing = max(opened, token.stop - _CDATA_CLOSE)
        yield _MARKUP, token.start, opened
        yield kind, opened, closing
        yield _MARKUP, closing, token.stop
    elif token.kind == "raw" and kind == _TEXT and token.name not in _RAW_TEXT_READ:
        yield unread.get(token.name, kind), token.start, token.stop
    else:
        yield kind, token.start, token.stop


def _reason(source: bytes, token: Token, unread: Mapping[str, str]) -> str | None:
    """Why the text of an element is not read; None where it is."""
    name = token.name
    if name in unread and not (name == "title" and token.is_foreign):
        return unread[name]
    if not _HIDING.search(source, token.start, token.stop):
        return None
    return "hidden" if is_hidden(name, _attributes(source[token.start : token.stop])) else None


def _attributes(tag: bytes) -> dict[str, str]:
    """The attributes of a start tag; the first of one name counts."""
    attributes: dict[str, str] = {}
    for name, value in _ATTRIBUTE.findall(tag, 1):
        text = value[1:-1] if value[:1] in (b'"', b"'") else value
        attributes.setdefault(name.decode("latin-1").lower(), text.decode("utf-8", errors="replace"))
    return attributes
