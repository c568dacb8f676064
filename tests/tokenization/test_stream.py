"""A document that other processes encode while it is read comes out as if it were read first and encoded here."""

import itertools
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trained_tokenizers import change, ordinary, texts

from connectors.building import Origin, Tiles
from longdoc.errors import DocumentError, InfrastructureError
from longdoc.records import Document, DocumentKind, Segment, StreamingRef, TokenSequence
from longdoc.tokenization import pool as pools
from longdoc.tokenization.cache import TokenCache
from longdoc.tokenization.encode import encode_setting_aside
from longdoc.tokenization.pool import WORTH_BYTES, EncodingPool, pool_where_worth_it
from longdoc.tokenization.stream import read_and_encode
from longdoc.tokenization.table_encoder import joined_ids
from longdoc.tokenization.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """A document that streams."""

    document: Document
    kind: DocumentKind = "repository"
    doc_id: str = "git:m"
    connector_version: str = "1"
    num_bytes_source: int
    version: str = "c" * 40
    source_uri: str = "m"
    title: str | None = "r"
    revision: str | None = "HEAD"

    def read(self) -> Document:
        return self.document

    def stream(self) -> Iterator[tuple[Segment, bytes]]:
        for segment in self.document.segments:
            yield segment, self.document.segment_text(segment)


def repository(*contents: str) -> Ref:
    tiles = Tiles()
    tiles.add("Repository: r\n\n", kind="repository_header", unit=0, is_content=True)
    for unit, content in enumerate(contents, start=1):
        beside = Origin(path=b"f%d" % unit)
        num_bytes = len(content.encode())
        origin = replace(beside, encoding="utf-8", blob_id=f"{unit:040x}", num_bytes=num_bytes)
        tiles.add(f"File: f{unit}\n", kind="file_header", unit=unit, origin=beside)
        tiles.add(content, kind="file", unit=unit, is_content=True, origin=origin)
        tiles.add("" if content.endswith("\n") else "\n", kind="padding", unit=unit, origin=beside)
    total = sum(segment.num_bytes_source for segment in tiles.segments)
    document = Document(
        kind="repository", source_uri="m", revision="HEAD", commit_id="c" * 40, title="r", num_bytes_source=total,
        text=tiles.text(), segments=tuple(tiles.segments),
    )  # fmt: skip
    return Ref(document=document, num_bytes_source=total)


@pytest.fixture(scope="module")
def lacking_folder(trained_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vocabulary without tokens for 0x04 and 0xC3, which begins é."""
    vocab = {token: at for token, at in ordinary(trained_folders["gpt2"]).get_vocab().items() if token not in "ĄÃ"}
    merges = {"vocab": {token: at for token, at in vocab.items() if len(token) == 1}, "merges": []}
    return change(trained_folders["gpt2"], tmp_path_factory.mktemp("lacking"), model=merges, post_processor=None)


@pytest.fixture(scope="module")
def pool(lacking_folder: Path) -> Iterator[EncodingPool]:
    with EncodingPool(lacking_folder, num_processes=2) as running:
        yield running


@pytest.fixture
def forking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that are forked have what a test has put in the place of a function; the thread is the fixture's."""
    monkeypatch.setattr(pools.threading, "active_count", lambda: 1)


def assert_same(found: tuple[Document, TokenSequence], expected: tuple[Document, TokenSequence]) -> None:
    assert found[0] == expected[0]
    for name in ("token_ids", "byte_starts", "segment_starts"):
        assert np.array_equal(getattr(found[1], name), getattr(expected[1], name)), name
        assert getattr(found[1], name).dtype == getattr(expected[1], name).dtype


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.one_of(texts, st.sampled_from(["\x04", "é", "a\n\x04", "same", "same"])), max_size=6))
def test_reading_and_encoding_side_by_side_changes_nothing(
    lacking_folder: Path, pool: EncodingPool, contents: list[str]
) -> None:
    ref = repository(*contents)
    assert isinstance(ref, StreamingRef)
    vocabulary = Vocabulary.load(lacking_folder)
    assert_same(read_and_encode(ref, vocabulary, pool), encode_setting_aside(ref.document, vocabulary))


def test_texts_of_many_batches_keep_their_order(lacking_folder: Path, pool: EncodingPool) -> None:
    long = "The whale, the white whale! It's 1851.\n" * 10_000
    ref = repository(*(f"{n} " * (n % 50) for n in range(3000)), long, "x", long + "y")
    vocabulary = Vocabulary.load(lacking_folder)
    assert_same(read_and_encode(ref, vocabulary, pool), encode_setting_aside(ref.document, vocabulary))


def test_what_the_cache_holds_is_not_handed_on(lacking_folder: Path, pool: EncodingPool, tmp_path: Path) -> None:
    vocabulary, ref = Vocabulary.load(lacking_folder), repository(*(f"text {n}\n" for n in range(700)))
    with TokenCache(tmp_path / "c") as cache:
        first = read_and_encode(ref, vocabulary, pool, cache=cache)
        handed: list[bytes] = []

        class Watched:
            def submit(self, some: list[bytes]) -> object:
                handed.extend(some)
                return pool.submit(some)

        again = read_and_encode(ref, vocabulary, Watched(), cache=cache)  # type: ignore[arg-type]  # a test's pool
    assert_same(again, first)
    assert all(text.startswith((b"File: ", b"Repository: ")) for text in handed)


def test_a_document_that_does_not_stream_is_read_whole(lacking_folder: Path, pool: EncodingPool) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Book:
        document: Document

        def read(self) -> Document:
            return self.document

    vocabulary = Vocabulary.load(lacking_folder)
    book = Book(document=replace(repository("one", "two").document, kind="book"))
    assert_same(read_and_encode(book, vocabulary, pool), encode_setting_aside(book.document, vocabulary))  # type: ignore[arg-type]  # as little as is needed
    with pytest.raises(DocumentError) as refusal:
        read_and_encode(Book(document=replace(repository("é").document, kind="book")), vocabulary, pool)  # type: ignore[arg-type]
    assert refusal.value.reason == "byte_without_token"


def test_a_stream_that_lost_bytes_is_a_fault(lacking_folder: Path, pool: EncodingPool) -> None:
    ref = replace(repository("one"), num_bytes_source=4)
    with pytest.raises(AssertionError, match="3 of 4 source bytes accounted for"):
        read_and_encode(ref, Vocabulary.load(lacking_folder), pool)


@pytest.mark.usefixtures("forking")
def test_an_error_of_a_text_comes_back_from_its_process(lacking_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(self: Vocabulary, texts: list[bytes]) -> object:
        raise DocumentError("gave up", stage="encode", reason="tokenizer_panic")

    monkeypatch.setattr(Vocabulary, "encode_batch", panic)
    with (
        EncodingPool(lacking_folder, num_processes=1) as forked,
        pytest.raises(DocumentError, match="gave up") as caught,
    ):
        read_and_encode(repository("one"), Vocabulary.load(lacking_folder), forked)
    assert caught.value.reason == "tokenizer_panic"


@pytest.mark.usefixtures("forking")
def test_ids_that_do_not_stand_for_the_text_are_refused(lacking_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lossy(self: Vocabulary, texts: list[bytes]) -> object:
        each = [self.encode(text.decode())[: -1 if text == b"two" else None] for text in texts]
        return joined_ids(each)

    monkeypatch.setattr(Vocabulary, "encode_batch", lossy)
    with EncodingPool(lacking_folder, num_processes=1) as forked, pytest.raises(DocumentError) as caught:
        read_and_encode(repository("one", "two"), Vocabulary.load(lacking_folder), forked)
    assert str(caught.value).startswith("m: f2: its tokens do not stand for exactly its text")


@pytest.mark.usefixtures("forking")
def test_a_process_that_was_killed_is_the_machines_fault(lacking_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(self: Vocabulary, texts: list[bytes]) -> object:
        if not texts:
            return joined_ids([])  # the call that starts the processes
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("still here")

    monkeypatch.setattr(Vocabulary, "encode_batch", die)
    with (
        EncodingPool(lacking_folder, num_processes=1) as forked,
        pytest.raises(InfrastructureError, match="was killed"),
    ):
        read_and_encode(repository("one"), Vocabulary.load(lacking_folder), forked)


def test_beside_other_threads_processes_start_anew(lacking_folder: Path) -> None:
    vocabulary, ref = Vocabulary.load(lacking_folder), repository("one", "two")
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        with EncodingPool(lacking_folder, num_processes=1) as started:
            assert started.is_forked is False
            assert_same(read_and_encode(ref, vocabulary, started), encode_setting_aside(ref.document, vocabulary))
    finally:
        done.set()
        thread.join()


def test_a_pool_starts_only_where_it_is_worth_it(lacking_folder: Path) -> None:
    with pool_where_worth_it(lacking_folder, WORTH_BYTES - 1) as nothing:
        assert nothing is None
    with pool_where_worth_it(lacking_folder, WORTH_BYTES) as started:
        assert isinstance(started, EncodingPool)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_tokens_are_a_text_exactly_if_their_bytes_are(vocabulary: Vocabulary, data: st.DataObject) -> None:
    few = data.draw(st.lists(st.integers(0, vocabulary.vocab_size - 1), max_size=30))
    ids = np.array(few * data.draw(st.sampled_from([1, 5])), dtype=np.int32)
    parts = [vocabulary.token_bytes(int(token)) for token in ids]
    text = b"".join(parts)
    assert vocabulary.are_text(ids, text)
    assert vocabulary.byte_starts(ids).tolist() == [len(b"".join(parts[:at])) for at in range(len(parts) + 1)]
    other = data.draw(st.sampled_from([text + b"x", text[:-1], b"x" + text[1:], text[:-1] + b"\0"]))
    assert vocabulary.are_text(ids, other) == (other == text)


def test_many_tokens_are_looked_at_in_blocks(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longdoc.tokenization.token_bytes._BLOCK", 3)
    monkeypatch.setattr("longdoc.tokenization.token_bytes._FEW", 0)
    text = "The whale, the white whale!"
    ids = vocabulary.encode(text)
    assert len(ids) > 3
    assert vocabulary.are_text(ids, text.encode())
    for at in range(len(text)):
        assert not vocabulary.are_text(ids, (text[:at] + "#" + text[at + 1 :]).encode())
    starts = vocabulary.byte_starts(ids)
    assert [text.encode()[a:b] for a, b in itertools.pairwise(starts)] == [
        vocabulary.token_bytes(int(token)) for token in ids
    ]


def test_an_id_outside_the_vocabulary_is_an_error(vocabulary: Vocabulary) -> None:
    for wrong in (-1, vocabulary.vocab_size):
        for count in (1, 100):
            with pytest.raises(IndexError):
                vocabulary.are_text(np.array([wrong] * count, dtype=np.int32), b"x" * count)
