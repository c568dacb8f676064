"""Walks one part of a DOCX in its own order, and says what becomes of every character in it.

Owns the blocks of WordprocessingML (ECMA-376, part 1, 17): paragraphs, tables, text boxes, notes, what was inserted and
deleted, alternative forms. Everything that a reader sees is in, once; what Word does not show (deleted text, codes of
fields, hidden text, the fallback of what is there in a newer form) is left out with a reason.

The walk feeds no flow: it makes steps, which `connectors.docx` plays in the order in which they are read.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from connectors import docx_inline
from connectors.docx_names import attribute, child, name_of, value
from connectors.docx_state import State
from connectors.docx_steps import Paragraph, PartReading, Step, Story
from connectors.docx_styles import Styles
from connectors.xml_tree import Element

_UNREAD = {"w:del": "deleted", "w:moveFrom": "deleted"}
# No-break spaces are text.
_WHITE = " \t\n\f\r"
_NOTES_PARTS = frozenset({"w:footnotes", "w:endnotes", "w:comments"})
# The lines that Word draws between text and notes (17.18.33) hold nothing, unless somebody wrote there.
_SEPARATORS = frozenset({"separator", "continuationSeparator", "continuationNotice"})


def read_part(root: Element, styles: Styles) -> PartReading:
    """Walk a part: the document, its notes or comments, a header or footer, a chart or diagram."""
    from lxml import etree

    walk = _Walk(styles=styles)
    for event, element in etree.iterwalk(root, events=("start", "end")):
        if event == "start":
            walk.start(element)
        else:
            walk.end(element)
    walk.state.flush_behind()
    return walk.state.reading


@dataclass(slots=True, kw_only=True)
class _Walk:
    """The walk. `skipped` is the depth in an element that is left unread for `reason`.

    `choices` holds the first `mc:Choice` of what comes in several forms.
    """

    styles: Styles
    state: State = field(default_factory=State)
    skipped: int = 0
    reason: str = ""
    choices: dict[Element, Element | None] = field(default_factory=dict)

    def start(self, element: Element) -> None:
        """An element begins."""
        state, name = self.state, name_of(element)
        state.number += 1
        if self.skipped or (reason := self._reason(name, element)):
            self.reason = self.reason if self.skipped else reason
            self.skipped += 1
            state.reading.unread[state.number] = self.reason
            return
        state.enter(name)
        if inline := docx_inline.STARTERS.get(name):
            inline(state, element)
        elif block := _STARTERS.get(name):
            block(self, element)

    def end(self, element: Element) -> None:
        """The element ends."""
        if self.skipped:
            self.skipped -= 1
            return
        if action := self.state.ends.pop(element, None):
            action()
        self.state.leave(name_of(element))

    def _reason(self, name: str, element: Element) -> str:
        """Why an element and all in it is left unread, or nothing."""
        if name not in ("mc:Fallback", "mc:Choice"):
            return _UNREAD.get(name, "")
        # Of the forms in which something is there, the first is the richest.
        above = element.getparent()
        if above not in self.choices:
            self.choices[above] = child(above, "mc:Choice")
        return "" if self.choices[above] in (element, None) else "fallback"

    def paragraph(self, element: Element) -> None:
        """17.3.1.22: a heading, a caption, an entry of a list, or a block."""
        style = self.styles.of_paragraph(child(element, "w:pPr"))
        story, place = self.state.story, self.state.place
        if self.state.is_alone and (style.outline is not None or style.is_title):
            # A title stands above all headings.
            level = 1 if style.outline is None else min(6, style.outline + 2)
            start, end = [Step("heading", (level, place))], [Step("end_heading")]
        elif self.state.is_alone and style.is_caption:
            start, end = [Step("begin", ("caption", place))], [Step("end")]
        else:
            is_line = story.tables > 0 or (style.is_entry and story.was_entry)
            start, end = [Step("block", (place, 1 if is_line else 2))], []
        story.was_entry = style.is_entry
        story.paragraphs.append(Paragraph(start=start, end=end))
        self.state.ends[element] = self._end_paragraph

    def _end_paragraph(self) -> None:
        story = self.state.story
        paragraph = story.paragraphs.pop()
        text = "".join(paragraph.texts)
        if text.strip(_WHITE):
            story.steps += [*paragraph.start, Step("exact", (text,)), *paragraph.end]
        story.steps += [*paragraph.asides, *paragraph.behind]
        story.notes += paragraph.notes
        self.state.flush_behind()

    def table(self, element: Element) -> None:
        """17.4.37: rows and cells follow. What describes it to those who do not see it is an alt text."""
        story = self.state.story
        story.steps.append(Step("begin_table", (self.state.place,)))
        story.tables += 1
        for name in ("w:tblCaption", "w:tblDescription"):
            if text := value(element, "w:tblPr", name):
                self.state.add_aside("alt_text", text)

        def end() -> None:
            story.steps.append(Step("end_table"))
            story.tables -= 1
            story.was_entry = False
            self.state.flush_behind()

        self.state.ends[element] = end

    def row(self, _: Element) -> None:
        """A row of the table."""
        if self.state.story.tables:
            self.state.story.steps.append(Step("row", (self.state.place,)))

    def cell(self, _: Element) -> None:
        """A cell of the row."""
        if self.state.story.tables:
            self.state.story.steps.append(Step("cell", (self.state.place,)))
            self.state.story.was_entry = False

    def box(self, element: Element) -> None:
        """A text box: a story of its own, which stands behind the paragraph that it is anchored in."""
        outer, inner = self.state.story, Story([])
        around = outer.paragraphs[-1].behind if outer.paragraphs else outer.steps
        self.state.stories.append(inner)

        def end() -> None:
            self.state.stories.pop()
            around.extend(inner.steps)

        self.state.ends[element] = end

    def note(self, element: Element) -> None:
        """17.11: a footnote, endnote or comment in its own part; anywhere else its paragraphs are a text box's."""
        if name_of(element.getparent()) not in _NOTES_PARTS:
            self.box(element)
            return
        steps: list[Step] = []
        self.state.stories.append(Story(steps))

        def end() -> None:
            self.state.stories.pop()
            is_line = attribute(element, "w:type") in _SEPARATORS
            if not is_line or any(step.name == "exact" for step in steps):
                # Two of one identifier stand where either is referred to.
                self.state.reading.notes.setdefault(attribute(element, "w:id"), []).extend(steps)

        self.state.ends[element] = end

    def margin(self, element: Element) -> None:
        """17.10: a section's reference to a header or footer."""
        kind = "header" if name_of(element) == "w:headerReference" else "footer"
        self.state.reading.headers.append((kind, attribute(element, "r:id")))

    def chunk(self, element: Element) -> None:
        """17.17.2.1: another document that Word would put in here when it opens this one."""
        self.state.story.steps.append(Step("chunk", (attribute(element, "r:id"),)))


_STARTERS: dict[str, Callable[[_Walk, Element], None]] = {
    **dict.fromkeys(("w:p", "a:p"), _Walk.paragraph),
    **dict.fromkeys(("w:txbxContent", "a:txBody"), _Walk.box),
    **dict.fromkeys(("w:footnote", "w:endnote", "w:comment"), _Walk.note),
    **dict.fromkeys(("w:headerReference", "w:footerReference"), _Walk.margin),
    "w:tbl": _Walk.table,
    "w:tr": _Walk.row,
    "w:tc": _Walk.cell,
    "w:altChunk": _Walk.chunk,
}
