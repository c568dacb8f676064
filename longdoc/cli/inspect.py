"""`longdoc inspect`: the byte ledger of a source, as a tree for people or as JSON for machines.

Owns the shape of the ledger and its sum: source bytes are in text segments or have a reason. Reads the documents, needs
no model, writes nothing.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from longdoc.cli.options import source_options, take_selection
from longdoc.cli.printing import printable, printable_lines, skipped_files
from longdoc.cli.sources import open_sources
from longdoc.errors import DocumentError
from longdoc.records import Document, DocumentRef, Segment, Source, Unreadable

if TYPE_CHECKING:
    from rich.tree import Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """A document that could not be read, in words."""

    source_uri: str
    reason: str
    error: str


_Opened = tuple[DocumentRef, Document]
# Folders below folders in the tree of a repository; what lies deeper is one branch with a long name.
_LEVELS = 20
_WIDTH = 1_000_000


@click.command()
@click.argument("source")
@source_options
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object: documents with their segments, skipped, failed."
)
@click.pass_context
def inspect(ctx: click.Context, /, source: str, *, as_json: bool, **options: Any) -> None:
    """Show where every byte of SOURCE goes: to a text segment, or to a reason why it is not text.

    SOURCE is a book, a folder of books or a git repository. Exits 3 when a document cannot be read.
    """
    sources = open_sources([source], take_selection(options))
    skipped = [entry for opened in sources for entry in skipped_files(opened)]
    num_failed = _print_json(sources, skipped) if as_json else _print_trees(sources, skipped)
    ctx.exit(DocumentError.exit_code if num_failed else 0)


def _read(sources: Sequence[Source]) -> Iterator[_Opened | _Failure]:
    for source in sources:
        for ref in source.documents():
            if isinstance(ref, Unreadable):
                yield _Failure(source_uri=ref.source_uri, reason=ref.reason, error=ref.error)
                continue
            try:
                yield ref, ref.read()
            except DocumentError as error:
                yield _Failure(source_uri=ref.source_uri, reason=error.reason, error=str(error))


def _print_json(sources: Sequence[Source], skipped: Sequence[tuple[str, str]]) -> int:
    found = list(_read(sources))
    failed = [asdict(entry) for entry in found if isinstance(entry, _Failure)]
    ledger = {
        "documents": [_document_row(*entry) for entry in found if not isinstance(entry, _Failure)],
        "skipped": [{"path": printable(path), "reason": reason} for path, reason in skipped],
        "failed": failed,
    }
    click.echo(json.dumps(ledger, indent=2))
    return len(failed)


def _document_row(ref: DocumentRef, document: Document) -> dict[str, Any]:
    num_bytes_text_segments, num_bytes_reason = split_bytes(document)
    return {
        "doc_id": ref.doc_id,
        "version": ref.version,
        "connector_version": ref.connector_version,
        "kind": document.kind,
        "source_uri": document.source_uri,
        "revision": document.revision,
        "commit_id": document.commit_id,
        "title": document.title,
        "authors": list(document.authors),
        "language": document.language,
        "num_bytes_source": document.num_bytes_source,
        "num_bytes_source_text": num_bytes_text_segments,
        "num_bytes_source_reason": num_bytes_reason,
        "num_bytes_text": len(document.text),
        "text_sha256": document.text_sha256,
        "segments": [_segment_row(segment) for segment in document.segments],
    }


def _segment_row(segment: Segment) -> dict[str, Any]:
    # JSON has no bytes: the path is shown as people see it, and exactly, in hexadecimal.
    row = asdict(segment) | {"path": None if segment.path is None else segment.path.hex()}
    return row | {"display_path": segment.display_path}


def split_bytes(document: Document) -> tuple[int, int]:
    """Source bytes in text segments, and source bytes with a reason. Their sum is `num_bytes_source`."""
    with_reason = sum(s.num_bytes_source for s in document.segments if s.reason is not None)
    in_text = sum(s.num_bytes_source for s in document.segments if s.reason is None)
    return in_text, with_reason


def _print_trees(sources: Sequence[Source], skipped: Sequence[tuple[str, str]]) -> int:
    from rich.console import Console

    # As wide as it takes: rich leaves out what stands beyond the terminal's width, and the terminal wraps by itself.
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True, width=_WIDTH)
    num_failed = 0
    for entry in _read(sources):
        if isinstance(entry, _Failure):
            num_failed += 1
            console.print(f"{printable(entry.source_uri)}: {entry.reason}: {printable_lines(entry.error)}\n")
            continue
        console.print(_tree(entry[1]))
        console.print(_totals(entry[1]) + "\n")
    for path, reason in skipped:
        console.print(f"skipped {printable(path)}: {reason}")
    return num_failed


def _tree(document: Document) -> "Tree":
    from rich.text import Text
    from rich.tree import Tree

    facts = [document.kind, document.title or "", ", ".join(document.authors), document.commit_id or ""]
    tree = Tree(Text(" · ".join(printable(fact) for fact in facts if fact)))
    folders: dict[tuple[str, ...], Tree] = {(): tree}
    for segment in document.segments:
        if segment.display_path is not None and not segment.is_content:
            continue  # a header or a padding newline: no byte of the source; the totals count them
        *parents, name = (segment.display_path or "").split("/")
        shown, deeper = tuple(parents[:_LEVELS]), "/".join(parents[_LEVELS:])
        branch = _folder(folders, (*shown, deeper) if deeper else shown)
        branch.add(Text(_segment_line(segment, name)))
    return tree


def _folder(folders: dict[tuple[str, ...], "Tree"], path: tuple[str, ...]) -> "Tree":
    from rich.text import Text

    for depth in range(1, len(path) + 1):
        if path[:depth] not in folders:
            folders[path[:depth]] = folders[path[: depth - 1]].add(Text(f"{path[depth - 1]}/"))
    return folders[path]


def _segment_line(segment: Segment, name: str) -> str:
    facts = [f"{segment.num_bytes_source:,} bytes"]
    if segment.encoding is not None:
        # "utf-8, by strict UTF-8" says it twice; how any other encoding was found is worth a word.
        known_from = "" if segment.encoding_source == segment.encoding else f" ({segment.encoding_source})"
        facts.append(segment.encoding + known_from)
    if segment.reason is not None:
        facts.append(f"not text: {segment.reason}")
    kind = "" if segment.kind == "file" else segment.kind
    return "  ".join(part for part in (name, kind, printable(segment.title or ""), " · ".join(facts)) if part)


def _totals(document: Document) -> str:
    in_text, with_reason = split_bytes(document)
    total = f"{document.num_bytes_source:,} source bytes = {in_text:,} in text segments + {with_reason:,} with a reason"
    added = sum(s.text_byte_stop - s.text_byte_start for s in document.segments if s.num_bytes_source == 0)
    beside = f", {added:,} of them headers and padding that no file holds" if added else ""
    return f"{total}\n{len(document.text):,} bytes of text in UTF-8{beside}"
