"""Encodes with the `tokenizers` library what tiktoken cannot: SentencePiece's models, several steps before the merges.

Owns what each token stands for: U+2581 is a space, `<0xNN>` a byte, and under ByteLevel each character a byte. Where a
token would stand for something else than the text, it is kept from being made: a literal U+2581 is written by the
tokens of its bytes, and a word such as `<0x41>` or `<s>`, where the model would make one token of it, by those of its
characters. Refuses a vocabulary that has not a token for every byte.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from longdoc.errors import ModelError
from longdoc.records import Int32s
from longdoc.tokenization.convert import BYTE_ALPHABET, NO_ID, NUM_BYTES, bytes_of, merges_of
from longdoc.tokenization.encoders import byte_without_token, or_document_error
from longdoc.tokenization.seams import may_cross
from longdoc.tokenization.tokenizer_file import (
    DAMAGE,
    ESCAPED_SPACE,
    TokenizerFile,
    damaged,
    unsupported,
    vocabulary_of,
)

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
# Bytes that no text in UTF-8 holds.
_NEVER_IN_UTF8 = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})
# Spaces and what follows them: where no merge goes from another character into a space, each such piece is merged by
# itself, and the library remembers pieces that it has seen.
_WORDS: dict[str, Any] = {
    "type": "Split",
    "pattern": {"Regex": f"{ESCAPED_SPACE}*[^{ESCAPED_SPACE}]+|{ESCAPED_SPACE}+"},
    "behavior": "Isolated",
    "invert": False,
}


class LibraryEncoder:
    """An `Encoder` behind which the `tokenizers` library works. Raises `ModelError` for what loses bytes."""

    backend = "tokenizers"

    def __init__(self, file: TokenizerFile) -> None:
        try:
            self._entries = vocabulary_of(file.plain["model"])
            self.bytes_of_id = _bytes_of_ids(file, self._entries)
            self._byte_ids = _byte_ids(file, self._entries)
            products = _products(file)
            self._apart = _apart(file, self._entries, products)
            self.can_be_cut = _no_merge_crosses(file, products)
            steps = _by_words(file) if self.can_be_cut else file.plain["pre_tokenizer"]
        except DAMAGE as error:
            raise damaged(file.name, error) from error
        self._tokenizer = library(file.plain | {"pre_tokenizer": steps, "post_processor": None}, file.name)
        missing = (byte for byte in range(NUM_BYTES) if self._byte_ids[byte] == NO_ID)
        self.missing_bytes = bytes(missing) if file.kind == "byte-level" else b""

    def encode(self, text: str, longest_run: int) -> Int32s:
        """See `Encoder`. Runs of white space are not cut: what the library cannot encode is an error."""
        raw = text.encode("utf-8")
        if self.missing_bytes and (lacking := set(self.missing_bytes).intersection(raw)):
            raise byte_without_token(min(lacking))
        parts = [np.array(ids, dtype=np.int32) for ids in self._parts(text)]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)

    def num_apart(self, text: str) -> int:
        """See `Encoder`."""
        return 0 if self._apart is None else sum(1 for _ in self._apart.finditer(text))

    def _parts(self, text: str) -> Iterator[list[int]]:
        done = 0
        for found in self._apart.finditer(text) if self._apart is not None else ():
            yield self._encode(text[done : found.start()])
            yield self._encode_apart(found.group())
            done = found.end()
        yield self._encode(text[done:])

    def _encode_apart(self, word: str) -> list[int]:
        if word == ESCAPED_SPACE:
            return [self._byte_ids[byte] for byte in word.encode("utf-8")]
        return [token_id for char in word for token_id in self._encode(char)]

    def _encode(self, text: str) -> list[int]:
        if not text:
            return []
        encoded = or_document_error(lambda: self._tokenizer.encode_batch_fast([text], add_special_tokens=False))
        return list(encoded[0].ids)


def library(content: dict[str, Any], name: str) -> Tokenizer:
    """The `tokenizers` library on the content of a `tokenizer.json`. Raises `ModelError` where it refuses that."""
    try:
        return Tokenizer.from_str(json.dumps(content))
    except Exception as error:  # the library raises nothing narrower
        raise ModelError(f"{name}: the tokenizers library refuses it ({error}); pull the model again") from error


def _bytes_of_ids(file: TokenizerFile, entries: dict[str, int]) -> tuple[bytes, ...]:
    """What each id stands for; control tokens stand for their own characters."""
    table = [b""] * (1 + max((*entries.values(), *file.control_tokens.values()), default=-1))
    for token, token_id in entries.items():
        table[token_id] = _bytes_of(token, file)
    for token, token_id in file.control_tokens.items():
        if not _BYTE_TOKEN.fullmatch(token):  # some files list the tokens of bytes among the added ones
            table[token_id] = token.encode("utf-8")
    return tuple(table)


def _bytes_of(token: str, file: TokenizerFile) -> bytes:
    if token in file.text_tokens:
        return token.replace(ESCAPED_SPACE, " ").encode("utf-8")
    if file.kind == "byte-level":
        try:
            return bytes_of(token)
        except ValueError:  # an entry that no text becomes
            return token.encode("utf-8")
    if found := _BYTE_TOKEN.fullmatch(token):
        return bytes([int(found.group(1), 16)])
    return (token.replace(ESCAPED_SPACE, " ") if file.escapes_space else token).encode("utf-8")


def _byte_ids(file: TokenizerFile, entries: dict[str, int]) -> list[int]:
    """The token of each byte, NO_ID where there is none. Raises `ModelError` where text could not be written."""
    if file.kind == "byte-level":
        return [entries.get(BYTE_ALPHABET[byte], NO_ID) for byte in range(NUM_BYTES)]
    model = file.plain["model"]
    if not model.get("byte_fallback"):
        what = f"a {model['type']} tokenizer without byte_fallback"
        raise unsupported(file.name, what, "characters that it does not know become one and the same token")
    ids = [entries.get(f"<0x{byte:02X}>", NO_ID) for byte in range(NUM_BYTES)]
    for byte in range(0x80):
        if ids[byte] == NO_ID:  # Gemma has a tab of its own in the place of the byte
            ids[byte] = entries.get(chr(byte), NO_ID)
    if file.escapes_space:
        ids[ord(" ")] = entries.get(ESCAPED_SPACE, NO_ID)
    for byte, token_id in enumerate(ids):
        if token_id == NO_ID and byte not in _NEVER_IN_UTF8:
            raise unsupported(
                file.name, f"byte_fallback without a token for the byte 0x{byte:02x}", "text would be lost"
            )
    return ids


def _products(file: TokenizerFile) -> frozenset[str]:
    """All that merges make. Raises `ModelError` where they start from tokens of bytes."""
    if file.plain["model"]["type"] != "BPE":
        return frozenset()
    pairs = merges_of(file.plain["model"])
    if file.kind == "sentencepiece":
        for left, right in pairs:
            if _BYTE_TOKEN.fullmatch(left) or _BYTE_TOKEN.fullmatch(right):
                why = "what becomes of a byte would depend on its neighbours"
                raise unsupported(file.name, f"a merge of {left!r} and {right!r}", why)
    return frozenset(left + right for left, right in pairs)


def _apart(file: TokenizerFile, entries: dict[str, int], products: frozenset[str]) -> re.Pattern[str] | None:
    """Text that would become a token which stands for something else."""
    model = file.plain["model"]
    can_become = products if model["type"] == "BPE" and not model.get("ignore_merges") else frozenset(entries)
    is_bytes = file.kind == "byte-level"
    written = {_in_alphabet(token) if is_bytes else token: token for token in file.special_tokens}
    wrong = {written[token] for token in can_become if token in written}
    if not is_bytes:
        wrong |= {token for token in can_become if _BYTE_TOKEN.fullmatch(token)}
    if file.escapes_space:
        wrong = {token for token in wrong if ESCAPED_SPACE not in token} | {ESCAPED_SPACE}
    return re.compile("|".join(map(re.escape, sorted(wrong, key=len, reverse=True)))) if wrong else None


def _in_alphabet(token: str) -> str:
    return "".join(BYTE_ALPHABET[byte] for byte in token.encode("utf-8"))


def _no_merge_crosses(file: TokenizerFile, products: frozenset[str]) -> bool:
    """Whether no merge goes from another character into a space, nor over any seam: then text may be cut there.

    A merge looks at its two neighbours only. Where none is listed across a place, what stands on both sides of it is
    merged as if it stood alone.
    """
    model, step = file.plain["model"], file.plain["pre_tokenizer"]
    if not (file.escapes_space and model["type"] == "BPE") or model.get("ignore_merges"):
        return False
    # Once spaces are written U+2581, a split at spaces splits nothing; Metaspace may split before each of them.
    known = step is None or step["type"] == "Metaspace" or step.get("pattern") == {"String": " "}
    return known and not any(
        re.search(f"[^{ESCAPED_SPACE}]{ESCAPED_SPACE}", token) or may_cross(token.replace(ESCAPED_SPACE, " "))
        for token in products
    )


def _by_words(file: TokenizerFile) -> dict[str, Any]:
    """A pre-tokenizer that gives the same ids sooner, where no merge crosses from a word into the next."""
    step = file.plain["pre_tokenizer"]
    if step is None or step["type"] == "Split":
        return _WORDS
    return {"type": "Sequence", "pretokenizers": [step, _WORDS]}
