"""Where the walk through a part of a DOCX is: the stories and paragraphs that are open, the places, what ends do.

Owns the order of what is read: text boxes behind the paragraph that they are anchored in, notes behind the outermost
paragraph or table that refers to them. What elements mean is for `connectors.docx_walk` and `connectors.docx_inline`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from connectors.docx_steps import PartReading, Step, Story
from connectors.xml_tree import Element

# Elements that places name, with their number among their kind and without.
_NUMBERED = frozenset(
    {"w:p", "w:tbl", "w:tr", "w:tc", "w:sdt", "w:customXml", "w:txbxContent", "w:footnote", "w:endnote", "w:comment",
     "a:p"}
)  # fmt: skip
_ALONE = frozenset(
    {"w:document", "w:body", "w:sdtContent", "w:footnotes", "w:endnotes", "w:comments", "w:hdr", "w:ftr",
     "c:chartSpace", "dgm:dataModel"}
)  # fmt: skip
_INLINE = frozenset({"w:txbxContent", "a:p"})
# Deeper elements are named by their ancestor of this depth: names that grow with depth would take its square.
_DEEPEST_PLACE = 48


@dataclass(slots=True)
class _Place:
    """An element on the way down to the present one that has a name of its own in places."""

    path: str
    children: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class State:
    """The walk through one part. `number` is the present element's, in the order of start tags."""

    reading: PartReading = field(default_factory=PartReading)
    number: int = -1
    stories: list[Story] = field(default_factory=list)
    aside: list[str] | None = None
    hidden_runs: int = 0
    ends: dict[Element, Callable[[], None]] = field(default_factory=dict)
    _places: list[_Place] = field(default_factory=lambda: [_Place("")])

    def __post_init__(self) -> None:
        self.stories.append(Story(self.reading.steps))

    @property
    def story(self) -> Story:
        """The innermost story."""
        return self.stories[-1]

    @property
    def is_alone(self) -> bool:
        """Whether the walk is in the part's own story and outside its tables."""
        return len(self.stories) == 1 and not self.story.tables

    @property
    def place(self) -> str:
        """The nearest element that places name, as an XPath."""
        return self._places[-1].path or "/"

    def enter(self, name: str) -> None:
        """Go down into an element, if places name it."""
        if name not in _NUMBERED and name not in _ALONE:
            return
        above = self._places[-1]
        number = above.children[name] = above.children.get(name, 0) + 1
        step = name if name in _ALONE else f"{name}[{number}]"
        between = "//" if name in _INLINE else "/"
        is_named = len(self._places) < _DEEPEST_PLACE
        self._places.append(_Place(f"{above.path}{between}{step}" if is_named else above.path))

    def leave(self, name: str) -> None:
        """Come up out of an element that was entered."""
        if name in _NUMBERED or name in _ALONE:
            self._places.pop()

    def unshown(self) -> str:
        """Why Word shows nothing here, or nothing."""
        if any(self.story.fields):
            return "field_code"
        return "hidden" if self.hidden_runs else ""

    def text(self, text: str) -> None:
        """Characters that are shown."""
        if self.aside is not None:
            self.aside.append(text)
        elif self.story.paragraphs:
            self.story.paragraphs[-1].texts.append(text)
        else:
            # Text outside a paragraph is no valid document, but it is text.
            self.story.steps += [Step("block", (self.place,)), Step("exact", (text,))]

    def add_aside(self, label: str, text: str) -> None:
        """A text beside the flow: `alt_text` or `ruby`."""
        if not text.strip():
            return
        step = Step("aside", (label, text, self.place))
        story = self.story
        (story.paragraphs[-1].asides if story.paragraphs else story.steps).append(step)

    def add_behind(self, step: Step) -> None:
        """What stands behind the outermost paragraph or table: a note, a figure."""
        story = self.stories[0]
        (story.paragraphs[-1].notes if story.paragraphs else story.notes).append(step)

    def flush_behind(self) -> None:
        """Put what stands behind here, unless a paragraph, table or text box is open."""
        if self.is_alone and not self.story.paragraphs:
            self.story.steps += self.story.notes
            self.story.notes.clear()
