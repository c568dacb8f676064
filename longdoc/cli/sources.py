"""How commands get at sources: through the entry point of the installed pipelines, never by importing them."""

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points

from longdoc.errors import StartError
from longdoc.records import Selection, Source

Opener = Callable[[Sequence[str], Selection], list[Source]]


def open_sources(arguments: Sequence[str], selection: Selection) -> list[Source]:
    """Open what the user named. Raises `SourceError`, or `StartError` where no pipeline is installed."""
    if not arguments:
        raise StartError("no source is named; name a book file, a folder of books or a git repository.")
    return find_opener()(arguments, selection)


def find_opener() -> Opener:
    """What opens sources here. Raises `StartError` where no pipeline is installed."""
    found = entry_points(group="longdoc.pipelines", name="sources")
    if not found:
        raise StartError("no pipeline is installed that opens sources; install longdoc again.")
    opener: Opener = next(iter(found)).load()
    return opener
