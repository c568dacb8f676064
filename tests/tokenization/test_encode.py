"""A document's token ids are those of its segments, each encoded by itself, and stand for exactly its bytes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from trained_tokenizers import change, is_as_the_library, ordinary, texts

from connectors.building import Origin, Tiles
from longdoc.errors import DocumentError
from longdoc.model.local import LocalModel
from longdoc.records import Document, Int32s, TokenSequence
from longdoc.tokenization.cache import TokenCache, TokenKey
from longdoc.tokenization.encode import batch_texts, encode_document
from longdoc.tokenization.vocabulary import Vocabulary


def repository(*contents: str, encoding: str = "utf-8", first_blob: int = 0) -> Document:
    tiles = Tiles()
    for unit, content in enumerate(contents):
        origin = Origin(path=b"f%d" % unit, encoding=encoding, blob_id=f"{first_blob + unit:040x}")
        tiles.add(f"File: f{unit}\n", kind="header", unit=unit)
        tiles.add(content, kind="file", unit=unit, is_content=True, origin=origin)
        tiles.add("" if content.endswith("\n") else "\n", kind="padding", unit=unit)
    return Document(
        kind="repository", source_uri="memory", num_bytes_source=0, text=tiles.text(), segments=tuple(tiles.segments)
    )


class Recorder:
    """An `encode_pieces` that remembers what it was handed."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.handed: list[str] = []

    def __call__(self, pieces: Sequence[str]) -> list[Int32s]:
        self.handed.extend(pieces)
        return [self.vocabulary.encode(piece) for piece in pieces]


TEXT = "The whale,\n\nthe white whale!  It's 1851.\r\n\tdef f(x): return x + 1\n中文字符 😀\n" * 30


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=st.lists(texts, max_size=4), piece_chars=st.integers(1, 30))
def test_each_segment_is_encoded_as_the_tokenizers_library_encodes_it(
    vocabulary: Vocabulary, oracle: Tokenizer, contents: list[str], piece_chars: int
) -> None:
    document = repository(*contents)
    sequence = encode_document(document, vocabulary, piece_chars=piece_chars)
    for segment in document.segments:
        start, stop = sequence.segment_starts[segment.segment_index : segment.segment_index + 2]
        text = document.segment_text(segment).decode("utf-8")
        if is_as_the_library(vocabulary, text):
            assert sequence.token_ids[start:stop].tolist() == oracle.encode(text, add_special_tokens=False).ids
    check_bytes(document, vocabulary, sequence)


def check_bytes(document: Document, vocabulary: Vocabulary, sequence: TokenSequence) -> None:
    starts = sequence.byte_starts.tolist()
    assert len(starts) == sequence.num_tokens + 1
    assert (starts[0], starts[-1]) == (0, len(document.text))
    for token, token_id in enumerate(sequence.token_ids.tolist()):
        assert document.text[starts[token] : starts[token + 1]] == vocabulary.token_bytes(token_id)
    assert sequence.segment_starts.shape == (len(document.segments) + 1,)
    assert [starts[at] for at in sequence.segment_starts[:-1]] == [s.text_byte_start for s in document.segments]


def test_types_and_the_tokens_around_a_document(vocabulary: Vocabulary) -> None:
    sequence = encode_document(repository(TEXT), vocabulary)
    assert (sequence.token_ids.dtype, sequence.byte_starts.dtype) == (np.int32, np.int64)
    assert sequence.segment_starts.dtype == np.int64
    assert (sequence.prefix_token_ids, sequence.suffix_token_ids) == ((1,), (0,))
    assert sequence.num_model_tokens == sequence.num_tokens + 2


def test_a_document_without_text_has_no_tokens(vocabulary: Vocabulary) -> None:
    tiles = Tiles()
    tiles.add("", kind="file", unit=0, reason="binary")
    document = Document(kind="book", source_uri="m", num_bytes_source=0, text=b"", segments=tuple(tiles.segments))
    sequence = encode_document(document, vocabulary)
    assert (sequence.num_tokens, sequence.byte_starts.tolist(), sequence.segment_starts.tolist()) == (0, [0], [0, 0])


def test_long_segments_are_handed_on_in_pieces_that_join_to_them(vocabulary: Vocabulary) -> None:
    recorder = Recorder(vocabulary)
    document = repository(TEXT)
    sequence = encode_document(document, vocabulary, encode_pieces=recorder, piece_chars=200)
    assert (len(recorder.handed) > 5) == vocabulary.can_be_cut
    assert "".join(recorder.handed) == document.text.decode("utf-8")
    assert sequence.tokens_sha256 == encode_document(document, vocabulary).tokens_sha256


def test_texts_that_repeat_are_encoded_once(vocabulary: Vocabulary) -> None:
    recorder = Recorder(vocabulary)
    encode_document(repository("same", "same", "other"), vocabulary, encode_pieces=recorder)
    assert sorted(recorder.handed) == ["\n", "File: f0\n", "File: f1\n", "File: f2\n", "other", "same"]


def test_a_tokenizer_with_a_pattern_that_is_not_known_gets_whole_segments(
    trained_folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary = Vocabulary.load(change(trained_folders["gpt2"], tmp_path))
    monkeypatch.setattr(Vocabulary, "can_be_cut", property(lambda self: False))
    recorder = Recorder(vocabulary)
    encode_document(repository(TEXT), vocabulary, encode_pieces=recorder, piece_chars=100)
    assert TEXT in recorder.handed


def test_tokens_that_do_not_stand_for_the_text_are_refused(vocabulary: Vocabulary) -> None:
    def lossy(pieces: Sequence[str]) -> list[Int32s]:
        return [vocabulary.encode(piece)[:-1] if piece == "two" else vocabulary.encode(piece) for piece in pieces]

    with pytest.raises(DocumentError) as refusal:
        encode_document(repository("one", "two"), vocabulary, encode_pieces=lossy)
    assert str(refusal.value) == ("memory: f1: its tokens do not stand for exactly its text; report this with the file")
    assert (refusal.value.stage, refusal.value.reason) == ("encode", "tokens_differ_from_text")


def test_text_with_a_byte_that_has_no_token_is_refused_and_the_place_named(
    trained_folders: dict[str, Path], tmp_path: Path
) -> None:
    alphabet = ordinary(trained_folders["gpt2"]).get_vocab()
    vocab = {token: token_id for token, token_id in alphabet.items() if token != "Ą"}
    vocabulary = Vocabulary.load(change(trained_folders["gpt2"], tmp_path, model={"vocab": vocab}))
    with pytest.raises(DocumentError) as refusal:
        encode_document(repository("fine\n", "a\nb \x04\n"), vocabulary)
    assert str(refusal.value) == (
        "memory: f1, line 2: byte 0x04 has no token in this model's vocabulary; leave the file out (--exclude) or use "
        "another model"
    )
    assert (refusal.value.stage, refusal.value.reason) == ("encode", "byte_without_token")
    assert encode_document(repository("fine\n"), vocabulary).num_tokens > 0


def test_a_blob_in_the_cache_is_not_encoded_again(vocabulary: Vocabulary, tmp_path: Path) -> None:
    with TokenCache(tmp_path / "c") as cache:
        first = encode_document(repository(TEXT, "two\n"), vocabulary, cache=cache)
        recorder = Recorder(vocabulary)
        again = encode_document(repository(TEXT, "two\n"), vocabulary, cache=cache, encode_pieces=recorder)
    assert sorted(recorder.handed) == ["File: f0\n", "File: f1\n"]
    assert again.tokens_sha256 == first.tokens_sha256
    assert again.byte_starts.tolist() == first.byte_starts.tolist()


def test_a_blob_read_as_another_text_is_encoded_anew(vocabulary: Vocabulary, tmp_path: Path) -> None:
    with TokenCache(tmp_path / "c") as cache:
        encode_document(repository("old"), vocabulary, cache=cache)
        for document in (repository("new"), repository("old", encoding="latin-1"), repository("old", first_blob=9)):
            cached = encode_document(document, vocabulary, cache=cache)
            assert cached.tokens_sha256 == encode_document(document, vocabulary).tokens_sha256
        encode_document(repository("new"), vocabulary, cache=cache)
        key = TokenKey(blob_id=f"{0:040x}", encoding="utf-8", tokenizer_sha256=vocabulary.identity)
        assert vocabulary.decode(cache.get_many([key])[key]) == b"new"


def test_an_unusable_cache_changes_nothing(
    vocabulary: Vocabulary, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "c").write_bytes(b"no database" * 200)
    document = repository(TEXT)
    with TokenCache(tmp_path / "c") as cache:
        cached = encode_document(document, vocabulary, cache=cache)
    assert cached.tokens_sha256 == encode_document(document, vocabulary).tokens_sha256
    assert len(caplog.records) == 1


def test_batches_keep_order_and_are_about_one_piece() -> None:
    small = [f"text {number}" for number in range(5000)]
    batches = list(batch_texts([*small, "x" * 900_000, "last"]))
    assert [text for batch in batches for text in batch] == [*small, "x" * 900_000, "last"]
    assert 3 <= len(batches) <= 6


@pytest.mark.books
def test_pieces_of_a_book_join_to_the_ids_of_the_whole(default_model: LocalModel, books: Path) -> None:
    vocabulary = Vocabulary.load(default_model.folder)
    text = (books / "moby-dick.txt").read_bytes().decode("utf-8")
    tiles = Tiles()
    tiles.add(text, kind="text", unit=0, is_content=True)
    document = Document(
        kind="book", source_uri="m", num_bytes_source=0, text=tiles.text(), segments=tuple(tiles.segments)
    )
    sequence = encode_document(document, vocabulary, piece_chars=10_000)
    assert sequence.token_ids.tolist() == vocabulary.encode(text).tolist()
