"""Small tokenizers of every supported shape, trained here, and text that is hard for them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from longdoc.tokenization.vocabulary import Vocabulary

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


# Patterns as transformers and the makers of models publish them.
QWEN35 = QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]+", r"[^\s\p{L}\p{M}\p{N}]+")
TEKKEN = O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK = (
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    (
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
)


def splits(patterns: Sequence[str]) -> Any:
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence([*steps, byte_level(use_regex=False)])


# Byte-level BPE that becomes a table for tiktoken.
TABLES = {
    "gpt2": byte_level(),
    "digits": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level()]),
    "llama3": split(LLAMA3),
    "qwen2": split(QWEN2),
    "qwen3_5": split(QWEN35),
    "o200k": split(O200K),
    "tekken": split(TEKKEN),
    "neox": byte_level(),
}
# Byte-level BPE that the library runs.
STEPS = {"deepseek": splits(DEEPSEEK)}
# Models as SentencePiece trains them, with the steps of the transformers library.
SENTENCEPIECE: dict[str, tuple[Any, Any]] = {
    "gemma": (normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous")),
    "llama2": (normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None),
    "metaspace": (None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False)),
    "metaspace words": (None, pre_tokenizers.Metaspace(prepend_scheme="always", split=True)),
    "unigram": (None, pre_tokenizers.Metaspace(prepend_scheme="never", split=True)),
}
SHAPES = (*TABLES, *STEPS, *SENTENCEPIECE)
# Those that name a Unicode normalizer, and those that have tokens of white space outside the merges.
NFC_SHAPES = ("qwen2", "neox")
NORMALIZED: dict[str, Any] = {shape: normalizers.NFC() for shape in NFC_SHAPES}
BLANKS = {
    "neox": [AddedToken(" " * length, normalized=True) for length in range(24, 1, -1)],
    "gemma": [AddedToken("\n" * length, normalized=False) for length in range(2, 8)],
}

# White space of all lengths and kinds is in the corpus, so that runs have tokens of their own and cuts can show.
_CORPUS = [
    "The whale, the white whale! It's the captain's; they'll say we've seen it 1851 times.",
    "def f(x):\n    return x + 1\n\n\nclass A:\n\tpass\n\n    # done\r\n\r\n        if x:\r\n",
    "a\n\nb\n\n\nc \n \n d\t\te  f   g    h        i                j !\n\n?\r\n\r\n.\n",
    "Überraschung é e\u0301 ß 中文字符 日本語の文章 한국어 😀😀 👩‍👩‍👧 naïve я дом",
    "12 345 6789 0 00 000 <|endoftext|> <|im_start|>user\n //// ==== ---- () {} [] ;; \u3000\u3000 \xa0\xa0",
]

CONTROL = ["<|endoftext|>", "<|im_start|>"]

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
    tokenizer = _train_sentencepiece(shape) if shape in SENTENCEPIECE else _train_byte_level(shape)
    tokenizer.add_tokens(BLANKS.get(shape, []))
    template = ("<|im_start|> $A <|endoftext|>", None, [("<|im_start|>", 1), ("<|endoftext|>", 0)])
    tokenizer.post_processor = processors.TemplateProcessing(*template)
    if shape not in SENTENCEPIECE:
        steps = [processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(*template)]
        tokenizer.post_processor = processors.Sequence(steps)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def _train_byte_level(shape: str) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = (TABLES | STEPS)[shape]
    tokenizer.normalizer = NORMALIZED.get(shape)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        show_progress=False,
        special_tokens=CONTROL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(_CORPUS * 3, trainer)
    return tokenizer


def _train_sentencepiece(shape: str) -> Tokenizer:
    """Trained on words, as SentencePiece does, whatever the steps are that it is used with."""
    normalizer, pre_tokenizer = SENTENCEPIECE[shape]
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    special = [*CONTROL, "<unk>", *byte_tokens]
    trainer: Any
    if shape == "unigram":
        tokenizer = Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(
            vocab_size=450,
            show_progress=False,
            special_tokens=special,
            unk_token="<unk>",
        )
    else:
        tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
        trainer = trainers.BpeTrainer(vocab_size=700, show_progress=False, special_tokens=special)
    words = pre_tokenizers.Metaspace(prepend_scheme="never", split=True)
    # As published models have them, line ends merge with line ends only; in one shape they merge with words.
    lines = [] if shape == "metaspace words" else [pre_tokenizers.Split(Regex(r"[\t\r\n]+"), "isolated")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, *lines])
    tokenizer.train_from_iterator(_CORPUS * 3, trainer)
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = [t for t in content["added_tokens"] if t["content"] not in byte_tokens]
    content["model"]["byte_fallback"] = True
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer


def ordinary(folder: Path) -> Tokenizer:
    """The `tokenizers` library on the same file as longdoc means it: control tokens are ordinary text, no Unicode
    normalizer, no space put before a text."""
    content = own_content(folder)
    normalizer, step = content["normalizer"], content["pre_tokenizer"]
    parts = [] if normalizer is None else normalizer.get("normalizers", [normalizer])
    kept = [part for part in parts if part["type"] == "Replace"]
    if step is not None and step["type"] == "Metaspace":
        step["prepend_scheme"] = "never"
    content["normalizer"] = {"type": "Sequence", "normalizers": kept}
    return Tokenizer.from_str(json.dumps(content))


def own(folder: Path) -> Tokenizer:
    """The `tokenizers` library on the same file, its control tokens removed and nothing else."""
    return Tokenizer.from_str(json.dumps(own_content(folder)))


def own_content(folder: Path) -> Any:
    content = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    # The library gives added tokens that follow the vocabulary their own numbers again only where none is missing.
    blanks = [token for token in content["added_tokens"] if token["content"].isspace()]
    if blanks:
        content["model"]["vocab"] |= {token["content"]: token["id"] for token in blanks}
    return {**content, "added_tokens": blanks, "post_processor": None}


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


def is_as_the_library(vocabulary: Vocabulary, text: str) -> bool:
    """Whether all of a text is left to the library. SentencePiece's models take a literal U+2581 for a space, and make
    control tokens of words such as `<|endoftext|>`; longdoc does neither."""
    return vocabulary.backend == "tiktoken" or not vocabulary.num_as_they_stand(text)
