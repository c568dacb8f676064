"""From tokens and bytes back to segments and lines."""

import pytest

from connectors.building import Tiles
from longdoc.records import Document
from longdoc.tokenization.encode import encode_document
from longdoc.tokenization.places import lines_of_bytes, locate_byte, locate_token, newline_offsets
from longdoc.tokenization.vocabulary import Vocabulary


@pytest.fixture
def document() -> Document:
    tiles = Tiles()
    tiles.add("File: a\n", kind="header", unit=0)
    tiles.add("", kind="note", unit=1, reason="binary")
    tiles.add("one\ntwo é\r\n\nfour", kind="file", unit=0, is_content=True)
    tiles.add("\n", kind="padding", unit=0)
    return Document(
        kind="repository", source_uri="memory", num_bytes_source=0, text=tiles.text(), segments=tuple(tiles.segments)
    )


def test_lines_are_counted_within_the_segment_and_end_with_their_newline(document: Document) -> None:
    newlines = newline_offsets(document.text)
    assert newlines.tolist() == [7, 11, 19, 20, 25]
    content = document.text[8:25]
    for offset in range(len(content)):
        place = locate_byte(document.segments, newlines, 8 + offset)
        assert (place.segment_index, place.segment_byte, place.text_byte) == (2, offset, 8 + offset)
        assert place.line == 1 + content[:offset].decode("utf-8", errors="ignore").count("\n")
    assert locate_byte(document.segments, newlines, 25).segment_index == 3
    assert locate_byte(document.segments, newlines, 25).line == 1


def test_a_token_is_where_its_first_byte_is(document: Document, vocabulary: Vocabulary) -> None:
    sequence = encode_document(document, vocabulary)
    newlines = newline_offsets(document.text)
    for token in range(sequence.num_tokens):
        place = locate_token(sequence, document.segments, newlines, token)
        assert place == locate_byte(document.segments, newlines, int(sequence.byte_starts[token]))
        assert place.segment_index == sequence.segment_of_token(token)


def test_places_outside_the_text_are_refused(document: Document, vocabulary: Vocabulary) -> None:
    sequence = encode_document(document, vocabulary)
    newlines = newline_offsets(document.text)
    for byte in (-1, 26):
        with pytest.raises(IndexError, match=f"no byte {byte} in a text of 26"):
            locate_byte(document.segments, newlines, byte)
    for token in (-1, sequence.num_tokens):
        with pytest.raises(IndexError, match=f"no token {token}"):
            locate_token(sequence, document.segments, newlines, token)


def test_lines_of_many_bytes_at_once_are_those_of_each() -> None:
    text = b"a\nb\n\nc"
    lines = lines_of_bytes(newline_offsets(text), *([0] * 6, [0, 1, 2, 3, 4, 5]))
    assert lines.tolist() == [1, 1, 2, 2, 3, 4]
