"""What the elements of HTML, SVG and MathML mean for the text of a book. Tables and two questions; walks nothing.

The walk through the tree (`markup_walk`) and the count of the source's bytes (`markup_scan`) ask here, so that what the
one leaves unread the other counts as unread.
"""

import re
from collections.abc import Mapping

#: Elements whose text no reader sees, and the reason that their bytes carry. `title` only outside SVG.
UNREAD = {
    "script": "script",
    "style": "style",
    "template": "template",
    "title": "metadata",
    "iframe": "embedded",
    "noembed": "embedded",
    "noframes": "embedded",
    "datalist": "form",
    "rp": "ruby_parenthesis",
    "annotation": "annotation",
    "annotation-xml": "annotation",
    "metadata": "metadata",
}
#: Elements without content: https://html.spec.whatwg.org/#void-elements, and two that were ones once.
VOID = frozenset(
    {"area", "base", "basefont", "bgsound", "br", "col", "embed", "frame", "hr", "img", "input", "keygen", "link",
     "meta", "param", "source", "track", "wbr"}
)  # fmt: skip
#: Blocks: a blank line before and behind.
BLOCKS = frozenset(
    {"address", "article", "aside", "blockquote", "body", "center", "details", "dialog", "dir", "div", "dl", "fieldset",
     "figure", "footer", "form", "frameset", "header", "hgroup", "hr", "html", "legend", "listing", "main", "menu",
     "nav", "ol", "optgroup", "p", "plaintext", "pre", "search", "section", "summary", "ul", "xmp"}
)  # fmt: skip
#: Entries of lists: on a line of their own.
ENTRIES = frozenset({"dd", "dt", "li", "option"})
#: Lists: inside another list they go on with its lines.
LISTS = frozenset({"dir", "dl", "menu", "ol", "ul"})
#: White space inside is kept.
EXACT = frozenset({"listing", "plaintext", "pre", "textarea", "xmp"})
HEADINGS = {f"h{level}": level for level in range(1, 7)}

_NOTE_TYPES = frozenset({"endnote", "footnote", "rearnote", "note"})
_NOTE_ROLES = frozenset({"doc-endnote", "doc-footnote"})
_NOTE_CLASSES = frozenset({"endnote", "footnote"})
_HIDDEN_STYLE = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)\b", re.IGNORECASE)


def is_note(name: str, attributes: Mapping[str, str]) -> bool:
    """Whether an element is a footnote or endnote by what it says of itself (EPUB 3 structure, ARIA role, class)."""
    if not attributes:
        return False
    types = attributes.get("epub:type", "").split()
    roles = attributes.get("role", "").split()
    if not _NOTE_TYPES.isdisjoint(types) or not _NOTE_ROLES.isdisjoint(roles):
        return True
    classes = attributes.get("class", "").lower().split()
    return not _NOTE_CLASSES.isdisjoint(classes) and (name in BLOCKS or name in ENTRIES)


def is_note_link(attributes: Mapping[str, str]) -> bool:
    """Whether a link leads to a note."""
    types = attributes.get("epub:type", "").split()
    return "noteref" in types or "doc-noteref" in attributes.get("role", "").split()


def is_hidden(name: str, attributes: Mapping[str, str]) -> bool:
    """Whether an element is never shown: `hidden`, or a style of its own. Notes that pop up on a click are shown."""
    if not attributes or not ("hidden" in attributes or "style" in attributes):
        return False
    hidden = "hidden" in attributes and attributes["hidden"].lower() != "until-found"
    return (hidden or _HIDDEN_STYLE.search(attributes.get("style", "")) is not None) and not is_note(name, attributes)
