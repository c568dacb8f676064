"""Counts the bytes of one part of a DOCX: text, markup, and what is left unread, each with its reason.

Every byte is counted once, by what the tokenizer says it is and by what the walk made of the element it stands in:
both number the elements by their start tags. White space that only sets elements apart is markup.
"""

from collections import Counter
from collections.abc import Iterator

from connectors.decode import Decoded
from connectors.docx_steps import PartReading
from connectors.markup_scan import count_stretches
from connectors.markup_tokens import tokens

_CDATA_OPEN, _CDATA_CLOSE = len(b"<![CDATA["), len(b"]]>")
#: Characters of elements that lay things out or describe them: offsets, formulas behind charts, properties.
OTHER = "metadata"


def count_part(decoded: Decoded, reading: PartReading) -> Counter[str]:
    """Source bytes, without a byte-order mark, by what they are. The part is well-formed and declares no entities."""
    utf8 = decoded.text.encode("utf-8")
    return count_stretches(decoded, utf8, _stretches(utf8, reading))


def _stretches(utf8: bytes, reading: PartReading) -> Iterator[tuple[str, int, int]]:
    number = -1
    elements: list[int] = []
    for token in tokens(utf8, is_xml=True):
        kind = token.kind
        if kind in ("text", "cdata"):
            content = (_CDATA_OPEN, _CDATA_CLOSE) if kind == "cdata" else (0, 0)
            opened, closing = token.start + content[0], token.stop - content[1]
            yield "markup", token.start, opened
            yield _kind(utf8[opened:closing], elements[-1] if elements else -1, reading), opened, closing
            yield "markup", closing, token.stop
            continue
        yield "comment" if kind == "comment" else "markup", token.start, token.stop
        if kind == "start":
            number += 1
            if not token.is_closed:
                elements.append(number)
        elif kind == "end" and elements:
            elements.pop()


def _kind(characters: bytes, element: int, reading: PartReading) -> str:
    if element in reading.read:
        return "text"
    return "markup" if characters.isspace() else reading.unread.get(element, OTHER)
