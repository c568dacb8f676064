"""Texts that are encoded together, by a pattern without look-ahead, get the ids that each gets by itself."""

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import tiktoken
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import Digits
from trained_tokenizers import change, is_as_the_library, ordinary, texts

from longdoc.model.local import LocalModel
from longdoc.tokenization.batches import _is_settled, batch_splitter
from longdoc.tokenization.convert import Pretokenization
from longdoc.tokenization.vocabulary import Vocabulary

# White space of every kind beside what patterns treat apart, and the characters that stand for cuts and ends.
ATOMS = (
    *(" ", "  ", "\t", "\n", "\r\n", "\r", "\v", "\f", "\x85", "\xa0", "\u2003", "\u2028", "\u205f", "\u3000", "\x1c"),
    *(
        "a",
        "Ab",
        "é",
        "я",
        "中",
        "1",
        "23",
        "٣",
        "²",
        "Ⅷ",
        "\U00011de0",
        "'s",
        "'LL",
        ".",
        "!",
        "/",
        "_",
        "😀",
        "\u0301",
    ),
    *("\x0e", "\x10", "\x00"),
)
awkward = st.lists(st.sampled_from(ATOMS), max_size=14).map("".join)


def one_by_one(vocabulary: Vocabulary, batch: list[str]) -> list[list[int]]:
    return [vocabulary.encode(text).tolist() for text in batch]


def together(vocabulary: Vocabulary, batch: list[str]) -> list[list[int] | None]:
    ids, counts = vocabulary.encode_batch([text.encode() for text in batch])
    stops = np.cumsum([count or 0 for count in counts]).tolist()
    assert ids.dtype == np.int32
    assert len(ids) == (stops[-1] if stops else 0)
    return [
        None if count is None else ids[stop - count : stop].tolist() for count, stop in zip(counts, stops, strict=True)
    ]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(batch=st.lists(st.one_of(awkward, texts), max_size=8))
def test_a_batch_is_encoded_as_each_of_its_texts(vocabulary: Vocabulary, oracle: Tokenizer, batch: list[str]) -> None:
    found = together(vocabulary, batch)
    assert found == one_by_one(vocabulary, batch)
    for text, ids in zip(batch, found, strict=True):
        if is_as_the_library(vocabulary, text):
            assert ids == oracle.encode(text, add_special_tokens=False).ids


def test_every_pair_of_white_space_and_what_follows(vocabulary: Vocabulary) -> None:
    runs = [first + second for first in ATOMS[:14] for second in ATOMS[:14]]
    batch = [f"x{run}{after}" for run in runs for after in ("a", "1", ".", "", "'s", "中", "٣", "\n")]
    assert together(vocabulary, batch) == one_by_one(vocabulary, batch)


GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# Each pair of characters is a token, so that where a text falls into pieces shows in its ids.
PAIRS = {
    **{bytes([byte]): byte for byte in range(256)},
    **{bytes(pair): 256 + at for at, pair in enumerate(product(b" \t\n\r\v\fab1.!/", repeat=2))},
}
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
O200K = LLAMA3.replace(r"[\r\n]*|", r"[\r\n/]*|", 1)
DIGITS = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+|[\p{N}]| ?[^\s\p{L}\p{N}]+|\s+(?=[\p{N}])|\s+(?!\S)|\s+"


@pytest.mark.parametrize(
    ("pattern", "digits_alone", "newlines_end_runs"),
    [(GPT2, False, False), (DIGITS, True, False), (LLAMA3, False, True), (O200K, False, True)],
)
def test_texts_fall_into_the_pieces_of_the_whole_pattern(
    pattern: str, digits_alone: bool, newlines_end_runs: bool
) -> None:
    splitter = batch_splitter(
        Pretokenization(pattern=pattern, digits_alone=digits_alone, newlines_end_runs=newlines_end_runs, is_known=True),
        PAIRS,
    )
    assert splitter is not None
    whole = tiktoken.Encoding("whole", pat_str=pattern, mergeable_ranks=PAIRS, special_tokens={})
    runs = ["".join(run) for size in range(4) for run in product(" \t\n\r\v", repeat=size)]
    around = ("", "a", "1", ".", "!", "\xe9", "\u0663", "\xb2", "\U00011de0", "\xa0", "\u3000", "\x85", "\x0e", "\x10")
    batch = [before + run + after for before in ("", "a", "1", ".") for run in runs for after in around]
    ranks, counts = splitter.encode([text.encode() for text in batch])
    start = 0
    for text, count in zip(batch, counts, strict=True):
        if count is not None:
            assert ranks[start : start + count].tolist() == whole.encode_ordinary(text), repr(text)
            start += count
    left_out = {text for text, count in zip(batch, counts, strict=True) if count is None}
    assert {text for text in batch if {"\xa0", "\u3000", "\x85", "\x0e", "\x10"} & set(text)} <= left_out
    assert ({text for text in batch if "\u0663" in text} & left_out != set()) == digits_alone
    assert not {text for text in batch if text.isascii() and text.isprintable()} & left_out


def test_the_default_model_encodes_code_and_prose_in_batches(default_model: LocalModel) -> None:
    vocabulary = Vocabulary.load(default_model.folder)
    own = vocabulary.tiktoken_encoding()
    assert vocabulary._encoder._splitter is not None  # type: ignore[union-attr]  # tiktoken is behind it
    library = Path(__import__("json").__file__).parent.parent
    batch = [path.read_text("utf-8") for path in sorted(library.glob("*.py"))[:120]]
    known = [text for text in batch if not {4, 6, 19, 20, 22, 29} & set(text.encode())]
    assert len(known) > 100
    found = together(vocabulary, known)
    expected = [own.encode_ordinary(text) for text in known]
    ranks = vocabulary._encoder._id_of_rank  # type: ignore[union-attr]
    assert found == [ranks[ids].tolist() for ids in expected]


def test_runs_that_the_engine_cannot_look_ahead_in_are_encoded(trained_folders: dict[str, Path]) -> None:
    vocabulary = Vocabulary.load(trained_folders["gpt2"])
    text = "x" + " " * 1_100_000 + "y"
    assert together(vocabulary, [text, "z"]) == one_by_one(vocabulary, [text, "z"])


def test_a_text_with_a_byte_that_has_no_token_has_no_ids(trained_folders: dict[str, Path], tmp_path: Path) -> None:
    vocab = {token: at for token, at in ordinary(trained_folders["gpt2"]).get_vocab().items() if token not in "ĄÃ"}
    model = {"vocab": {token: at for token, at in vocab.items() if len(token) == 1}, "merges": []}
    vocabulary = Vocabulary.load(change(trained_folders["gpt2"], tmp_path, model=model, post_processor=None))
    batch = ["fine", "\x04", "x é", "\x10 \x04", "\x10", "end"]
    found = together(vocabulary, batch)
    assert [ids is None for ids in found] == [False, True, True, True, False, False]
    fine = [text for text, ids in zip(batch, found, strict=True) if ids is not None]
    assert [ids for ids in found if ids is not None] == one_by_one(vocabulary, fine)


def test_no_texts_and_empty_texts(vocabulary: Vocabulary) -> None:
    assert together(vocabulary, []) == []
    assert together(vocabulary, ["", ""]) == [[], []]


RANKS = {bytes([byte]): byte for byte in range(256)}


@pytest.mark.parametrize(
    ("pattern", "options"),
    [
        (GPT2, {"is_known": False}),
        (GPT2, {"longest_spaces": 4}),
        (r" ?\p{L}+", {}),
        (r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+", {}),
        (r"\s*[\r\n]+|\s+(?!\S)|\s+", {}),
    ],
)
def test_a_pattern_that_was_not_reasoned_out_is_run_as_it_is(pattern: str, options: dict[str, object]) -> None:
    facts = {"digits_alone": False, "newlines_end_runs": False, "is_known": True} | options
    assert batch_splitter(Pretokenization(pattern=pattern, **facts), RANKS) is None  # type: ignore[arg-type]  # shorthand


def test_the_pattern_that_is_run_looks_nowhere_ahead() -> None:
    facts = {"digits_alone": False, "newlines_end_runs": False, "is_known": True}
    splitter = batch_splitter(Pretokenization(pattern=GPT2, **facts), RANKS)
    assert splitter is not None
    assert splitter._encoding._pat_str == GPT2.replace(r"\s+(?!\S)|", "")


def test_no_settled_character_is_a_digit_to_the_tokenizers_library() -> None:
    characters = (chr(code) for code in (*range(0x80, 0xD800), *range(0xE000, sys.maxunicode + 1)))
    settled = [char for char in characters if _is_settled.__wrapped__(char.encode())]
    assert len(settled) > 80_000
    assert len(Digits(individual_digits=True).pre_tokenize_str("".join(settled))) == 1
    assert not any(_is_settled(char.encode()) for char in "٣²½Ⅷ𝟘\U00011de0\U00011de9")


def test_texts_with_white_space_outside_ascii_are_left_to_the_whole_pattern() -> None:
    splitter = batch_splitter(
        Pretokenization(pattern=GPT2, digits_alone=False, newlines_end_runs=False, is_known=True), PAIRS
    )
    assert splitter is not None
    characters = [chr(code) for code in (*range(0x80, 0xD800), *range(0xE000, 0x11000))]
    batch = [f"a {char}b" for char in characters]
    _, counts = splitter.encode([text.encode() for text in batch])
    left_out = {char for char, count in zip(characters, counts, strict=True) if count is None}
    # str.isspace is Unicode's White_Space but for four controls of ASCII.
    assert left_out == {char for char in characters if char.isspace()}
