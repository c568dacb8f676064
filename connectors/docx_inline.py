"""What the elements inside a paragraph of a DOCX do to the text: characters, fields, notes, pictures, ruby, equations.

Section numbers are those of ECMA-376, part 1. What Word computes (numbers of notes, results that were never stored) is
in no part and is not put in.
"""

import re
from collections.abc import Callable

from connectors.docx_names import attribute, child, is_on, name_of, text_of
from connectors.docx_state import State
from connectors.docx_steps import Step
from connectors.xml_tree import Element

# Elements of a run that stand for characters: 17.3.3.
CHARACTERS = {
    "w:tab": "\t", "w:ptab": "\t", "w:br": "\n", "w:cr": "\n", "w:noBreakHyphen": "\u2011", "w:softHyphen": "\u00ad",
    "a:br": "\n",
}  # fmt: skip
_RUNS = frozenset({"w:r", "m:r", "a:p"})
_NOTES = {"w:footnoteReference": "footnote", "w:endnoteReference": "endnote", "w:commentReference": "comment"}
_DELIMITERS = (("m:begChr", "("), ("m:sepChr", "|"), ("m:endChr", ")"))
_LINE_ENDS = re.compile("[\t\n\r]")


def characters(state: State, element: Element) -> None:
    """17.3.3.31: text, unless it stands where Word shows none. White space is kept, line ends are spaces."""
    if reason := state.unshown():
        state.reading.unread[state.number] = reason
        return
    state.reading.read.add(state.number)
    state.text(_LINE_ENDS.sub(" ", text_of(element)))


def character(state: State, element: Element) -> None:
    """An element that stands for a character, where it is one: tab stops have the name of tabs."""
    if name_of(element.getparent()) in _RUNS and not state.unshown():
        state.text(CHARACTERS[name_of(element)])


def symbol(state: State, element: Element) -> None:
    """17.3.3.30: a character of a symbol font, by its number there; those of the private use area are counted."""
    try:
        char = chr(int(attribute(element, "w:char"), 16))
    except (ValueError, OverflowError):
        return
    if "\ud800" <= char <= "\udfff" or state.unshown():
        return
    state.reading.num_symbols += "\ue000" <= char <= "\uf8ff"
    state.text(char)


def run(state: State, element: Element) -> None:
    """17.3.2.41: a run may be hidden."""
    if is_on(element, "w:rPr", "w:vanish"):
        state.hidden_runs += 1

        def end() -> None:
            state.hidden_runs -= 1

        state.ends[element] = end


def field_character(state: State, element: Element) -> None:
    """17.16.18: a field's code stands between `begin` and `separate`, its result between that and `end`."""
    fields = state.story.fields
    kind = attribute(element, "w:fldCharType")
    if kind == "begin":
        fields.append(True)
    elif fields and kind == "separate":
        fields[-1] = False
    elif fields and kind == "end":
        fields.pop()


def reference(state: State, element: Element) -> None:
    """17.11.14, 17.11.7, 17.13.4.5: a note or comment, which stands in a part of its own."""
    state.add_behind(Step("note", (_NOTES[name_of(element)], attribute(element, "w:id"))))


def ruby_reading(state: State, element: Element) -> None:
    """17.3.3.24: the reading above the base text."""
    texts: list[str] = []
    state.aside = texts

    def end() -> None:
        state.aside = None
        state.add_aside("ruby", "".join(texts))

    state.ends[element] = end


def described(state: State, element: Element) -> None:
    """20.4.2.5: pictures, shapes and charts have an alternative text, or else a title."""
    if text := attribute(element, "descr") or attribute(element, "title") or attribute(element, "alt"):
        state.add_aside("alt_text", text)


def word_art(state: State, element: Element) -> None:
    """Text that VML draws along a path stands in an attribute (part 4, 19.1.2.23)."""
    if text := attribute(element, "string"):
        state.add_aside("alt_text", text)


def figure(state: State, element: Element) -> None:
    """A chart, or the contents of a diagram: parts of their own."""
    if relationship := attribute(element, "r:id") or attribute(element, "r:dm"):
        state.add_behind(Step("figure", (relationship,)))


def cached_value(state: State, element: Element) -> None:
    """21.2.2.201: a chart's names of series and categories are text, its numbers are not."""
    above = element.getparent()
    if above is not None and name_of(above.getparent()) == "c:strCache":
        state.reading.read.add(state.number)
        state.story.steps += [Step("block", (state.place, 1)), Step("exact", (text_of(element),))]


def delimiters(state: State, element: Element) -> None:
    """22.1.2.24: brackets around an expression are attributes; so is what stands between several."""
    opening, between, closing = (_sign(element, "m:dPr", name, default) for name, default in _DELIMITERS)
    state.text(opening)
    parts = [each for each in element if name_of(each) == "m:e"]
    for part in parts[:-1]:
        state.ends[part] = lambda: state.text(between)
    state.ends[element] = lambda: state.text(closing)


def operator(state: State, element: Element) -> None:
    """22.1.2.70: the sign of a sum, product or integral."""
    state.text(_sign(element, "m:naryPr", "m:chr", "\u222b"))


def _sign(element: Element, properties: str, name: str, default: str) -> str:
    found = child(element, properties, name)
    return default if found is None else attribute(found, "m:val")


def unread_text(state: State, element: Element) -> None:
    """Codes of fields, and what was deleted."""
    state.reading.unread[state.number] = "deleted" if name_of(element) == "w:delText" else "field_code"


STARTERS: dict[str, Callable[[State, Element], None]] = {
    **dict.fromkeys(CHARACTERS, character),
    **dict.fromkeys(_NOTES, reference),
    **dict.fromkeys(("w:t", "m:t", "a:t"), characters),
    **dict.fromkeys(("w:delText", "w:instrText", "w:delInstrText"), unread_text),
    **dict.fromkeys(("wp:docPr", "v:shape", "v:rect", "v:oval"), described),
    **dict.fromkeys(("c:chart", "dgm:relIds"), figure),
    "w:r": run,
    "w:sym": symbol,
    "w:fldChar": field_character,
    "w:rt": ruby_reading,
    "v:textpath": word_art,
    "c:v": cached_value,
    "m:d": delimiters,
    "m:nary": operator,
}
