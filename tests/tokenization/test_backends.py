"""What tiktoken cannot run is run by the `tokenizers` library, with the same ids, and the reason is known."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer
from trained_tokenizers import SENTENCEPIECE, STEPS, TABLES, change, hand_made, ordinary, own, split

from longdoc.errors import ModelError
from longdoc.tokenization import library_encoder
from longdoc.tokenization import vocabulary as vocabulary_module
from longdoc.tokenization.convert import NotOneTable, Table, convert
from longdoc.tokenization.library_encoder import LibraryEncoder
from longdoc.tokenization.tokenizer_file import TokenizerFile
from longdoc.tokenization.vocabulary import Vocabulary

TEXT = "The whale, 1851:  'tis\n\n\tabc abcabc xyz bc  12345 <|endoftext|> é中文字 😀\r\n   x"


def test_who_encodes_and_what_may_be_cut(trained_folders: dict[str, Path]) -> None:
    found = {shape: Vocabulary.load(folder) for shape, folder in trained_folders.items()}
    assert {shape for shape, vocabulary in found.items() if vocabulary.backend == "tiktoken"} == set(TABLES)
    uncut = {shape for shape, vocabulary in found.items() if not vocabulary.can_be_cut}
    # Line ends merge with words in one, and Unigram weighs whole words.
    assert uncut == {*STEPS, "metaspace words", "unigram"}
    assert {found[shape].not_tiktoken for shape in SENTENCEPIECE} == {"no byte-level BPE"}


def grouped_digits() -> dict[str, Any]:
    return {"type": "Digits", "individual_digits": False}


def byte_level(use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def sequence(*steps: Any) -> dict[str, Any]:
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(steps)}}


def pattern(regex: str, behavior: str = "Isolated") -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": False}


STEPS_OF_OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "grouped digits": (
        sequence(grouped_digits(), byte_level(True)),
        "the pre-tokenizer Digits then ByteLevel with these options",
    ),
    "two splits": (
        sequence(pattern(" "), pattern("x"), byte_level(False)),
        "the pre-tokenizer Split then Split then ByteLevel with these options",
    ),
    "a split that joins": (
        sequence(pattern(" ", "MergedWithNext"), byte_level(False)),
        "the pre-tokenizer Split with behavior MergedWithNext, or without a Regex",
    ),
    "no pattern at all": (
        {"pre_tokenizer": byte_level(False)},
        "the pre-tokenizer ByteLevel with these options",
    ),
    "a pattern of the other engine": (
        sequence(pattern(r"\X"), byte_level(False)),
        "the pre-tokenizer's pattern (Parsing error at position 0: Invalid escape: \\X)",
    ),
    "a pattern that means another thing": (
        sequence(pattern("(?~xx)"), byte_level(False)),
        "a tokenizer whose tiktoken form encodes '' differently",
    ),
    "a pattern that leaves text unmatched": (
        sequence(pattern(r"\p{L}+"), byte_level(False)),
        "a tokenizer whose tiktoken form encodes 'a  1   2\\n 3\\t4 \\n\\n5' differently",
    ),
}


@pytest.mark.parametrize("case", STEPS_OF_OTHERS)
def test_steps_that_are_not_one_pattern_are_run_by_the_library(
    trained_folders: dict[str, Path], tmp_path: Path, case: str
) -> None:
    changes, reason = STEPS_OF_OTHERS[case]
    check_library(change(trained_folders["gpt2"], tmp_path, **changes), reason)


def check_library(folder: Path, reason: str) -> Vocabulary:
    vocabulary, library = Vocabulary.load(folder), ordinary(folder)
    assert (vocabulary.backend, vocabulary.not_tiktoken) == ("tokenizers", reason)
    for text in (TEXT, "", "abc", " ", "\n", "xabc cab"):
        assert vocabulary.encode(text).tolist() == library.encode(text, add_special_tokens=False).ids
        assert vocabulary.decode(vocabulary.encode(text)) == text.encode("utf-8")
    return vocabulary


MERGES: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    # "abc" becomes a|bc, for which no merge is listed; tiktoken would join it.
    "an entry that its own merges do not reach": (
        [["b", "c"], ["a", "b"], ["ab", "c"]],
        {},
        "a vocabulary whose entry 'abc' does not encode to itself",
    ),
    "an entry made by some of its pairs": (
        [["b", "c"], ["a", "b"], ["ab", "c"]],
        {"ignore_merges": True},
        "a list of merges that makes 'abc' by some of its pairs only",
    ),
    "merges that come back to an entry": (
        [["a", "b"], ["ab", "c"], ["b", "c"], ["a", "bc"]],
        {},
        "a list of merges that comes back to 'abc'",
    ),
    "whole words that no merge makes": (
        [["a", "b"]],
        {"ignore_merges": True, "extra": ["xyz"]},
        "ignore_merges with entries that no merge makes",
    ),
}


@pytest.mark.parametrize("case", MERGES)
def test_merges_that_tiktoken_has_no_word_for_are_run_by_the_library(tmp_path: Path, case: str) -> None:
    merges, model, reason = MERGES[case]
    check_library(hand_made(tmp_path, merges, **model), reason)


def test_a_merge_of_what_is_no_entry_is_refused(tmp_path: Path) -> None:
    folder = hand_made(tmp_path, [["a", "b"], ["q", "u"]], made=["ab"])
    with pytest.raises(ModelError, match=r"tokenizers library refuses it \(.*`qu`.*\); pull the model again"):
        Vocabulary.load(folder)


def test_a_difference_in_pre_tokenization_does_not_pass_the_proof(
    trained_folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the alternative for white space before a digit, as the stock conversion of this tokenizer has it.
    original = convert

    def stock(file: TokenizerFile, more_digits: str = "") -> Table:
        table = original(file, more_digits)
        fields = {field: getattr(table, field) for field in table.__slots__}
        pieces = fields.pop("pretokenization")
        plain = pieces.pattern.replace(r"|\s+(?=[\p{N}", r"|\s+(?=[^\s\S\p{N}")
        assert plain != pieces.pattern
        changed = type(pieces)(pattern=plain, digits_alone=True, newlines_end_runs=False, is_known=True)
        return Table(**fields, pretokenization=changed)

    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(vocabulary_module, "convert", stock)
    folder = change(trained_folders["digits"], tmp_path / "copy")
    check_library(folder, "a tokenizer whose tiktoken form encodes 'a  1   2\\n 3\\t4 \\n\\n5' differently")


def test_the_library_is_chosen_again_without_another_proof(
    trained_folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = change(trained_folders["gemma"], tmp_path)
    first = Vocabulary.load(folder)
    vocabulary_module._load.cache_clear()
    for step in ("prove", "convert"):
        monkeypatch.setattr(vocabulary_module, step, pytest.fail)
    again = Vocabulary.load(folder)
    assert again is not first
    assert (again.backend, again.not_tiktoken) == ("tokenizers", "no byte-level BPE")
    assert again.encode(TEXT).tolist() == first.encode(TEXT).tolist()


BLANKS = {
    "tabs too": (["  ", "\t\t"], "added tokens of white space other than runs of spaces behind a pattern like GPT-2's"),
    "a gap": (["  ", "    "], "added tokens of white space other than runs of spaces behind a pattern like GPT-2's"),
}


@pytest.mark.parametrize("case", BLANKS)
def test_other_tokens_of_white_space_are_run_by_the_library(
    trained_folders: dict[str, Path], tmp_path: Path, case: str
) -> None:
    contents, reason = BLANKS[case]
    tokenizer = Tokenizer.from_file(str(trained_folders["gpt2"] / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken(content) for content in contents])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    vocabulary = check_library(tmp_path, reason)
    assert vocabulary.encode("a" + contents[1] + "b").tolist()[1] == tokenizer.token_to_id(contents[1])


def test_runs_of_spaces_behind_an_unknown_pattern_are_run_by_the_library(
    trained_folders: dict[str, Path], tmp_path: Path
) -> None:
    tokenizer = Tokenizer.from_file(str(trained_folders["gpt2"] / "tokenizer.json"))
    tokenizer.pre_tokenizer = split(r"\p{L}+|[^\p{L}]")
    tokenizer.add_tokens([AddedToken("  ")])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    check_library(tmp_path, "runs of spaces before a pattern that is not known")


def test_a_run_of_spaces_is_its_own_token_and_control_tokens_are_not(trained_folders: dict[str, Path]) -> None:
    vocabulary, library = Vocabulary.load(trained_folders["neox"]), own(trained_folders["neox"])
    text = "if x:\n" + " " * 25 + "y" + " " * 49 + "\n  z <|endoftext|>"
    assert vocabulary.encode(text).tolist() == library.encode(text).ids
    assert vocabulary.encode(" " * 24).tolist() == [library.token_to_id(" " * 24)]


def _no_table(file: TokenizerFile, more_digits: str = "") -> Table:
    raise NotOneTable("for this test")


def test_an_encoder_that_differs_from_the_library_is_refused(
    trained_folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = LibraryEncoder.encode
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(vocabulary_module, "convert", _no_table)
    monkeypatch.setattr(LibraryEncoder, "encode", lambda self, text, longest: right(self, text, longest)[::-1])
    with pytest.raises(ModelError, match=r"form encodes 'a  1 .* differently cannot be used: ids would not be"):
        Vocabulary.load(change(trained_folders["gpt2"], tmp_path / "model"))


def test_tokens_that_stand_for_another_text_are_refused(
    trained_folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = library_encoder._bytes_of
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(library_encoder, "_bytes_of", lambda token, file: right(token, file).replace(b" ", b""))
    with pytest.raises(ModelError, match=r"whose ids for 'a  1 .* stand for another text cannot be used: it loses"):
        Vocabulary.load(change(trained_folders["gemma"], tmp_path / "model"))


def test_a_space_that_is_put_inside_a_text_too_is_refused(trained_folders: dict[str, Path], tmp_path: Path) -> None:
    # Metaspace puts one wherever an added token ended, not only before a text.
    tokenizer = Tokenizer.from_file(str(trained_folders["metaspace words"] / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken("\n\n")])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ModelError, match="otherwise without the parts that longdoc leaves out cannot be used"):
        Vocabulary.load(tmp_path)


@pytest.mark.parametrize("flag", ["special", "single_word", "lstrip", "rstrip"])
def test_white_space_that_is_more_than_text_is_never_matched(
    trained_folders: dict[str, Path], tmp_path: Path, flag: str
) -> None:
    token = {"id": 9000, "content": "  ", "single_word": False, "lstrip": False, "rstrip": False, "normalized": True}
    folder = change(trained_folders["gpt2"], tmp_path, added_tokens=[token | {"special": False, flag: True}])
    vocabulary = Vocabulary.load(folder)
    bare = Vocabulary.load(trained_folders["gpt2"])
    assert vocabulary.encode("a  b").tolist() == bare.encode("a  b").tolist()
    assert vocabulary.backend == "tiktoken"
