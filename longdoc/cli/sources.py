"""How commands get at sources: through the entry points of the installed pipelines, never by importing them."""

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any

from longdoc.errors import StartError
from longdoc.records import Selection, Source
from longdoc.submission.cargo import Packer

Opener = Callable[[Sequence[str], Selection], list[Source]]


def open_sources(arguments: Sequence[str], selection: Selection) -> list[Source]:
    """Open what the user named. Raises `SourceError`, or `StartError` where no pipeline is installed."""
    if not arguments:
        raise StartError("no source is named; name a book file, a folder of books or a git repository.")
    return find_opener()(arguments, selection)


def find_opener() -> Opener:
    """What opens sources here. Raises `StartError` where no pipeline is installed."""
    opener: Opener = _offered("sources", "opens")
    return opener


def find_packer() -> Packer:
    """What packs sources for another machine. Raises `StartError` where no pipeline is installed."""
    packer: Packer = _offered("shipping", "ships")
    return packer


def _offered(name: str, verb: str) -> Any:
    found = entry_points(group="longdoc.pipelines", name=name)
    if not found:
        raise StartError(f"no pipeline is installed that {verb} sources; install longdoc again.")
    return next(iter(found)).load()
