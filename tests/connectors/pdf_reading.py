"""Reads PDFs of known make in this process, where that is safe, and damaged ones many to a process."""

import base64
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from book_checks import check_document, check_fault

from connectors.pdf import assemble
from connectors.pdf_records import FileFacts, Page, Record, from_wire
from longdoc.errors import DocumentError
from longdoc.records import Document

# One line a file in, and for each its records and then an empty line out.
_BATCH = """
import base64, sys
from connectors.pdf_records import to_wire
from connectors.pdf_worker import _expect_progress
from connectors.pdfium import records
for line in sys.stdin:
    _expect_progress()
    for record in records(base64.b64decode(line)):
        sys.stdout.write(to_wire(record).decode())
    print(flush=True)
"""


def read_here(raw: bytes) -> tuple[FileFacts, list[Page]]:
    from connectors.pdfium import records

    facts, *pages = records(raw)
    assert isinstance(facts, FileFacts)
    return facts, pages  # type: ignore[return-value]  # pages follow the facts


def book(raw: bytes, name: str = "book.pdf") -> Document:
    """A whole document, as `read_pdf` makes it of what pdfium says."""
    facts, pages = read_here(raw)
    document = assemble(raw, facts, pages, path=Path(name))
    check_document(document, raw)
    return document


def records_of_many(files: Sequence[bytes]) -> list[list[Record] | None]:
    """What pdfium says of each file, None where it ends the process; the next file then gets a process of its own."""
    answers: list[list[Record] | None] = []
    while len(answers) < len(files):
        lines = b"".join(base64.b64encode(raw) + b"\n" for raw in files[len(answers) :])
        done = subprocess.run([sys.executable, "-c", _BATCH], input=lines, capture_output=True, check=False)
        *whole, _ = done.stdout.split(b"\n\n") if done.stdout.endswith(b"\n\n") else [*done.stdout.split(b"\n\n"), b""]
        found = [[from_wire(line) for line in answer.strip().splitlines()] for answer in whole]
        answers += found[: len(files) - len(answers)]
        if done.returncode != 0:
            assert done.returncode < 0, done.stderr.decode()
            answers.append(None)
    return answers


def assemble_or_refuse(raw: bytes, found: Sequence[Record]) -> Document | DocumentError | None:
    """The document of these records, or its fault; None where pdfium refuses the file."""
    if not found or not isinstance(found[0], FileFacts):
        return None
    try:
        document = assemble(raw, found[0], [each for each in found if isinstance(each, Page)], path=Path("book.pdf"))
    except DocumentError as error:
        check_fault(error)
        return error
    check_document(document, raw)
    return document


def titles(document: Document) -> list[str]:
    return [segment.title for segment in document.segments if segment.title is not None]


def as_json(document: Document) -> str:
    return json.dumps([[s.kind, s.place, s.title, s.reason] for s in document.segments])
