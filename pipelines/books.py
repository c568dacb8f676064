"""The books job: whole books, read by a model. Written to be called, or copied and changed.

    from pipelines.books import index_books
    index_books(["alice.epub", "novels/"], "out", model="smollm2-135m-instruct")

`longdoc run alice.epub novels/ -o out --kind book` is the same job: the same openers, options and rows.
"""

from collections.abc import Sequence
from typing import Any

from longdoc.config import RunConfig
from longdoc.records import Selection
from longdoc.reporting import Reporter
from longdoc.runs.record import RunSummary
from pipelines.jobs import run_job
from pipelines.sources import open_sources


def index_books(books: Sequence[str], output: str, *, reporter: Reporter | None = None, **options: Any) -> RunSummary:
    """Read every book that `output` does not hold yet; an entry is a file, a folder of books, or `@list.txt`.

    `options` are those of `RunConfig`. Without a `reporter`, progress is shown as on the command line. Raises
    `LongdocError`, before any work where a book cannot be opened; one that cannot be read is set aside.
    """
    config = RunConfig(output=output, **options)
    sources = open_sources(books, Selection(kind="book"))
    return run_job(config, sources, reporter)
