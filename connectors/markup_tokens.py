"""Cuts the bytes of an HTML or XML document into tokens: text, tags, comments, raw text. Every byte is in exactly one.

Follows the states of the HTML tokenizer (https://html.spec.whatwg.org/#tokenization) as far as they decide where a
token ends: attribute values in quotes, comments that end early, elements whose content is raw text, scripts that hide
their own end, CDATA in foreign content. For XML it follows XML 1.0. Builds no tree, and takes time linear in the bytes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Kind = Literal["text", "start", "end", "comment", "declaration", "raw", "cdata"]


class Token(NamedTuple):
    """A stretch of bytes. A tuple, because a book has a hundred thousand of them and its making is most of the work.

    `name` is the element of a tag, or the one whose raw text this is; lower case. `is_foreign` is for what lies in SVG
    or MathML, `is_closed` for a start tag that ends its element (`<br/>` in XML).
    """

    kind: Kind
    start: int
    stop: int
    name: str = ""
    is_foreign: bool = False
    is_closed: bool = False


_RAW_TEXT = frozenset({"iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp"})
# Start tags that end foreign content: https://html.spec.whatwg.org/#parsing-main-inforeign
_BREAKS_OUT = frozenset(
    {"b", "big", "blockquote", "body", "br", "center", "code", "dd", "div", "dl", "dt", "em", "embed", "h1", "h2", "h3",
     "h4", "h5", "h6", "head", "hr", "i", "img", "li", "listing", "menu", "meta", "nobr", "ol", "p", "pre", "ruby", "s",
     "small", "span", "strong", "strike", "sub", "sup", "table", "tt", "u", "ul", "var"}
)  # fmt: skip
# Names, then attributes: white space and slashes, names, and behind `=` a value in quotes or without.
_ATTRIBUTES = (
    rb"(?>[\t\n\f\r /]++|[^\t\n\f\r />][^\t\n\f\r />=]*+"
    rb"(?>[\t\n\f\r ]*+=[\t\n\f\r ]*+(?>\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z)|[^\t\n\f\r >\"'][^\t\n\f\r >]*+)?+)?+)*+"
)
# What is no text: a whole tag, with its name; else a tag that the end cuts off, or another piece of markup.
_MARKUP = re.compile(
    rb"<(?:(/?)([A-Za-z][^\t\n\f\r />]*+)" + _ATTRIBUTES + rb">|(?P<cut>/?[A-Za-z])|[!?]|/.)", re.DOTALL
)
_COMMENT_END = re.compile(rb"--!?>")
_FOREIGN = frozenset({"math", "svg"})
_BACK_TO_HTML = frozenset({"annotation-xml", "foreignobject"})
_SLASH = ord("/")
_CDATA, _CDATA_END = b"<![CDATA[", b"]]>"
_DOCTYPE_XML = re.compile(
    rb"<!DOCTYPE(?>[^\[>\"']++|\"[^\"]*+\"|'[^']*+')*+"
    rb"(?:\[(?><!--(?:.*?-->|.*)|<\?(?:.*?\?>|.*)|[^\]\"'<]++|\"[^\"]*+\"|'[^']*+'|<)*+\][\t\n\r ]*+)?>",
    re.DOTALL,
)
_SCRIPT = re.compile(rb"<!--|-->|<(/?)script(?=[\t\n\f\r />])", re.IGNORECASE)

_ENDS: dict[str, re.Pattern[bytes]] = {
    name: re.compile(rb"</%s(?=[\t\n\f\r />])" % name.encode("ascii"), re.IGNORECASE) for name in _RAW_TEXT
}


def tokens(source: bytes, *, is_xml: bool) -> Iterator[Token]:
    """The tokens of a document in an encoding that keeps ASCII, in order and without gaps."""
    cutter = _Cutter(source=source, is_xml=is_xml)
    search = _MARKUP.search
    position = 0
    while match := search(source, position):
        start = match.start()
        if position < start:
            yield Token("text", position, start, "", cutter.is_foreign)
        token = cutter.tag(match) if match[2] else cutter.other(start, is_cut=match["cut"] is not None)
        yield token
        position = token.stop
        if token.kind == "start" and (raw := cutter.raw_text(token)) is not None:
            if raw.start < raw.stop:
                yield raw
            position = raw.stop
    if position < len(source):
        yield Token("text", position, len(source), "", cutter.is_foreign)


@dataclass(slots=True, kw_only=True)
class _Cutter:
    """Where tokens end, which depends on the foreign elements that are open."""

    source: bytes
    is_xml: bool
    foreign: list[str] = field(default_factory=list)
    is_foreign: bool = False
    has_doctype: bool = False

    def tag(self, match: re.Match[bytes]) -> Token:
        """A tag that is whole."""
        name = match[2].decode("latin-1").lower()
        start, stop = match.span()
        if match[1]:
            token = Token("end", start, stop, name, self.is_foreign)
            if self.foreign and name == self.foreign[-1]:
                self.foreign.pop()
                self._note()
            return token
        is_foreign = self.is_foreign or name in _FOREIGN
        is_closed = (self.is_xml or is_foreign) and self.source[stop - 2] == _SLASH
        if is_foreign:
            self._enter(name, is_closed=is_closed)
        return Token("start", start, stop, name, is_foreign, is_closed)

    def _enter(self, name: str, *, is_closed: bool) -> None:
        if self.is_foreign and not self.is_xml and name in _BREAKS_OUT:
            self.foreign.clear()
        elif not is_closed and (name in _FOREIGN or name in _BACK_TO_HTML):
            self.foreign.append(name)
        self._note()

    def _note(self) -> None:
        self.is_foreign = bool(self.foreign) and self.foreign[-1] in _FOREIGN

    def other(self, start: int, *, is_cut: bool) -> Token:
        """Anything else that begins with `<` and is no text."""
        if is_cut:
            # A tag that the file's end cuts off: browsers drop it.
            return Token("declaration", start, len(self.source))
        following = self.source[start + 1 : start + 2]
        if following == b"!":
            return self._declaration(start)
        if following == b"?":
            return self._until(b"?>" if self.is_xml else b">", start, "declaration")
        return self._until(b">", start, "comment")

    def _declaration(self, start: int) -> Token:
        source = self.source
        if source.startswith(b"<!--", start):
            return self._comment(start)
        if source.startswith(_CDATA, start) and (self.is_xml or self.is_foreign):
            stop = source.find(_CDATA_END, start)
            stop = len(source) if stop < 0 else stop + len(_CDATA_END)
            return Token("cdata", start, stop, "", self.is_foreign)
        # One is allowed; trying each of many that do not end would take the square of their number.
        if self.is_xml and not self.has_doctype:
            self.has_doctype = True
            if match := _DOCTYPE_XML.match(source, start):
                return Token("declaration", start, match.end())
        return self._until(b">", start, "declaration")

    def _comment(self, start: int) -> Token:
        source = self.source
        if self.is_xml:
            return self._until(b"-->", start + 4, "comment", begins=start)
        if source.startswith((b"<!-->", b"<!--->"), start):
            return Token("comment", start, source.index(b">", start) + 1)
        end = _COMMENT_END.search(source, start + 4)
        return Token("comment", start, end.end() if end else len(source))

    def _until(self, mark: bytes, start: int, kind: Kind, *, begins: int | None = None) -> Token:
        found = self.source.find(mark, start)
        stop = len(self.source) if found < 0 else found + len(mark)
        return Token(kind, start if begins is None else begins, stop)

    def raw_text(self, token: Token) -> Token | None:
        """The content of an element of raw text, which holds no tags; None for other elements."""
        name = token.name
        if self.is_xml or token.is_foreign or (name not in _RAW_TEXT and name != "plaintext"):
            return None
        if name == "plaintext":
            return Token("raw", token.stop, len(self.source), name)
        if name == "script":
            return Token("raw", token.stop, self._script_stop(token.stop), name)
        end = _ENDS[name].search(self.source, token.stop)
        return Token("raw", token.stop, end.start() if end else len(self.source), name)

    def _script_stop(self, start: int) -> int:
        """Where a script ends. Inside `<!--` a nested `<script>` hides one `</script>` (the double escaped state)."""
        is_escaped = is_nested = False
        for match in _SCRIPT.finditer(self.source, start):
            if match[0] == b"<!--":
                is_escaped = True
            elif match[0] == b"-->":
                is_escaped = is_nested = False
            elif not match[1]:
                is_nested = is_escaped
            elif is_nested:
                is_nested = False
            else:
                return match.start()
        return len(self.source)
