"""The byte ledger of documents as one JSON object, written as it is read. Owns the names of its fields.

    {"documents": [{..., "segments": [...], "ledger": [...]}], "skipped": [...], "failed": [...]}

A segment, an entry of the ledger and a range of the source map are one line each, so that a large document needs no
more memory than a small one. JSON has no bytes: a path is there for people (`display_path`), and exactly, in
hexadecimal. Sums stand behind what they sum up. `is_whole` is false where reading failed on the way.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from longdoc.cli.ledger_reading import CountTokens, Failure, OpenDocument, Sums
from longdoc.cli.printing import printable
from longdoc.errors import DocumentError
from longdoc.records import Document, DocumentRef, LedgerEntry, Segment


def json_pieces(
    found: Iterable[OpenDocument | Failure],
    skipped: Sequence[tuple[str, str]],
    failed: list[Failure],
    *,
    count: CountTokens | None,
    with_map: bool,
) -> Iterator[str]:
    """The object in pieces; `failed` is filled on the way."""
    yield '{"documents": ['
    between = "\n"
    for each in found:
        if isinstance(each, Failure):
            failed.append(each)
            continue
        yield between
        yield from _document(each, failed, count=count, with_map=with_map)
        between = ",\n"
    yield "\n],\n"
    yield '"skipped": ' + json.dumps([{"path": printable(path), "reason": reason} for path, reason in skipped])
    yield ',\n"failed": ' + json.dumps([asdict(failure) for failure in failed]) + "}\n"


def _document(
    opened: OpenDocument, failed: list[Failure], *, count: CountTokens | None, with_map: bool
) -> Iterator[str]:
    sums, is_whole = Sums(), True
    yield _open_object(_head(opened.ref, opened.head)) + ', "segments": ['
    between = "\n"
    try:
        for segment, text in opened.segments:
            num_tokens = count(text) if count is not None else 0
            sums.add(segment, text, num_tokens)
            counted = {"num_tokens": num_tokens} if count is not None else {}
            yield between + json.dumps(_segment_row(segment) | counted)
            between = ",\n"
    except DocumentError as error:
        is_whole = False
        failed.append(opened.failure(error))
    yield "\n]"
    yield from _array("ledger", map(_entry_row, opened.head.ledger))
    if with_map:
        yield from _array("source_map", map(asdict, opened.head.source_map))
    tail = _sums(sums) | ({"num_tokens": sums.num_tokens} if count is not None else {}) | {"is_whole": is_whole}
    yield ",\n" + json.dumps(tail).removeprefix("{")


def _open_object(fields: dict[str, Any]) -> str:
    return json.dumps(fields).removesuffix("}")


def _array(name: str, rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    yield f',\n"{name}": ['
    between = "\n"
    for row in rows:
        yield between + json.dumps(row)
        between = ",\n"
    yield "\n]"


def _head(ref: DocumentRef, document: Document) -> dict[str, Any]:
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
        "identifiers": list(document.identifiers),
        "publisher": document.publisher,
        "date": document.date,
        "warnings": list(document.warnings),
    }


def _sums(sums: Sums) -> dict[str, Any]:
    return {
        "num_segments": sums.num_segments,
        "num_bytes_source": sums.num_bytes_source,
        "num_bytes_source_text": sums.num_bytes_in_text,
        "num_bytes_source_reason": sums.num_bytes_with_reason,
        "num_bytes_text": sums.num_bytes_text,
        "text_sha256": sums.digest.hexdigest(),
    }


def _segment_row(segment: Segment) -> dict[str, Any]:
    row = asdict(segment) | {"path": None if segment.path is None else segment.path.hex()}
    return row | {"display_path": segment.display_path}


def _entry_row(entry: LedgerEntry) -> dict[str, Any]:
    row = asdict(entry) | {"path": None if entry.path is None else entry.path.hex()}
    return row | {"display_path": entry.display_path}
