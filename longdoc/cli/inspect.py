"""`longdoc inspect`: the byte ledger of a source, as a tree for people or as JSON for machines.

Owns the command and the order of what it prints; `ledger_tree` and `ledger_json` own the two shapes. Reads the
documents, needs a model's tokenizer only to count tokens, writes nothing.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from longdoc.cli.ledger_json import json_pieces
from longdoc.cli.ledger_reading import CountTokens, Failure, OpenDocument, Sums, read_documents
from longdoc.cli.ledger_tree import SegmentLines, head_lines, ledger_lines, map_lines, total_lines
from longdoc.cli.options import model_option, source_options, take_selection
from longdoc.cli.printing import printable, printable_lines
from longdoc.cli.sources import open_sources
from longdoc.errors import DocumentError
from longdoc.records import SourceRange
from longdoc.reporting import skipped_files

_SHOWN_CHARS = 40


@click.command()
@click.argument("source", metavar="SOURCE")
@source_options
@click.option("--tokens", "with_tokens", is_flag=True, help="Count tokens too, with the tokenizer of --model.")
@model_option
@click.option("--map", "with_map", is_flag=True, help="Show where each stretch of a transformed text came from.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object: documents with their segments, skipped, failed."
)
@click.pass_context
def inspect(
    ctx: click.Context,
    /,
    source: str,
    *,
    with_tokens: bool,
    model: str,
    with_map: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Show where every byte of SOURCE goes: to a text segment, or to a reason why it is not text.

    SOURCE is a book, a folder of books, a git repository, a list of such (@list.txt), or - for a book on standard
    input. A source with an inner structure, such as an archive, is broken down to its parts. Output comes as it is
    read, and how far that is goes to standard error. Exits 3 when a document cannot be read.
    """
    sources = open_sources([source], take_selection(options))
    skipped = [entry for opened in sources for entry in skipped_files(opened)]
    counter = _Counter.of(model) if with_tokens else None
    failed: list[Failure] = []
    found = read_documents(sources)
    if as_json:
        count = None if counter is None else counter.count
        pieces = json_pieces(found, skipped, failed, count=count, with_map=with_map)
    else:
        pieces = _trees(found, skipped, failed, counter=counter, with_map=with_map)
    _print(pieces)
    ctx.exit(DocumentError.exit_code if failed else 0)


@dataclass(frozen=True, slots=True)
class _Counter:
    """Counts tokens with the tokenizer of one model."""

    model: str
    count: CountTokens

    @classmethod
    def of(cls, name: str) -> "_Counter":
        """Raises `ModelError` for a model that is unknown, out of reach, or has another kind of tokenizer."""
        from longdoc.model.tokenizer import find_vocabulary

        vocabulary = find_vocabulary(name, report=lambda line: click.echo(line, err=True))

        def count(text: bytes) -> int | None:
            try:
                return len(vocabulary.encode(text.decode("utf-8")))
            except DocumentError:
                return None

        return cls(name, count)


def _trees(
    found: Iterable[OpenDocument | Failure],
    skipped: Sequence[tuple[str, str]],
    failed: list[Failure],
    *,
    counter: _Counter | None,
    with_map: bool,
) -> Iterator[str]:
    for each in found:
        if isinstance(each, OpenDocument):
            try:
                yield from (f"{line}\n" for line in _tree(each, counter, with_map=with_map))
                yield "\n"
                continue
            except DocumentError as error:
                each = each.failure(error)
        failed.append(each)
        yield f"{printable(each.source_uri)}: {each.reason}: {printable_lines(each.error)}\n\n"
    for path, reason in skipped:
        yield f"skipped {printable(path)}: {reason}\n"


def _tree(opened: OpenDocument, counter: _Counter | None, *, with_map: bool) -> Iterator[str]:
    document, sums = opened.head, Sums()
    yield from head_lines(document)
    in_files = SegmentLines(in_folders=document.kind == "repository")
    if document.ledger:
        yield "text"
    for segment, text in opened.segments:
        num_tokens = 0 if counter is None else counter.count(text)
        sums.add(segment, text, num_tokens)
        if document.ledger and segment.num_bytes_source and not text:
            continue  # the tree of bytes has it, with its reason
        yield from in_files.lines(segment, num_tokens, with_tokens=counter is not None)
    if document.ledger:
        yield "bytes"
        yield from ledger_lines(document)
    if with_map and document.source_map:
        yield "map"
        yield from map_lines(document, lambda each: _beginning(document.text, each))
    yield from total_lines(sums, None if counter is None else counter.model)


def _beginning(text: bytes, each: SourceRange) -> str:
    """The first characters of a range. Four bytes hold any of them, and what is cut in the middle is left out."""
    start, stop = each.text_byte_start, min(each.text_byte_stop, each.text_byte_start + 4 * _SHOWN_CHARS)
    shown = text[start:stop].decode("utf-8", errors="ignore")
    more = len(shown) > _SHOWN_CHARS or stop < each.text_byte_stop
    return printable(shown[:_SHOWN_CHARS]) + ("…" if more else "")


def _print(pieces: Iterable[str]) -> None:
    """Print as it comes, a lot of lines at a time: writing each by itself would take longer than reading them."""
    out = _Out()
    try:
        for piece in pieces:
            out.write(piece)
    finally:
        out.flush()


@dataclass(slots=True)
class _Out:
    """Standard output, written at least twice a second and at most 64 KiB at once."""

    _waiting: list[str] = field(default_factory=list)
    _num_chars: int = 0
    _last: float = field(default_factory=time.monotonic)

    def write(self, piece: str) -> None:
        self._waiting.append(piece)
        self._num_chars += len(piece)
        if self._num_chars > 1 << 16 or time.monotonic() - self._last > 0.5:
            self.flush()

    def flush(self) -> None:
        pieces, self._waiting, self._num_chars, self._last = self._waiting, [], 0, time.monotonic()
        click.echo("".join(pieces), nl=False)
