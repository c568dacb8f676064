"""A vocabulary encodes exactly as the `tokenizers` library does on the same file; damaged files are refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tokenizers import Tokenizer, pre_tokenizers
from trained_tokenizers import change, hand_made, is_as_the_library, ordinary, texts, train

from longdoc.errors import DocumentError, ModelError
from longdoc.model.local import LocalModel
from longdoc.tokenization import proof
from longdoc.tokenization import vocabulary as vocabulary_module
from longdoc.tokenization.vocabulary import Vocabulary, _load

hard = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@hard
@given(text=texts)
def test_ids_are_those_of_the_tokenizers_library(vocabulary: Vocabulary, oracle: Tokenizer, text: str) -> None:
    if is_as_the_library(vocabulary, text):
        assert vocabulary.encode(text).tolist() == oracle.encode(text, add_special_tokens=False).ids


@hard
@given(text=texts)
def test_decoding_gives_the_bytes_back(vocabulary: Vocabulary, text: str) -> None:
    token_ids = vocabulary.encode(text)
    assert token_ids.dtype == np.int32
    assert vocabulary.decode(token_ids) == text.encode("utf-8")
    assert b"".join(vocabulary.token_bytes(token_id) for token_id in token_ids.tolist()) == text.encode("utf-8")
    assert int(vocabulary.token_num_bytes[token_ids].sum()) == len(text.encode("utf-8"))


def test_control_tokens_in_a_text_are_ordinary_text(vocabulary: Vocabulary, folder: Path) -> None:
    control = Tokenizer.from_file(str(folder / "tokenizer.json")).token_to_id("<|endoftext|>")
    token_ids = vocabulary.encode("a<|endoftext|>b")
    assert control not in token_ids
    assert vocabulary.decode(token_ids) == b"a<|endoftext|>b"
    assert vocabulary.token_bytes(control) == b"<|endoftext|>"


def test_what_the_model_wants_around_a_document_comes_from_its_post_processor(vocabulary: Vocabulary) -> None:
    assert (vocabulary.prefix_token_ids, vocabulary.suffix_token_ids) == ((1,), (0,))


def test_a_tokenizer_without_post_processor_wants_nothing_around(
    trained_folders: dict[str, Path], tmp_path: Path
) -> None:
    bare = Vocabulary.load(change(trained_folders["gpt2"], tmp_path, post_processor=None))
    assert (bare.prefix_token_ids, bare.suffix_token_ids) == ((), ())


def test_the_vocabulary_covers_every_id_of_the_file(vocabulary: Vocabulary, folder: Path) -> None:
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert vocabulary.vocab_size == library.get_vocab_size(with_added_tokens=True)
    assert vocabulary.token_num_bytes.shape == (vocabulary.vocab_size,)


def test_lone_surrogates_are_no_text(vocabulary: Vocabulary) -> None:
    with pytest.raises(UnicodeEncodeError):
        vocabulary.encode("a\ud800b")


@pytest.mark.parametrize("token_id", [-1, 10**6])
def test_ids_outside_the_vocabulary_are_not_decoded(vocabulary: Vocabulary, token_id: int) -> None:
    with pytest.raises(IndexError):
        vocabulary.decode([token_id])


@pytest.mark.parametrize("merges", [["a b", "b c"], [["a", "b"], ["b", "c"]]])
def test_merges_are_read_as_strings_and_as_pairs(tmp_path: Path, merges: list[Any]) -> None:
    folder = hand_made(tmp_path, merges)
    vocabulary = Vocabulary.load(folder)
    assert [vocabulary.token_bytes(i) for i in vocabulary.encode("abc bc").tolist()] == [b"ab", b"c", b" ", b"bc"]


def test_entries_made_by_every_pair_are_taken_as_whole_words_where_the_file_says_so(tmp_path: Path) -> None:
    # As tokenizers converted from tiktoken list them: every pair, grouped by what it makes.
    merges = [["b", "c"], ["a", "b"], ["a", "bc"], ["ab", "c"]]
    folder = hand_made(tmp_path, merges, ignore_merges=True)
    vocabulary, library = Vocabulary.load(folder), ordinary(folder)
    for text in ("abc", "ab", "abcabc", "xabc", "cab abc"):
        assert vocabulary.encode(text).tolist() == library.encode(text).ids


def test_a_folder_without_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no tokenizer.json in this model's folder; pull the model again"):
        Vocabulary.load(tmp_path)


DAMAGED: dict[str, dict[str, Any]] = {
    "a merge of three": {"model": {"merges": ["a b c"]}},
    "merges that are none": {"model": {"merges": 5}},
    "a pre-tokenizer that is a word": {"pre_tokenizer": "x"},
    "a sequence of nothing": {"pre_tokenizer": {"type": "Sequence"}},
    "a normalizer that is a word": {"normalizer": "x"},
    "a split without a pattern": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "behavior": "Isolated"}, {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    ]}},
    "a vocabulary that is a list": {"model": {"vocab": ["a"]}},
    "an id that is a word": {"model": {"vocab": {"a": "b"}}},
    "an id below 0": {"model": {"vocab": {"a": -1}}},
    "an id beyond all models": {"model": {"vocab": {"a": 1 << 60}}},
    "an added token without its id": {"added_tokens": [{"content": "x"}]},
    "half a character": {"model": {"vocab": {"\ud800": 1}, "merges": []}},
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_part_of_a_file_is_refused(trained_folders: dict[str, Path], tmp_path: Path, case: str) -> None:
    folder = change(trained_folders["gpt2"], tmp_path, **DAMAGED[case])
    with pytest.raises(ModelError) as refusal:
        Vocabulary.load(folder)
    assert str(refusal.value).startswith(f"{folder / 'tokenizer.json'}: not a tokenizer.json (")
    assert str(refusal.value).endswith("); pull the model again")


@pytest.mark.parametrize("content", ["{", "[]", '{"model": null}', "[" * 100_000])
def test_a_damaged_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ModelError, match=r"not a tokenizer.json .*; pull the model again"):
        Vocabulary.load(tmp_path)


def test_bytes_without_a_token_are_refused_not_dropped(trained_folders: dict[str, Path], tmp_path: Path) -> None:
    content = json.loads((trained_folders["gpt2"] / "tokenizer.json").read_text("utf-8"))
    vocab = {token: token_id for token, token_id in content["model"]["vocab"].items() if token != "Ą"}
    vocabulary = Vocabulary.load(change(trained_folders["gpt2"], tmp_path, model={"vocab": vocab}))
    assert vocabulary.missing_bytes == b"\x04"
    with pytest.raises(DocumentError, match="byte 0x04 has no token in this model's vocabulary") as refusal:
        vocabulary.encode("a\x04b")
    assert (refusal.value.stage, refusal.value.reason) == ("encode", "byte_without_token")


def test_the_same_file_is_loaded_once_and_another_version_again(
    trained_folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = change(trained_folders["gpt2"], tmp_path)
    first = Vocabulary.load(folder)
    assert Vocabulary.load(folder) is first
    change(trained_folders["digits"], tmp_path)
    assert Vocabulary.load(folder).sha256 != first.sha256


def test_a_proof_is_made_once_for_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))
    folder = train("digits", tmp_path / "model")
    proved = Vocabulary.load(folder)
    _load.cache_clear()
    monkeypatch.setattr(vocabulary_module, "prove", pytest.fail)
    again = Vocabulary.load(folder)
    assert again is not proved
    assert (again.prefix_token_ids, again.suffix_token_ids) == ((1,), (0,))
    assert (again.backend, again.can_be_cut) == (proved.backend, proved.can_be_cut) == ("tiktoken", True)


def test_a_damaged_verdict_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))
    folder = train("digits", tmp_path / "model")
    Vocabulary.load(folder)
    (path,) = (tmp_path / "cache" / "tokenizers").iterdir()
    good = path.read_text("utf-8")
    for damaged in ("", "{}", good.replace('"suffix_token_ids": [0]', '"suffix_token_ids": [5]')):
        assert damaged != good
        path.write_text(damaged, "utf-8")
        _load.cache_clear()
        assert Vocabulary.load(folder).suffix_token_ids == (0,)
        assert path.read_text("utf-8") == good


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "file"))
    vocabulary = Vocabulary.load(train("gpt2", tmp_path / "model"))
    assert vocabulary.decode(vocabulary.encode("whale")) == b"whale"


def test_digits_that_only_the_library_knows_are_found_in_every_plane() -> None:
    isolate = pre_tokenizers.Digits(individual_digits=True)
    known = proof.more_digits()
    rest = [chr(code) for code in range(0x20000, 0x110000)]
    assert len(isolate.pre_tokenize_str("".join(rest))) == 1
    assert all(len(isolate.pre_tokenize_str("a" + char)) == 2 for char in known)


@pytest.mark.books
def test_the_default_model_encodes_a_book_as_the_tokenizers_library_does(
    default_model: LocalModel, books: Path
) -> None:
    vocabulary = Vocabulary.load(default_model.folder)
    library = ordinary(default_model.folder)
    text = (books / "alice.txt").read_bytes().decode("utf-8")
    assert vocabulary.encode(text).tolist() == library.encode(text, add_special_tokens=False).ids


def test_the_default_model_keeps_each_digit_and_the_white_space_before_it(default_model: LocalModel) -> None:
    vocabulary = Vocabulary.load(default_model.folder)
    pieces = [vocabulary.token_bytes(token_id) for token_id in vocabulary.encode("in  1851 ").tolist()]
    assert pieces == [b"in", b"  ", b"1", b"8", b"5", b"1", b" "]
    assert (vocabulary.prefix_token_ids, vocabulary.suffix_token_ids) == ((), ())
    assert vocabulary.vocab_size == 49_152
