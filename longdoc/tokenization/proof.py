"""Proves, once per tokenizer and pair of library versions, that longdoc encodes as the model's own tokenizer does.

The model's own is the `tokenizers` library on the same `tokenizer.json` without its control tokens. Owns that oracle,
the proof, and the verdict that is kept so that later loads skip both. What longdoc leaves out (see `tokenizer_file`) is
held against the whole file too: text that a normalizer leaves alone must get the same ids with it and without it.

Why the merges are equal, and not only on the strings tried: tiktoken joins any neighbours whose bytes are an entry,
the file lists pairs. Where every merge is made of earlier entries, both work through the ranks upwards, and inside
the bytes of an entry T, as long as no merge crossed its edges, text evolves as T alone does. So if T alone becomes T
by listed merges, no other pair can ever stand where T could be made. The same holds where all pairs are listed.
"""

import contextlib
import functools
import json
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import tiktoken
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import Digits, WhitespaceSplit

from longdoc.errors import DocumentError
from longdoc.files import cache_folder, replace_file
from longdoc.records import fingerprint
from longdoc.tokenization.convert import BYTE_ALPHABET, NUM_BYTES, NotOneTable, Table, bytes_of
from longdoc.tokenization.encoders import Encoder
from longdoc.tokenization.library_encoder import library
from longdoc.tokenization.runs import LONGEST_RUN
from longdoc.tokenization.table_encoder import TableEncoder
from longdoc.tokenization.tokenizer_file import TokenizerFile, unsupported
from longdoc.tokenization.unicode_form import num_changed

_PROOF_VERSION = "3"
# No digit was ever assigned beyond plane 1, and looking at all planes takes eight times as long.
_LAST_PLANE_WITH_DIGITS = 0x20000

# Atoms of the mixture: everything the three pre-tokenizations treat apart, and what has gone wrong for others.
_ATOMS = (
    *(" ", "  ", "   ", "\n", "\n\n", "\r\n", "\r", "\t", "\v", "\f", "\x00", "\x1f", "\x7f", "\x85", "\xa0", "\u2028"),
    *("a", "b", "Word", "the", "The", "HELLO", "camelCase", "x_y", "é", "e\u0301", "ß", "ſ", "İ", "я", "中文", "。"),
    *("0", "1", "42", "1234567", "²", "Ⅷ", "٣", "१२", "½", "𝟘", "'s", "'S", "'ſ", "'ll", "'LL", "'", "’s", "n't"),
    *(".", ",", "...", "!", "--", "_", "/", "//", "\\", "{", "}", "();", "==", "#", "$", "`", "<|", "|>", "[INST]"),
    *(
        "😀",
        "👩‍👩‍👧‍👦",
        "🇩🇪",
        "👍🏽",
        "\u200b",
        "\u200d",
        "\ufeff",
        "\ufffd",
        "\u3000",
        "\u0e33",
        "한국어",
        "ﬁ",
        "\U000e0001",
    ),
)
_AWKWARD = (
    "",
    "a  1   2\n 3\t4 \n\n5",
    "  leading and trailing  ",
    "tabs\tand\t\tmore\r\nline\r\n\r\nends \r\n  x",
    "def f(x):\n    return x[1:] + 0x1F  # 100%\n\n\n\nclass A:\n\tpass\n",
    "It's 'tis I'LL don't we’ve y'all're",
    "!\n\n\n/\n?  \n\n  .\r\n",
    "antidisestablishmentarianism" * 40,
    "=" * 600 + " " * 700 + "x" + "ab" * 400 + "\n" * 300 + "9" * 50,
    "日本語の長い文章で、空白がありません。" * 20,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the proof leaves behind: the tokens a model wants around a document, and who encodes.

    `not_tiktoken` says why the `tokenizers` library does, '' where tiktoken does; see `convert` for the digits.
    """

    prefix_token_ids: tuple[int, ...]
    suffix_token_ids: tuple[int, ...]
    more_digits: str
    not_tiktoken: str


class Oracle:
    """The `tokenizers` library on a tokenizer.json without control tokens: as the file says, and as longdoc runs it."""

    def __init__(self, file: TokenizerFile) -> None:
        self._file = file
        self._post_processor: Any = None

    @functools.cached_property
    def _tokenizer(self) -> Tokenizer:
        tokenizer = library(self._file.plain, self._file.name)
        self._post_processor = tokenizer.post_processor
        # It comes back for `around` alone: some processors change a text even where no special tokens are asked for.
        tokenizer.post_processor = None
        return tokenizer

    @functools.cached_property
    def _own(self) -> Tokenizer:
        if not self._file.policy:
            return self._tokenizer
        return library(self._file.own | {"post_processor": None}, self._file.name)

    def encode(self, text: str) -> list[int]:
        """The ids of ordinary text, without what longdoc leaves out."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def is_own(self, text: str) -> bool:
        """Whether the whole file encodes a text alike, given the space that it puts before one itself."""
        if not text or self._own is self._tokenizer or num_changed(text, self._file.unicode_form):
            return True
        file = self._file
        with_space = file.drops_prefix and not (file.keeps_first_space and text.startswith(" "))
        own = self._own.encode(text, add_special_tokens=False).ids
        return bool(own == self.encode(" " + text if with_space else text))

    def around(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What the post-processor puts before and after a document."""
        bare = self.encode("a")
        self._tokenizer.post_processor = self._post_processor
        whole = list(self._tokenizer.encode("a").ids)
        self._tokenizer.post_processor = None
        for start in range(len(whole)):
            if whole[start : start + len(bare)] == bare:
                return tuple(whole[:start]), tuple(whole[start + len(bare) :])
        why = "only tokens before and after a document are understood"
        raise unsupported(self._file.name, "a post-processor that does more", why)

    def merges_into(self, tokens: list[str]) -> list[list[int]]:
        """The ids of each token, taken as one piece and merged by the listed pairs alone."""
        model = self._tokenizer.model
        shortcut, model.ignore_merges = model.ignore_merges, False
        merging = Tokenizer(model)
        # No character of the byte alphabet is white space, so each token is one piece.
        merging.pre_tokenizer = WhitespaceSplit()
        encoded = merging.encode(" ".join(tokens), add_special_tokens=False)
        model.ignore_merges = shortcut
        found: list[list[int]] = [[] for _ in tokens]
        for word, token_id in zip(encoded.word_ids, encoded.ids, strict=True):
            assert word is not None, "only tokens around a text belong to no word"
            found[word].append(token_id)
        return found


def more_digits() -> str:
    """Characters that `Digits` isolates and `\\p{N}` of tiktoken's patterns does not know yet."""
    # With a pattern that matches digits only, tiktoken drops everything else: what comes back are the digits it knows.
    probe = tiktoken.Encoding(
        "digits", pat_str=r"\p{N}", mergeable_ranks={bytes([b]): b for b in range(NUM_BYTES)}, special_tokens={}
    )
    text = "".join(map(chr, (*range(0xD800), *range(0xE000, _LAST_PLANE_WITH_DIGITS))))
    known = set(bytes(probe.encode_ordinary(text)).decode())
    isolate = Digits(individual_digits=True)
    pieces = isolate.pre_tokenize_str("".join(char for char in text if char not in known))
    alone = (piece for piece, _ in pieces if len(piece) == 1)
    return "".join(char for char in alone if len(isolate.pre_tokenize_str(char * 2)) == 2)


def prove(file: TokenizerFile, encoder: Encoder, oracle: Oracle) -> None:
    """Raise `NotOneTable` unless an encoder gives what the oracle gives.

    Raises `ModelError` where ids do not stand for their text, or the oracle is not the model's own.
    """
    missing = set(encoder.missing_bytes)
    for text in _battery(file):
        # The original drops bytes that it has no token for; longdoc refuses such text, so there is nothing to compare.
        if not missing.intersection(text.encode("utf-8")):
            _prove_text(text, file, encoder, oracle)


def prove_batches(file: TokenizerFile, encoder: TableEncoder) -> None:
    """Raise `NotOneTable` unless texts that are encoded together get the ids that each gets by itself."""
    texts = _battery(file)
    ids, counts = encoder.encode_batch([text.encode() for text in texts], LONGEST_RUN)
    start = 0
    for text, count in zip(texts, counts, strict=True):
        some, start = ids[start : start + (count or 0)], start + (count or 0)
        if count is not None and some.tolist() != encoder.encode(text, LONGEST_RUN).tolist():
            raise NotOneTable(f"a tokenizer that encodes {text[:60]!r} differently among other texts")


def _battery(file: TokenizerFile) -> tuple[str, ...]:
    return (*_AWKWARD, *file.control_tokens, " ".join(file.control_tokens), *_mixtures(file))


def _prove_text(text: str, file: TokenizerFile, encoder: Encoder, oracle: Oracle) -> None:
    shown = repr(text[:60])
    try:
        ids = encoder.encode(text, LONGEST_RUN).tolist()
    except DocumentError:  # a pattern engine gave up, on a text that no document is to blame for
        ids = None
    is_comparable = not encoder.num_apart(text)
    if ids is None or (is_comparable and ids != oracle.encode(text)):
        raise NotOneTable(f"a tokenizer whose {encoder.backend} form encodes {shown} differently")
    if b"".join(encoder.bytes_of_id[token_id] for token_id in ids) != text.encode("utf-8"):
        raise unsupported(file.name, f"a tokenizer whose ids for {shown} stand for another text", "it loses bytes")
    if is_comparable and not oracle.is_own(text):
        what = f"a tokenizer that encodes {shown} otherwise without the parts that longdoc leaves out"
        raise unsupported(file.name, what, "ids would not be the model's own")


def prove_merges(file: TokenizerFile, table: Table, oracle: Oracle) -> None:
    """Raise `NotOneTable` unless tiktoken, which knows no pairs, merges as the file's list of pairs does."""
    ids = table.id_of_rank.tolist()
    tokens = list(dict.fromkeys(left + right for left, right in table.merges))
    merged = oracle.merges_into(tokens)
    unreached = [token for token, found, own in zip(tokens, merged, ids[NUM_BYTES:], strict=True) if found != [own]]
    if unreached and not table.ignore_merges:
        raise NotOneTable(f"a vocabulary whose entry {unreached[0]!r} does not encode to itself")
    if (unreached or not _parts_come_first(table)) and (odd := _unlisted_split(table)):
        raise NotOneTable(f"a list of merges that makes {odd!r} by some of its pairs only")
    if table.ignore_merges and len(tokens) + NUM_BYTES < len(set(table.bytes_of_id) - _added_bytes(file)):
        raise NotOneTable("ignore_merges with entries that no merge makes")


def _added_bytes(file: TokenizerFile) -> set[bytes]:
    return {content.encode("utf-8") for content in (*file.control_tokens, *file.text_tokens)} | {b""}


def _parts_come_first(table: Table) -> bool:
    rank_of = {BYTE_ALPHABET[byte]: byte for byte in range(NUM_BYTES)}
    for left, right in table.merges:
        if left not in rank_of or right not in rank_of:
            return False
        rank_of.setdefault(left + right, len(rank_of))
    return True


def _unlisted_split(table: Table) -> str | None:
    """An entry that could be joined from two entries by a pair that is not listed; None where there is none."""
    listed = {(bytes_of(left), bytes_of(right)) for left, right in table.merges}
    for token in dict.fromkeys(left + right for left, right in table.merges):
        whole = bytes_of(token)
        for at in range(1, len(whole)):
            pair = whole[:at], whole[at:]
            if pair not in listed and all(part in table.ranks for part in pair):
                return token
    return None


def _mixtures(file: TokenizerFile) -> list[str]:
    """120 random strings of 60 atoms, the same every time, and a few of those that the normalizer leaves alone."""
    rng = np.random.default_rng(20_240_229)
    whole = ["".join(_ATOMS[at] for at in rng.integers(len(_ATOMS), size=60)) for _ in range(120)]
    if file.unicode_form is None:
        return whole
    alone = [atom for atom in _ATOMS if not num_changed("a" + atom, file.unicode_form)]
    return whole + ["".join(alone[at] for at in rng.integers(len(alone), size=60)) for _ in range(120)]


def read_verdict(sha256: str) -> Verdict | None:
    """The verdict of an earlier proof by this code with these libraries; None where there is none that can be read."""
    try:
        stored = json.loads(_verdict_path(sha256).read_text("utf-8"))
        verdict = Verdict(
            prefix_token_ids=tuple(int(token) for token in stored["prefix_token_ids"]),
            suffix_token_ids=tuple(int(token) for token in stored["suffix_token_ids"]),
            more_digits=str(stored["more_digits"]),
            not_tiktoken=str(stored["not_tiktoken"]),
        )
        return verdict if stored["check"] == _check(verdict) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_verdict(sha256: str, verdict: Verdict) -> None:
    """Keep a verdict. Where the cache cannot be written the next load proves again, which costs time and no more."""
    content = json.dumps({**asdict(verdict), "check": _check(verdict)}).encode("utf-8")
    with contextlib.suppress(OSError):
        replace_file(_verdict_path(sha256), content)


def _check(verdict: Verdict) -> str:
    return fingerprint((name, repr(value)) for name, value in asdict(verdict).items())


def _verdict_path(sha256: str) -> Path:
    versions = fingerprint((("proof", _PROOF_VERSION), *((lib, version(lib)) for lib in ("tiktoken", "tokenizers"))))
    return cache_folder() / "tokenizers" / f"{sha256}-{versions[:16]}.json"
