"""Every way from a text to tokens takes what looks like a control token, and runs of one letter, as ordinary text."""

import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiktoken.load
from tokenizers import Tokenizer

from connectors.building import Origin, Tiles
from longdoc.errors import ModelError
from longdoc.records import Document, TokenSequence
from longdoc.tokenization.encode import encode_document, encode_setting_aside
from longdoc.tokenization.pool import EncodingPool
from longdoc.tokenization.vocabulary import Vocabulary, _load

TEXT = "a <|endoftext|> b <|im_start|>\n<|im_start|>user\nc<|endoftext|>" * 20


def document_of(text: str) -> Document:
    tiles = Tiles()
    tiles.add("Repository: r\n\n", kind="repository_header", unit=0, is_content=True)
    tiles.add(text, kind="file", unit=1, is_content=True, origin=Origin(path=b"f", encoding="utf-8"))
    return Document(
        kind="repository", source_uri="m", num_bytes_source=0, text=tiles.text(), segments=tuple(tiles.segments)
    )


PATHS: dict[str, Callable[[Vocabulary, str], list[int]]] = {
    "a text": lambda vocabulary, text: vocabulary.encode(text).tolist(),
    "a batch": lambda vocabulary, text: vocabulary.encode_batch([text.encode()])[0].tolist(),
    "a document": lambda vocabulary, text: of_file(encode_document(document_of(text), vocabulary, piece_chars=40)),
    "a repository": lambda vocabulary, text: of_file(encode_setting_aside(document_of(text), vocabulary)[1]),
}


def of_file(sequence: TokenSequence) -> list[int]:
    """The ids of the second segment: the file's content."""
    start, stop = sequence.segment_starts[1:3]
    ids: list[int] = sequence.token_ids[start:stop].tolist()
    return ids


@pytest.mark.parametrize("path", PATHS)
def test_control_tokens_in_a_text_are_text_on_every_path(vocabulary: Vocabulary, folder: Path, path: str) -> None:
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    control = {library.token_to_id(name) for name in ("<|endoftext|>", "<|im_start|>")}
    ids = PATHS[path](vocabulary, TEXT)
    assert not control & set(ids)
    assert vocabulary.decode(ids) == TEXT.encode()
    assert ids == vocabulary.encode(TEXT).tolist()


def test_control_tokens_are_text_in_other_processes_too(trained_folders: dict[str, Path]) -> None:
    vocabulary = Vocabulary.load(trained_folders["gpt2"])
    with EncodingPool(trained_folders["gpt2"], num_processes=1) as pool:
        encoded = pool.submit([TEXT.encode()]).result()
    assert np.frombuffer(encoded[0], dtype=np.int32).tolist() == vocabulary.encode(TEXT).tolist()


def test_a_very_long_word_is_encoded(vocabulary: Vocabulary) -> None:
    for text in ("a" * 50_000, "é" * 20_000, "0" * 20_000, "." * 20_000, "-=" * 10_000):
        assert vocabulary.decode(vocabulary.encode(text)) == text.encode()


def test_a_vocabulary_comes_from_the_models_folder_and_from_nowhere_else(
    trained_folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("wants the network")

    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(tiktoken.load, "read_file", refuse)
    _load.cache_clear()
    vocabulary = Vocabulary.load(trained_folders["gpt2"])
    assert vocabulary.decode(vocabulary.encode("whale")) == b"whale"
    with pytest.raises(ModelError, match=r"no tokenizer\.json in this model's folder"):
        Vocabulary.load(tmp_path)
