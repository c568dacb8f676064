"""Records: paths as people see them, and a document that checks itself whatever Python was told to leave out."""

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longdoc.cli.printing import printable
from longdoc.records import Document, LedgerEntry, Segment, SourceRange, display


def test_a_path_is_shown_as_utf8_where_it_is_and_escaped_where_it_is_not() -> None:
    assert display(b"caf\xe9/\xc3\xa9\n\x1b.txt") == r"caf\xe9/é\n\x1b.txt"
    assert display("\ud800") == r"\ud800"


@given(st.binary(max_size=20))
def test_a_path_is_shown_alike_as_bytes_and_as_python_hands_it_over(path: bytes) -> None:
    shown = display(path)
    assert display(os.fsdecode(path)) == printable(os.fsdecode(path)) == shown
    assert shown.encode("utf-8").decode("utf-8") == shown
    assert shown.isprintable()
    assert display(shown) == shown


def test_a_document_that_loses_bytes_raises_without_assert_statements_too() -> None:
    code = (
        "from longdoc.records import Document\n"
        "document = Document(kind='book', source_uri='m', num_bytes_source=0, text=b'lost', segments=())\n"
        "try:\n    document.check()\nexcept AssertionError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "segments end at byte 0 of 4\n"


def _archive(**changes: Any) -> Document:
    """A source of 10 bytes: a member of 7 that holds 20, of which 12 are text, and a directory of 3."""
    entries = [
        LedgerEntry(entry_index=0, kind="member", path=b"a", num_bytes=7, num_bytes_content=20),
        LedgerEntry(entry_index=1, parent=0, kind="text", num_bytes=12),
        LedgerEntry(entry_index=2, parent=0, kind="markup", num_bytes=8, reason="markup"),
        LedgerEntry(entry_index=3, kind="directory", num_bytes=3, reason="container"),
    ]
    segment = Segment(
        segment_index=0, unit=0, kind="chapter", is_content=True, num_bytes_source=10, transform="html",
        text_byte_start=0, text_byte_stop=4, char_start=0, char_stop=4, num_lines=1,
    )  # fmt: skip
    places = (SourceRange(text_byte_start=0, text_byte_stop=4, entry_index=0, place="/html/body"),)
    fields = {"ledger": tuple(entries), "source_map": places} | changes
    return Document(
        kind="book", source_uri="file:///a", num_bytes_source=10, text=b"text", segments=(segment,), **fields
    )


def test_a_ledger_that_adds_up_at_every_level_is_accepted() -> None:
    _archive().check()


@pytest.mark.parametrize(
    ("entry", "change", "problem"),
    [
        (3, {"num_bytes": 2}, "the parts of the source have 9 bytes, it has 10"),
        (2, {"num_bytes": 9}, "the parts of ledger entry 0 have 21 bytes, it has 20"),
        (1, {"parent": 3}, "ledger entry 1 lies in entry 3, which is no parent"),
        (2, {"entry_index": 5}, "ledger entry 2 is numbered 5"),
    ],
)
def test_a_ledger_that_does_not_add_up_is_told(entry: int, change: dict[str, Any], problem: str) -> None:
    ledger = list(_archive().ledger)
    ledger[entry] = replace(ledger[entry], **change)
    with pytest.raises(AssertionError, match=problem):
        _archive(ledger=tuple(ledger)).check()


@pytest.mark.parametrize("change", [{"text_byte_stop": 5}, {"entry_index": 4}, {"text_byte_start": 5}])
def test_a_source_map_outside_of_text_or_ledger_is_told(change: dict[str, int]) -> None:
    document = _archive()
    with pytest.raises(AssertionError):
        _archive(source_map=(replace(document.source_map[0], **change),)).check()
