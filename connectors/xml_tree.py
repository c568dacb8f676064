"""Parses XML that strangers wrote: XHTML, package files, FictionBook, Office documents. One door to lxml for all.

Owns the limits: nothing is fetched, no external entity or DTD is read, internal entities expand by libxml2's own bound
on amplification, trees are at most 2,048 elements deep (256 where entities are declared), and nothing is repaired in
silence. Names that HTML defines (`&nbsp;`) are known although no DTD says so.
"""

import re
from html.entities import html5
from typing import Any

from longdoc.errors import DocumentError
from longdoc.records import display

# Element trees have no types of their own here: lxml ships none.
Element = Any

_NAMED = re.compile(r"&([A-Za-z][A-Za-z0-9]*;)")
_EXTERNAL = re.compile(r"<!ENTITY\s+(?:%\s+)?\S+\s+(?:SYSTEM|PUBLIC)\b")
_OF_XML = frozenset({"lt;", "gt;", "amp;", "quot;", "apos;"})


class XmlError(ValueError):
    """Not well-formed XML, or XML that asks for more than is given. `reason` is `damaged` or `unsafe`."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason

    def fault(self, subject: str, advice: str) -> DocumentError:
        """The same as a fault of a document: `subject` names the file or member, `advice` is the next action."""
        return DocumentError(f"{display(subject)}: {self}. {advice}", stage="read", reason=self.reason)


def parse_xml(text: str) -> Element:
    """The root element of an XML document, whatever encoding its declaration names: `text` is decoded already.

    Comments, processing instructions and unresolved entities are nodes of the tree. Raises `XmlError`.
    """
    from lxml import etree

    declares = "<!ENTITY" in text
    parser = etree.XMLParser(
        encoding="utf-8",
        resolve_entities="internal",
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        # Its bounds on text and depth are for files that multiply by entities; without any, size is what was read.
        huge_tree=not declares,
    )
    source = text if declares or "<![CDATA[" in text else _NAMED.sub(_as_character, text)
    try:
        return etree.fromstring(source.encode("utf-8"), parser)
    except etree.XMLSyntaxError as error:
        raise _explained(error, has_external=declares and _EXTERNAL.search(text) is not None) from error


def _as_character(match: re.Match[str]) -> str:
    name = match[1]
    return match[0] if name in _OF_XML or name not in html5 else "".join(f"&#{ord(char)};" for char in html5[name])


def _explained(error: Exception, *, has_external: bool) -> XmlError:
    cause = (getattr(error, "msg", None) or str(error)).splitlines()[0]
    if "amplification" in cause or "entity reference loop" in cause.lower():
        return XmlError(f"its entities expand without bound ({cause})", reason="unsafe")
    if has_external and "not defined" in cause:
        return XmlError(f"it wants text from outside itself, which is never fetched ({cause})", reason="unsafe")
    return XmlError(f"not well-formed XML ({cause})", reason="damaged")
