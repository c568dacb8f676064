"""An HTML or XML document as a stream of events, whichever parser made its tree. Decides nothing about text.

Owns the two trees: selectolax's lexbor for HTML (as browsers build it) and lxml for XHTML. Both are walked without
recursion, so depth costs no stack. Names are lower case and without namespaces, except `epub:type`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from connectors.xml_tree import Element

Attributes = Mapping[str, str]
_NO_ATTRIBUTES: Attributes = {}
_EPUB = "{http://www.idpf.org/2007/ops}"


@dataclass(frozen=True, slots=True)
class Start:
    """An element begins. `attributes` without a value have an empty one."""

    name: str
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class End:
    """The element that began last, and did not end yet, ends."""

    name: str


Event = Start | End | str


def html_events(text: str) -> Iterator[Event]:
    """The events of the tree that a browser without scripts would build. `text` is tame: see `html_limits`."""
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(text)
    node: Any = tree.root
    open_names: list[str] = []
    while node is not None:
        name = node.tag or ""
        if name == "-text":
            yield node.text_content or ""
        elif not name.startswith(("-", "!")):
            attributes = {key: value or "" for key, value in node.attributes.items()}
            yield Start(name, attributes)
            if (child := node.child) is not None:
                open_names.append(name)
                node = child
                continue
            yield End(name)
        while (following := node.next) is None and open_names:
            yield End(open_names.pop())
            node = node.parent
        node = following


def xml_events(root: Element) -> Iterator[Event]:
    """The events of an XML tree below and including `root`. Comments and processing instructions are none."""
    pending: list[tuple[Element, Iterator[Element]]] = [(root, iter(root))]
    yield from _begin(root)
    while pending:
        element, children = pending[-1]
        child = next(children, None)
        if child is None:
            pending.pop()
            yield End(_local(element.tag))
        elif isinstance(child.tag, str):
            pending.append((child, iter(child)))
            yield from _begin(child)
            continue
        else:
            element = child
        # What follows an element, or something that is none, belongs to its parent.
        if pending and element.tail:
            yield element.tail


def _begin(element: Element) -> Iterator[Event]:
    attributes = element.attrib
    names = {_attribute(name): value for name, value in attributes.items()} if attributes else _NO_ATTRIBUTES
    yield Start(_local(element.tag), names)
    if element.text:
        yield element.text


def _local(tag: str) -> str:
    return tag.rpartition("}")[2].lower()


def _attribute(name: str) -> str:
    if name.startswith(_EPUB):
        return f"epub:{name.removeprefix(_EPUB)}"
    return name.rpartition("}")[2].lower()
