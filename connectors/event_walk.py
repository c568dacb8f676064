"""What the walks of markup events have in common: the open elements, and text that is left out.

A walk of one format says what an element and a text do; here stands how events arrive and elements end. No recursion,
so depth costs no stack.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from connectors.markup_events import Attributes, Event, Start
from connectors.prose import Flow

#: Deeper elements are named by their ancestor of this depth: names that grow with depth would take its square.
DEEPEST_PLACE = 48


class OpenElement(Protocol):
    """An element that is open; `at_end` is what its end does."""

    at_end: Callable[[], None] | None


Open = TypeVar("Open", bound=OpenElement)


@dataclass(slots=True, kw_only=True)
class EventWalk(Generic[Open]):
    """Where a walk is. `unread` counts the open elements from the outermost on whose text is left out."""

    flow: Flow
    stack: list[Open] = field(default_factory=list)
    unread: int = 0

    def play(self, events: Iterable[Event]) -> None:
        """Take every event in turn."""
        for event in events:
            if isinstance(event, str):
                self.text(event)
            elif isinstance(event, Start):
                self.start(event.name, event.attributes)
            else:
                self.end()

    def text(self, text: str) -> None:
        """Text of the innermost open element."""
        raise NotImplementedError

    def start(self, name: str, attributes: Attributes) -> None:
        """An element begins."""
        raise NotImplementedError

    def end(self) -> None:
        """The innermost open element ends."""
        element = self.stack.pop()
        if self.unread:
            self.unread -= 1
        elif element.at_end is not None:
            element.at_end()
