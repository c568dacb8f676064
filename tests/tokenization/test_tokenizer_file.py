"""Tokenizers that lose, add or rewrite text are refused by name, with the reason; what longdoc leaves out is named."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, trainers
from trained_tokenizers import change, hand_made

from longdoc.errors import ModelError
from longdoc.tokenization.vocabulary import Vocabulary

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True, "trim_offsets": True}
SPACED = BYTE_LEVEL | {"add_prefix_space": True}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}


def steps(*pre_tokenizers: Any) -> dict[str, Any]:
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(pre_tokenizers)}}


def split(behavior: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": " "}, "behavior": behavior, "invert": False}


# Changes to a byte-level tokenizer, and what is said of them.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "wordpiece": (
        {"model": {"type": "WordPiece"}},
        (
            "the tokenizer model WordPiece cannot be used: its tokens do not say where white space was, and words that "
            "it does not know become one token"
        ),
    ),
    "dropout": (
        {"model": {"dropout": 0.1}},
        "BPE with dropout=0.1 cannot be used: the same text gets other tokens every time",
    ),
    "suffix": (
        {"model": {"end_of_word_suffix": "</w>"}},
        (
            "BPE with end_of_word_suffix='</w>' cannot be used: its tokens stand for other bytes inside a word than at "
            "its edge"
        ),
    ),
    "bert": (
        {"normalizer": {"type": "BertNormalizer", "lowercase": True}},
        (
            "the normalizer BertNormalizer cannot be used: it rewrites white space, and may lower-case text or strip "
            "accents"
        ),
    ),
    "lower case": (
        {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}},
        "the normalizer Lowercase cannot be used: it lower-cases text",
    ),
    "letters apart": (
        {"normalizer": {"type": "NFD"}},
        "the normalizer NFD cannot be used: it takes letters with accents apart, so that hardly a text stays as it is",
    ),
    "a table of characters": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}},
        "the normalizer Precompiled cannot be used: it rewrites and drops characters by a table of its own",
    ),
    "another replacement": (
        {"normalizer": {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}},
        "the normalizer Replace cannot be used: it changes text",
    ),
    "white space": (
        steps({"type": "WhitespaceSplit"}, BYTE_LEVEL),
        "the pre-tokenizer WhitespaceSplit cannot be used: it drops white space",
    ),
    "removing split": (
        steps(split("Removed"), BYTE_LEVEL),
        "the pre-tokenizer Split with behavior Removed cannot be used: it drops what it splits at",
    ),
    "a space before each piece": (
        steps(split("Isolated"), SPACED),
        (
            "the pre-tokenizer ByteLevel with a prefix space behind or before others cannot be used: it would put a "
            "space before each piece"
        ),
    ),
    "bytes twice": (
        steps(BYTE_LEVEL, BYTE_LEVEL),
        "the pre-tokenizer ByteLevel twice cannot be used: bytes would be written twice",
    ),
    "another sign for a space": (
        {"pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "never", "split": True}},
        "the pre-tokenizer Metaspace with the replacement '_' cannot be used: only U+2581 is understood",
    ),
    "both kinds": (
        {"normalizer": REPLACE},
        "ByteLevel with anything but a plain BPE cannot be used: what its tokens stand for was not worked out",
    ),
    "no bytes": (
        {"pre_tokenizer": None},
        (
            "a BPE tokenizer without byte_fallback cannot be used: characters that it does not know become one and the "
            "same token"
        ),
    ),
    "some bytes": (
        {"pre_tokenizer": None, "model": {"byte_fallback": True}},
        "byte_fallback without a token for the byte 0x00 cannot be used: text would be lost",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_loses_text_is_refused_by_name(trained_folders: dict[str, Path], tmp_path: Path, case: str) -> None:
    changes, said = REFUSED[case]
    folder = change(trained_folders["gpt2"], tmp_path, **changes)
    with pytest.raises(ModelError) as refusal:
        Vocabulary.load(folder)
    assert str(refusal.value) == (
        f"{folder / 'tokenizer.json'}: {said}; use a model whose tokenizer keeps every byte (see docs/models.md)"
    )


@pytest.mark.parametrize("lowercase", [True, False])
def test_tokenizers_of_bert_are_refused(tmp_path: Path, lowercase: bool) -> None:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=60, special_tokens=["[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(["The whale, the white whale"], trainer)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ModelError, match="the normalizer BertNormalizer cannot be used: it rewrites white space"):
        Vocabulary.load(tmp_path)


def test_a_merge_that_starts_from_a_byte_is_refused(trained_folders: dict[str, Path], tmp_path: Path) -> None:
    content = json.loads((trained_folders["gemma"] / "tokenizer.json").read_text("utf-8"))
    model = content["model"]
    vocab = model["vocab"] | {"<0x0A>a": 1 + max(model["vocab"].values())}
    changed = {"vocab": vocab, "merges": [*model["merges"], ["<0x0A>", "a"]]}
    with pytest.raises(ModelError, match=r"a merge of '<0x0A>' and 'a' cannot be used: what becomes of a byte"):
        Vocabulary.load(change(trained_folders["gemma"], tmp_path, model=changed))


def test_a_post_processor_that_does_more_is_refused(trained_folders: dict[str, Path], tmp_path: Path) -> None:
    twice = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "x", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"x": {"id": "x", "ids": [0], "tokens": ["x"]}},
    }
    folder = change(trained_folders["gpt2"], tmp_path, post_processor=twice)
    with pytest.raises(ModelError, match="only tokens before and after a document are understood"):
        Vocabulary.load(folder)


POLICIES = {
    "gpt2": "",
    "deepseek": "",
    "qwen2": "no NFC",
    "gemma": "U+2581 by its bytes",
    "llama2": "no space before a text, U+2581 by its bytes",
    "metaspace": "no space before a text, U+2581 by its bytes",
    "unigram": "U+2581 by its bytes",
}


@pytest.mark.parametrize("case", POLICIES)
def test_what_is_done_differently_is_named_and_part_of_the_identity(
    trained_folders: dict[str, Path], case: str
) -> None:
    folder = trained_folders[case]
    vocabulary = Vocabulary.load(folder)
    assert vocabulary.policy == POLICIES[case]
    assert vocabulary.sha256 == hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()
    assert (vocabulary.identity == vocabulary.sha256) == (POLICIES[case] == "")


def test_runs_of_spaces_are_part_of_the_identity(trained_folders: dict[str, Path], tmp_path: Path) -> None:
    bare = Tokenizer.from_file(str(trained_folders["gpt2"] / "tokenizer.json"))
    bare.add_tokens([AddedToken("  ")])
    bare.save(str(tmp_path / "tokenizer.json"))
    vocabulary = Vocabulary.load(tmp_path)
    assert vocabulary.policy == ""
    assert vocabulary.identity != vocabulary.sha256


def test_a_space_before_a_text_is_left_out(tmp_path: Path) -> None:
    merges = ["Ġ a", "a b"]
    spaced = change(hand_made(tmp_path / "bare", merges), tmp_path / "spaced", pre_tokenizer=SPACED)
    vocabulary = Vocabulary.load(spaced)
    assert [vocabulary.token_bytes(token_id) for token_id in vocabulary.encode("ab ab")] == [b"ab", b" a", b"b"]
    # The library alone would begin with the token for " a".
    library = Tokenizer.from_file(str(spaced / "tokenizer.json"))
    assert library.encode("ab ab").tokens == ["Ġa", "b", "Ġa", "b"]
    assert vocabulary.policy == "no space before a text"
