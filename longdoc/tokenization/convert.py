"""A byte-level BPE as a table that tiktoken can run, where its file comes to one.

Owns ranks, ids and one pattern for the whole pre-tokenization. Says `NotOneTable` to everything but three
pre-tokenizations: ByteLevel (the GPT-2 pattern), Digits (each digit alone) then ByteLevel, Split (a pattern of the
file's own) then ByteLevel; and to added tokens of white space, but for runs of spaces. Those that it leaves are run by
the `tokenizers` library. That the table equals the original is shown in `proof`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from longdoc.records import Int32s
from longdoc.tokenization.tokenizer_file import DAMAGE, TokenizerFile, damaged

NUM_BYTES = 256
# tiktoken wants whole ranks for all bytes; a byte that the vocabulary lacks gets this id, and encoding refuses it.
NO_ID = -1

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
        r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
        _NOT_LINE_END + r"\p{L}+",
        _NOT_LINE_END + r"[\p{L}\p{M}]+",
        *(
            _NOT_LINE_END + case + ending
            for case in (
                r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
                r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            )
            for ending in ("", f"(?i:{_CONTRACTIONS})?")
        ),
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    }
)
_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# White space up to where two spaces stand together: there a token for a run of spaces begins.
_WHITE_UP_TO_RUN = r"(?:[^\S ]| (?! ))+"


class NotOneTable(Exception):
    """tiktoken cannot run this tokenizer; the message says what stands in the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretokenization:
    """How text falls into pieces before merging.

    `pattern` is one Rust regular expression. `digits_alone`: each digit is a piece, and white space before a digit
    stays whole. `newlines_end_runs`: white space up to the last line end of a run is a piece (`\\s*[\\r\\n]+`).
    `is_known`: every alternative is one that `seams` and `runs` were reasoned out for. `longest_spaces`: runs of 2 up
    to so many spaces are pieces before anything else is; 0 where there is no such token.
    """

    pattern: str
    digits_alone: bool
    newlines_end_runs: bool
    is_known: bool
    longest_spaces: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A byte-level BPE: `ranks` of tiktoken by bytes, `id_of_rank` int32 [R] (NO_ID for a byte without a token),
    `bytes_of_id` [vocabulary], `merges` in the file's order, `text_tokens` (runs of spaces, outside the ranks) by their
    bytes, and the pre-tokenization."""

    ranks: dict[bytes, int] = field(repr=False)
    id_of_rank: Int32s = field(repr=False)
    bytes_of_id: tuple[bytes, ...] = field(repr=False)
    merges: tuple[tuple[str, str], ...] = field(repr=False)
    text_tokens: dict[bytes, int] = field(repr=False)
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


def bytes_of(token: str) -> bytes:
    """The bytes that a token of the byte alphabet stands for. Raises `ValueError` for other characters."""
    return token.translate(_TO_LATIN1).encode("latin-1")


def convert(file: TokenizerFile, more_digits: str = "") -> Table:
    """A byte-level BPE as a table. Raises `NotOneTable`, or `ModelError` where the file is damaged.

    `more_digits` are characters that the `tokenizers` library takes for digits and tiktoken's patterns do not (the
    two carry different versions of Unicode).
    """
    try:
        return _convert(file, more_digits)
    except DAMAGE as error:
        raise damaged(file.name, error) from error


def _convert(file: TokenizerFile, more_digits: str) -> Table:
    if file.kind != "byte-level":
        raise NotOneTable("no byte-level BPE")
    model = file.plain["model"]
    pretokenization = _pretokenization(file.plain["pre_tokenizer"], more_digits)
    if file.text_tokens:
        pretokenization = _with_runs_of_spaces(pretokenization, file.text_tokens)
    merges = merges_of(model)
    vocabulary: dict[str, int] = model["vocab"]
    ranks, id_of_rank = _rank(merges, vocabulary)
    return Table(
        ranks=ranks,
        id_of_rank=id_of_rank,
        bytes_of_id=_bytes_of_ids(vocabulary | file.control_tokens, ranks, id_of_rank),
        merges=merges,
        text_tokens={token.encode("ascii"): token_id for token, token_id in file.text_tokens.items()},
        ignore_merges=bool(model.get("ignore_merges")),
        pretokenization=pretokenization,
    )


def isolates_digits(file: TokenizerFile) -> bool:
    """Whether the pre-tokenization has a step that knows digits, so that `more_digits` matter."""
    return '"Digits"' in json.dumps(file.plain["pre_tokenizer"])


def merges_of(model: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """The merges of a BPE in their order. Raises `ValueError` for what is no pair."""
    listed: Sequence[str | list[str]] = model["merges"]
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in listed)
    return tuple((left, right) for left, right in pairs)


def _pretokenization(step: dict[str, Any], more_digits: str) -> Pretokenization:
    steps = step["pretokenizers"] if step["type"] == "Sequence" else [step]
    kinds = [step["type"] for step in steps]
    own_pattern = steps[-1].get("use_regex", True)
    if kinds == ["ByteLevel"] and own_pattern:
        return _known(_GPT2)
    if kinds == ["Digits", "ByteLevel"] and own_pattern and steps[0]["individual_digits"]:
        return _digits_alone(more_digits)
    if kinds == ["Split", "ByteLevel"] and not own_pattern:
        return _known(_split_pattern(steps[0]))
    raise NotOneTable(f"the pre-tokenizer {' then '.join(kinds)} with these options")


def _digits_alone(more_digits: str) -> Pretokenization:
    # The original cuts every digit out first and runs GPT-2's pattern on what is left, so for that pattern white
    # space before a digit ends the text and stays whole: hence the extra alternative.
    digit = r"\p{N}" + "".join(f"\\u{{{ord(char):x}}}" for char in more_digits)
    pattern = rf"'(?:[sdmt]|ll|ve|re)| ?\p{{L}}+|[{digit}]| ?[^\s\p{{L}}{digit}]+|\s+(?=[{digit}])|\s+(?!\S)|\s+"
    return Pretokenization(pattern=pattern, digits_alone=True, newlines_end_runs=False, is_known=True)


def _split_pattern(step: dict[str, Any]) -> str:
    pattern = step["pattern"].get("Regex")
    if pattern is None or step["behavior"] not in ("Isolated", "isolated") or step.get("invert"):
        raise NotOneTable(f"the pre-tokenizer Split with behavior {step['behavior']}, or without a Regex")
    return str(pattern)


def _with_runs_of_spaces(plain: Pretokenization, text_tokens: dict[str, int]) -> Pretokenization:
    """The pattern with tokens for runs of spaces, which the original cuts out of a text before anything else.

    It takes the longest that fits, again and again from the left, and what stands between them is a text of its own.
    So white space before a run ends a text and stays whole, and of a run at most one space is left for what follows.
    """
    longest = max(map(len, text_tokens))
    if set(text_tokens) != {" " * length for length in range(2, longest + 1)} or plain.newlines_end_runs:
        raise NotOneTable("added tokens of white space other than runs of spaces behind a pattern like GPT-2's")
    if not plain.is_known:
        raise NotOneTable("runs of spaces before a pattern that is not known")
    return replace(
        plain,
        pattern=f" {{2,{longest}}}|" + plain.pattern.replace(r"\s+", _WHITE_UP_TO_RUN),
        longest_spaces=longest,
    )


def _known(pattern: str) -> Pretokenization:
    alternatives = alternatives_of(pattern)
    tail = alternatives[-3:]
    has_line_ends = tail == [r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"]
    ends_well = has_line_ends or (tail[1:] == [r"\s+(?!\S)", r"\s+"] and r"\s*[\r\n]+" not in alternatives)
    is_known = ends_well and _KNOWN_ALTERNATIVES.issuperset(alternatives)
    return Pretokenization(pattern=pattern, digits_alone=False, newlines_end_runs=has_line_ends, is_known=is_known)


def alternatives_of(pattern: str) -> list[str]:
    """Cut a pattern at the bars outside any parenthesis. Good enough to recognise the known ones, and no others."""
    found, depth = [""], 0
    for char in pattern:
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "|" and depth == 0:
            found.append("")
        else:
            found[-1] += char
    return found


def _rank(merges: tuple[tuple[str, str], ...], vocabulary: dict[str, int]) -> tuple[dict[bytes, int], Int32s]:
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
            raise NotOneTable(f"a merge that makes {token!r}, which is no byte-level entry,") from error
        if ranks.setdefault(key, len(ranks)) != len(ids):
            raise NotOneTable(f"a list of merges that comes back to {token!r}")
        ids.append(token_id)
    return ranks, np.array(ids, dtype=np.int32)


def _bytes_of_ids(entries: dict[str, int], ranks: dict[bytes, int], id_of_rank: Int32s) -> tuple[bytes, ...]:
    # Entries that text can become come last and from the ranks; all others (control tokens, runs of spaces, entries
    # that no merge makes) stand for their own characters.
    table = [b""] * (1 + max(entries.values(), default=-1))
    for token, token_id in entries.items():
        table[token_id] = token.encode("utf-8")
    for key, rank in ranks.items():
        if id_of_rank[rank] != NO_ID:
            table[id_of_rank[rank]] = key
    return tuple(table)
