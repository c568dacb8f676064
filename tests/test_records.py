"""Records: paths as people see them, and a document that checks itself whatever Python was told to leave out."""

import os
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from longdoc.cli.printing import printable
from longdoc.records import display


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
