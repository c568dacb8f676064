"""Names of Office Open XML, in both sets of namespaces: the transitional one that Word writes, and the strict one.

Owns the short forms (`w:p`, `m:t`) that the readers of a DOCX ask for, and what stands in an attribute of such a name.
"""

from functools import cache

from connectors.xml_tree import Element

_TRANSITIONAL = "http://schemas.openxmlformats.org/"
_STRICT = "http://purl.oclc.org/ooxml/"
# ECMA-376, part 1 (strict) and part 4 (transitional), annex A; part 3 for `mc`; [MS-DOCX] for `wps`.
_NAMESPACES = {
    f"{_TRANSITIONAL}wordprocessingml/2006/main": "w",
    f"{_STRICT}wordprocessingml/main": "w",
    f"{_TRANSITIONAL}officeDocument/2006/math": "m",
    f"{_STRICT}officeDocument/math": "m",
    f"{_TRANSITIONAL}officeDocument/2006/relationships": "r",
    f"{_STRICT}officeDocument/relationships": "r",
    f"{_TRANSITIONAL}drawingml/2006/main": "a",
    f"{_STRICT}drawingml/main": "a",
    f"{_TRANSITIONAL}drawingml/2006/wordprocessingDrawing": "wp",
    f"{_STRICT}drawingml/wordprocessingDrawing": "wp",
    f"{_TRANSITIONAL}drawingml/2006/chart": "c",
    f"{_STRICT}drawingml/chart": "c",
    f"{_TRANSITIONAL}drawingml/2006/diagram": "dgm",
    f"{_STRICT}drawingml/diagram": "dgm",
    f"{_TRANSITIONAL}markup-compatibility/2006": "mc",
    "urn:schemas-microsoft-com:vml": "v",
    "http://schemas.microsoft.com/office/word/2010/wordprocessingShape": "wps",
}
_OFF = frozenset({"0", "false", "off", "none"})


@cache
def short_name(tag: str) -> str:
    """`w:p` for an element or attribute of a known namespace; the bare name for one without, or of another."""
    namespace, _, name = tag.rpartition("}")
    prefix = _NAMESPACES.get(namespace[1:])
    return f"{prefix}:{name}" if prefix else name


def name_of(element: Element | None) -> str:
    """The short name of an element; nothing for none, a comment or a processing instruction."""
    return short_name(element.tag) if element is not None and isinstance(element.tag, str) else ""


def attribute(element: Element, name: str) -> str:
    """An attribute by its short name, or nothing."""
    for key, value in element.attrib.items():
        if short_name(key) == name:
            return str(value)
    return ""


def child(element: Element | None, *names: str) -> Element | None:
    """The first element at a path of short names, or None."""
    for name in names:
        if element is None:
            return None
        element = next((each for each in element if name_of(each) == name), None)
    return element


def value(element: Element | None, *names: str) -> str:
    """The `w:val` of the element at a path of short names, or nothing."""
    found = child(element, *names)
    return "" if found is None else attribute(found, "w:val")


def is_on(element: Element | None, *names: str) -> bool:
    """Whether a switch at a path of short names is there and not switched off (ECMA-376, part 1, 17.17.4)."""
    found = child(element, *names)
    return found is not None and attribute(found, "w:val").lower() not in _OFF


def text_of(element: Element) -> str:
    """The element's own characters, without those of elements in it."""
    parts = [element.text or "", *(each.tail or "" for each in element)]
    return "".join(parts)
