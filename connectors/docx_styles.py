"""What the paragraph styles of a DOCX say about a book: which are headings and of which level, lists, captions, titles.

Owns the chain of styles that one is based on (ECMA-376, part 1, 17.7.4), and the built-in names, which Word writes in
English whatever language it runs in.
"""

import re
from dataclasses import dataclass

from connectors.docx_names import attribute, child, name_of, value
from connectors.xml_tree import Element

_HEADING = re.compile(r"heading ([1-9])", re.IGNORECASE)
_CONTENTS = re.compile(r"(?:toc [1-9]|index [1-9]|table of figures)", re.IGNORECASE)
_BODY_TEXT = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class ParagraphStyle:
    """`outline` is 0 for the highest level of headings, None for other paragraphs. `is_entry`: one of a list."""

    outline: int | None = None
    is_title: bool = False
    is_entry: bool = False
    is_caption: bool = False


_PLAIN = ParagraphStyle()


class Styles:
    """The styles of one document. Without a styles part, the identifiers that Word gives stand for themselves."""

    def __init__(self, root: Element | None) -> None:
        found = [] if root is None else [each for each in root if name_of(each) == "w:style"]
        self._styles = {attribute(each, "w:styleId"): each for each in found}
        self._resolved: dict[str, ParagraphStyle] = {"": _PLAIN}
        self.language = value(child(root, "w:docDefaults", "w:rPrDefault", "w:rPr"), "w:lang")

    def of_paragraph(self, properties: Element | None) -> ParagraphStyle:
        """What a paragraph is: its own properties (`w:pPr`) go before its style's."""
        if properties is None:
            return _PLAIN
        style = self._of_style(value(properties, "w:pStyle"))
        level = value(properties, "w:outlineLvl")
        numbering = value(properties, "w:numPr", "w:numId")
        return ParagraphStyle(
            outline=_outline(level) if level else style.outline,
            is_title=style.is_title,
            is_entry=numbering != "0" if numbering else style.is_entry,
            is_caption=style.is_caption,
        )

    def _of_style(self, style_id: str) -> ParagraphStyle:
        if style_id not in self._resolved:
            self._resolved[style_id] = self._resolve(style_id)
        return self._resolved[style_id]

    def _resolve(self, style_id: str) -> ParagraphStyle:
        """The first of the chain that says something holds; a chain that leads back to itself ends there."""
        outline: int | None = None
        numbering = ""
        names: list[str] = []
        seen: set[str] = set()
        says_outline = False
        while style_id and style_id not in seen:
            seen.add(style_id)
            element = self._styles.get(style_id)
            name = value(element, "w:name") or re.sub(r"(?<=[a-z])(?=\d)", " ", style_id)
            properties = child(element, "w:pPr")
            level = value(properties, "w:outlineLvl")
            if not says_outline and (level or _HEADING.fullmatch(name)):
                says_outline = True
                outline = _outline(level) if level else int(name[-1]) - 1
            numbering = numbering or value(properties, "w:numPr", "w:numId")
            names.append(name.lower())
            style_id = value(element, "w:basedOn")
        return ParagraphStyle(
            outline=outline,
            is_title="title" in names,
            is_entry=numbering not in ("", "0") or any(_CONTENTS.fullmatch(name) for name in names),
            is_caption="caption" in names,
        )


def _outline(level: str) -> int | None:
    """17.3.1.20: 0 to 8 are headings, 9 is body text."""
    return int(level) if level.isdecimal() and int(level) < _BODY_TEXT else None
