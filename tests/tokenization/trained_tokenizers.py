"""Small byte-level BPE tokenizers of every supported shape, trained here, and text that is hard for them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level(use_regex: bool = True) -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def split(pattern: str) -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level(use_regex=False)])


SHAPES = {
    "gpt2": byte_level(),
    "digits": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level()]),
    "llama3": split(LLAMA3),
    "qwen2": split(QWEN2),
    "o200k": split(O200K),
}

# White space of all lengths and kinds is in the corpus, so that runs have tokens of their own and cuts can show.
_CORPUS = [
    "The whale, the white whale! It's the captain's; they'll say we've seen it 1851 times.",
    "def f(x):\n    return x + 1\n\n\nclass A:\n\tpass\n\n    # done\r\n\r\n        if x:\r\n",
    "a\n\nb\n\n\nc \n \n d\t\te  f   g    h        i                j !\n\n?\r\n\r\n.\n",
    "Überraschung é e\u0301 ß 中文字符 日本語の文章 한국어 😀😀 👩‍👩‍👧 naïve я дом",
    "12 345 6789 0 00 000 <|endoftext|> <|im_start|>user\n //// ==== ---- () {} [] ;; \u3000\u3000 \xa0\xa0",
]

ATOMS = [
    *(
        " ",
        "  ",
        "    ",
        "\n",
        "\n\n",
        "\r\n",
        "\r",
        "\t",
        "\v",
        "\f",
        "\x00",
        "\x1c",
        "\x85",
        "\xa0",
        "\u2028",
        "\u3000",
    ),
    *("a", "the", "The", "HELLO", "whale", "camelCase", "é", "e\u0301", "ſ", "İ", "中文", "。", "ऄ", "\u0903"),
    *("1", "42", "1851", "²", "Ⅷ", "٣", "\U0001f100", "'s", "'LL", "'ſ", "'", "’", ".", "!", "/", "//", "_", "-", "()"),
    *("😀", "👩‍👩‍👧", "\u200b", "\u200d", "\ufeff", "<|endoftext|>", "<|im_start|>", "<|"),
]

texts = st.one_of(
    st.lists(st.sampled_from(ATOMS), max_size=40).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.text(" \n\r\ta1!", max_size=40),
)


def train(shape: str, folder: Path) -> Path:
    """A tokenizer.json of one shape, with control tokens, in a folder of its own; returns the folder."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = SHAPES[shape]
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        show_progress=False,
        special_tokens=["<|endoftext|>", "<|im_start|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(_CORPUS * 3, trainer)
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                "<|im_start|> $A <|endoftext|>", None, [("<|im_start|>", 1), ("<|endoftext|>", 0)]
            ),
        ]
    )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def ordinary(folder: Path) -> Tokenizer:
    """The `tokenizers` library on the same file, its added tokens removed: control tokens are ordinary text."""
    content = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    return Tokenizer.from_str(json.dumps({**content, "added_tokens": [], "post_processor": None}))


def change(folder: Path, target: Path, **changes: Any) -> Path:
    """A copy of a tokenizer.json with top-level entries replaced; `model` is merged into the old one."""
    content = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    model = content["model"] | changes.pop("model", {})
    target.mkdir(parents=True, exist_ok=True)
    (target / "tokenizer.json").write_text(json.dumps({**content, **changes, "model": model}), "utf-8")
    return target


def hand_made(target: Path, merges: Sequence[str | list[str]], **model: Any) -> Path:
    """A GPT-2-like tokenizer.json: all bytes, then what the merges make (or `made`), then `extra` entries."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = model.pop("made", ["".join(merge).replace(" ", "") for merge in merges])
    tokens = list(dict.fromkeys([*alphabet, *made, *model.pop("extra", [])]))
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": json.loads(byte_level().__getstate__()),
        "post_processor": None,
        "decoder": None,
        "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges, **model},
    }
    target.mkdir(parents=True, exist_ok=True)
    (target / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    return target
