"""What a tagged PDF says about one page: which marked content is a heading, and the alternative texts of its pictures.

Owns the walk of a page's structure tree (ISO 32000-1, 14.7 and 14.8), without recursion. Runs where pdfium runs, see
`connectors.pdfium`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pypdfium2.raw as c

from connectors.pdf_texts import wide_text

_LEVELS = {"Title": 1, "H": 1} | {f"H{level}": level for level in range(1, 7)}
# What has an alternative text in place of a picture; one on other elements replaces text that the page has.
_PICTURES = frozenset({"Figure", "Formula"})
# Marked content -> level of the heading it belongs to, and the heading's number on the page.
Headings = dict[int, tuple[int, int]]
_Heading = tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class PageTags:
    """The headings of a page by their marked content, and the alternative texts of its pictures in order."""

    headings: Headings = field(default_factory=dict)
    alt_texts: tuple[str, ...] = ()


def read_tags(page: Any) -> PageTags:
    """The tags of a page; none where the file has none."""
    tree = c.FPDF_StructTree_GetForPage(page)
    if not tree:
        return PageTags()
    try:
        return _tags(tree)
    finally:
        c.FPDF_StructTree_Close(tree)


def _tags(tree: Any) -> PageTags:
    headings: Headings = {}
    alt_texts: list[str] = []
    num_headings = 0
    roots = [c.FPDF_StructTree_GetChildAtIndex(tree, i) for i in range(c.FPDF_StructTree_CountChildren(tree))]
    pending: list[tuple[Any, _Heading]] = [(root, None) for root in reversed(roots) if root]
    while pending:
        element, heading = pending.pop()
        kind = wide_text(c.FPDF_StructElement_GetType, element)
        if kind in _PICTURES and (alt := wide_text(c.FPDF_StructElement_GetAltText, element).strip()):
            alt_texts.append(alt)
        if heading is None and kind in _LEVELS:
            heading = (_LEVELS[kind], num_headings)
            num_headings += 1
        if heading is not None:
            headings |= dict.fromkeys(_marked(element), heading)
        pending += [(child, heading) for child in reversed(_children(element))]
    return PageTags(headings, tuple(alt_texts))


def _children(element: Any) -> list[Any]:
    """The children that are elements of this page; those of other pages are null."""
    count = c.FPDF_StructElement_CountChildren(element)
    return [child for i in range(count) if (child := c.FPDF_StructElement_GetChildAtIndex(element, i))]


def _marked(element: Any) -> Iterator[int]:
    for index in range(c.FPDF_StructElement_GetMarkedContentIdCount(element)):
        if (content := c.FPDF_StructElement_GetMarkedContentIdAtIndex(element, index)) >= 0:
            yield content
