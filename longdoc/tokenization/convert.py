"""Reads a Hugging Face `tokenizer.json` as a byte-level BPE table that tiktoken can run.

Owns the file format: ranks, ids and one pattern for the whole pre-tokenization. Refuses by name everything that is
not byte-level BPE with one of three pre-tokenizations: ByteLevel (the GPT-2 pattern), Digits (each digit alone) then
ByteLevel, Split (a pattern of the file's own) then ByteLevel. That the result equals the original is shown in `proof`.

Added tokens are never split out of the text: a literal `<|endoftext|>` in a book is ordinary text.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from longdoc.errors import ModelError
from longdoc.records import Int32s

NUM_BYTES = 256
# tiktoken wants whole ranks for all bytes; a byte that the vocabulary lacks gets this id, and encoding refuses it.
NO_ID = -1

# A list of bytes has a place for every id, so a damaged one must not ask for all memory. No model comes near it.
_LARGEST_ID = 1 << 24
# What content of another shape than the format's raises where it is taken apart.
_DAMAGE = (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError)

# The alternatives of patterns that real models use and for which `seams` is shown to hold: no look-behind, and no
# alternative matches a letter together with white space that follows it. A pattern made of others is run whole.
_CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
_NOT_LINE_END = r"[^\r\n\p{L}\p{N}]?"
_KNOWN_ALTERNATIVES = frozenset(
    {
        *_CONTRACTIONS.split("|"),
        "'(?:[sdmt]|ll|ve|re)",
        f"(?i:{_CONTRACTIONS})",
        r" ?\p{L}+",
        r" ?\p{N}+",
        r"\p{N}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        _NOT_LINE_END + r"\p{L}+",
        _NOT_LINE_END + r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:" + _CONTRACTIONS + ")?",
        _NOT_LINE_END + r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:" + _CONTRACTIONS + ")?",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    }
)
# The pattern of GPT-2, written so that a class of digits can be put in.
_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretokenization:
    """How text falls into pieces before merging.

    `pattern` is one Rust regular expression. `digits_alone`: each digit is a piece, and white space before a digit
    stays whole. `newlines_end_runs`: white space up to the last line end of a run is a piece (`\\s*[\\r\\n]+`).
    `is_known`: every alternative is one that `seams` and `runs` were reasoned out for.
    """

    pattern: str
    digits_alone: bool
    newlines_end_runs: bool
    is_known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A byte-level BPE: `ranks` of tiktoken by bytes, `id_of_rank` int32 [R] (NO_ID for a byte without a token),
    `bytes_of_id` [vocabulary], `merges` in the file's order, `added_tokens` by content, and the pre-tokenization."""

    ranks: dict[bytes, int] = field(repr=False)
    id_of_rank: Int32s = field(repr=False)
    bytes_of_id: tuple[bytes, ...] = field(repr=False)
    merges: tuple[tuple[str, str], ...] = field(repr=False)
    added_tokens: dict[str, int] = field(repr=False)
    ignore_merges: bool
    pretokenization: Pretokenization


def _byte_alphabet() -> dict[int, str]:
    # GPT-2's byte alphabet (openai/gpt-2, encoder.py): printable Latin-1 bytes stand for themselves, the others
    # for U+0100 and on, in order.
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return {byte: chr(byte if byte in printable else next(others)) for byte in range(NUM_BYTES)}


BYTE_ALPHABET = _byte_alphabet()
_BYTE_OF_CHAR: dict[int, int] = {ord(char): byte for byte, char in BYTE_ALPHABET.items()}
# Latin-1 characters outside the alphabet must not pass for the bytes of the same number.
_TO_LATIN1 = {**{code: 0xFFFF for code in range(0x100) if code not in _BYTE_OF_CHAR}, **_BYTE_OF_CHAR}


def unsupported(name: str, what: str) -> ModelError:
    """The one message for tokenizers that are refused: subject, cause, next action."""
    return ModelError(
        f"{name}: {what} is not supported; use a model with a byte-level BPE tokenizer, others come later"
    )


def _damaged(name: str, error: Exception) -> ModelError:
    return ModelError(f"{name}: not a tokenizer.json ({type(error).__name__}: {error}); pull the model again")


def bytes_of(token: str) -> bytes:
    """The bytes that a token of the byte alphabet stands for. Raises `ValueError` for other characters."""
    return token.translate(_TO_LATIN1).encode("latin-1")


def parse(raw: bytes, name: str) -> dict[str, Any]:
    """The JSON of a `tokenizer.json`. Raises `ModelError` where it is damaged."""
    try:
        content = json.loads(raw)
        content["model"]["type"]
    except _DAMAGE as error:
        raise _damaged(name, error) from error
    parsed: dict[str, Any] = content
    return parsed


def convert(content: dict[str, Any], name: str, more_digits: str = "") -> Table:
    """A parsed `tokenizer.json` as a table. Raises `ModelError` naming the first thing that is damaged or unsupported.

    `more_digits` are characters that the `tokenizers` library takes for digits and tiktoken's patterns do not (the
    two carry different versions of Unicode).
    """
    try:
        return _convert(content, name, more_digits)
    except _DAMAGE as error:
        raise _damaged(name, error) from error


def _convert(content: dict[str, Any], name: str, more_digits: str) -> Table:
    model = content["model"]
    _check_model(model, name)
    if content.get("normalizer") not in (None, {"type": "Sequence", "normalizers": []}):
        raise unsupported(name, f"the normalizer {content['normalizer'].get('type')}")
    pretokenization = _pretokenization(content.get("pre_tokenizer"), name, more_digits)
    merges = _merges(model["merges"])
    vocabulary: dict[str, int] = model["vocab"]
    added = {token["content"]: token["id"] for token in content.get("added_tokens") or ()}
    _check_ids(vocabulary | added, name)
    ranks, id_of_rank = _rank(merges, vocabulary, name)
    return Table(
        ranks=ranks,
        id_of_rank=id_of_rank,
        bytes_of_id=_bytes_of_ids(vocabulary, added, ranks, id_of_rank),
        merges=merges,
        added_tokens=added,
        ignore_merges=bool(model.get("ignore_merges")),
        pretokenization=pretokenization,
    )


def isolates_digits(content: dict[str, Any]) -> bool:
    """Whether the pre-tokenization has a step that knows digits, so that `more_digits` matter."""
    return '"Digits"' in json.dumps(content.get("pre_tokenizer"))


def _check_model(model: dict[str, Any], name: str) -> None:
    if model["type"] != "BPE":
        raise unsupported(name, f"the tokenizer model {model['type']}")
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(option):
            raise unsupported(name, f"BPE with {option}={model[option]!r}")


def _check_ids(ids: dict[str, int], name: str) -> None:
    for token, token_id in ids.items():
        if type(token_id) is not int or not 0 <= token_id < _LARGEST_ID:
            raise _damaged(name, ValueError(f"{token!r} has the id {token_id!r}"))


def _merges(listed: Sequence[str | list[str]]) -> tuple[tuple[str, str], ...]:
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in listed)
    return tuple((left, right) for left, right in pairs)


def _pretokenization(step: dict[str, Any] | None, name: str, more_digits: str) -> Pretokenization:
    steps = [] if step is None else step["pretokenizers"] if step["type"] == "Sequence" else [step]
    kinds = [step["type"] for step in steps]
    if not kinds or kinds[-1] != "ByteLevel":
        raise unsupported(name, f"the pre-tokenizer {' then '.join(kinds) or 'null'}")
    if steps[-1].get("add_prefix_space", True):
        raise unsupported(name, "ByteLevel with add_prefix_space")
    own_pattern = steps[-1].get("use_regex", True)
    if kinds == ["ByteLevel"] and own_pattern:
        return _known(_GPT2)
    if kinds == ["Digits", "ByteLevel"] and own_pattern and steps[0]["individual_digits"]:
        return _digits_alone(more_digits)
    if kinds == ["Split", "ByteLevel"] and not own_pattern:
        return _known(_split_pattern(steps[0], name))
    raise unsupported(name, f"the pre-tokenizer {' then '.join(kinds)} with these options")


def _digits_alone(more_digits: str) -> Pretokenization:
    # The original cuts every digit out first and runs GPT-2's pattern on what is left, so for that pattern white
    # space before a digit ends the text and stays whole: hence the extra alternative.
    digit = r"\p{N}" + "".join(f"\\u{{{ord(char):x}}}" for char in more_digits)
    pattern = rf"'(?:[sdmt]|ll|ve|re)| ?\p{{L}}+|[{digit}]| ?[^\s\p{{L}}{digit}]+|\s+(?=[{digit}])|\s+(?!\S)|\s+"
    return Pretokenization(pattern=pattern, digits_alone=True, newlines_end_runs=False, is_known=True)


def _split_pattern(step: dict[str, Any], name: str) -> str:
    pattern = step["pattern"].get("Regex")
    if pattern is None or step["behavior"] not in ("Isolated", "isolated") or step.get("invert"):
        raise unsupported(name, f"the pre-tokenizer Split with behavior {step['behavior']}, or without a Regex")
    return str(pattern)


def _known(pattern: str) -> Pretokenization:
    alternatives = _alternatives(pattern)
    tail = alternatives[-3:]
    has_line_ends = tail == [r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"]
    ends_well = has_line_ends or (tail[1:] == [r"\s+(?!\S)", r"\s+"] and r"\s*[\r\n]+" not in alternatives)
    is_known = ends_well and _KNOWN_ALTERNATIVES.issuperset(alternatives)
    return Pretokenization(pattern=pattern, digits_alone=False, newlines_end_runs=has_line_ends, is_known=is_known)


def _alternatives(pattern: str) -> list[str]:
    """Cut a pattern at the bars outside any parenthesis. Good enough to recognise the known ones, and no others."""
    found, depth = [""], 0
    for char in pattern:
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "|" and depth == 0:
            found.append("")
        else:
            found[-1] += char
    return found


def _rank(
    merges: tuple[tuple[str, str], ...], vocabulary: dict[str, int], name: str
) -> tuple[dict[bytes, int], Int32s]:
    """Ranks as tiktoken wants them (one number is rank and id): the bytes, then merge results in their order."""
    ranks = {bytes([byte]): byte for byte in range(NUM_BYTES)}
    ids = [vocabulary.get(BYTE_ALPHABET[byte], NO_ID) for byte in range(NUM_BYTES)]
    previous = ""
    for left, right in merges:
        token = left + right
        if token == previous:  # several merges may make one token (tokenizers converted from tiktoken list them all)
            continue
        previous = token
        try:
            key, token_id = bytes_of(token), vocabulary[token]
        except (ValueError, KeyError) as error:
            raise unsupported(name, f"a merge that makes {token!r}, which is no byte-level entry,") from error
        if ranks.setdefault(key, len(ranks)) != len(ids):
            raise unsupported(name, f"a list of merges that comes back to {token!r}")
        ids.append(token_id)
    return ranks, np.array(ids, dtype=np.int32)


def _bytes_of_ids(
    vocabulary: dict[str, int], added: dict[str, int], ranks: dict[bytes, int], id_of_rank: Int32s
) -> tuple[bytes, ...]:
    # Entries that text can become come last and from the ranks; all others (control tokens, entries that no merge
    # makes) stand for their own characters.
    table = [b""] * (1 + max((*vocabulary.values(), *added.values()), default=-1))
    for token, token_id in (*vocabulary.items(), *added.items()):
        table[token_id] = token.encode("utf-8")
    for key, rank in ranks.items():
        if id_of_rank[rank] != NO_ID:
            table[id_of_rank[rank]] = key
    return tuple(table)
