"""The vocabulary of a model: text to token ids exactly as the model's own tokenizer would, and back to bytes.

Owns loading (once per process and file) and the tiktoken encodings behind it. Refuses, through `convert` and `proof`,
tokenizers that it cannot match. Control tokens written out in a text are ordinary text here, always.
"""

import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import tiktoken

from longdoc.errors import DocumentError, ModelError
from longdoc.records import Int32s, display
from longdoc.tokenization.convert import (
    NO_ID,
    NUM_BYTES,
    Pretokenization,
    Table,
    convert,
    isolates_digits,
    parse,
    unsupported,
)
from longdoc.tokenization.proof import Oracle, Verdict, more_digits, prove, read_verdict, write_verdict
from longdoc.tokenization.runs import LONGEST_RUN, cut_runs

# tiktoken's quick path into numpy looks for control tokens; with none at all it would look at every character.
_NEVER_ALLOWED = "<|no control token is ever allowed|>"
_ONE_PIECE = r"[\s\S]+"


class Vocabulary:
    """Byte-level BPE of one model.

    `sha256` is that of tokenizer.json, `vocab_size` one more than its largest id, `token_num_bytes` int32 [vocab_size]
    the bytes each id stands for. `prefix_token_ids` and `suffix_token_ids` are what the model wants once around a
    document. `missing_bytes` have no token: text that holds one cannot be encoded without losing it.
    `can_be_cut`: text may be cut at the seams of `seams.cut`.
    """

    def __init__(self, table: Table, sha256: str, verdict: Verdict) -> None:
        self.sha256 = sha256
        self.prefix_token_ids = verdict.prefix_token_ids
        self.suffix_token_ids = verdict.suffix_token_ids
        self.pretokenization: Pretokenization = table.pretokenization
        self.vocab_size = len(table.bytes_of_id)
        self.token_num_bytes: Int32s = np.fromiter(map(len, table.bytes_of_id), dtype=np.int32)
        self.missing_bytes = bytes(byte for byte in range(NUM_BYTES) if table.id_of_rank[byte] == NO_ID)
        self._bytes_of_id = list(table.bytes_of_id)
        self._id_of_rank = table.id_of_rank
        self._ranks = table.ranks
        self._pieces = self._encoding(table.pretokenization.pattern)

    @classmethod
    def load(cls, folder: Path) -> "Vocabulary":
        """The vocabulary of a model's folder, from its `tokenizer.json`; the same object while the file is the same.

        Raises `ModelError` where there is no such file, or it holds a tokenizer that longdoc does not support.
        """
        path = folder.resolve() / "tokenizer.json"
        try:
            facts = path.stat()
        except OSError as error:
            shown = display(str(folder))
            raise ModelError(f"{shown}: no tokenizer.json in this model's folder; pull the model again") from error
        return _load(path, facts.st_mtime_ns, facts.st_size)

    @property
    def can_be_cut(self) -> bool:
        """Whether pieces cut at seams are known to encode as the whole does."""
        return self.pretokenization.is_known

    def encode(self, text: str, longest_run: int = LONGEST_RUN) -> Int32s:
        """Token ids, int32 [N], of ordinary text. Runs of white space over `longest_run` are merged by themselves.

        Raises `DocumentError` where a byte of the text has no token, and `UnicodeEncodeError` for lone surrogates.
        """
        if len(text) <= longest_run:
            return self._encode(self._pieces, text)
        parts = cut_runs(text, self.pretokenization, longest_run)
        return np.concatenate([self._encode(self._whole if whole else self._pieces, part) for whole, part in parts])

    def decode(self, token_ids: Iterable[int]) -> bytes:
        """The bytes that token ids stand for. Raises `IndexError` for an id outside the vocabulary."""
        ids = token_ids.tolist() if isinstance(token_ids, np.ndarray) else list(token_ids)
        if ids and min(ids) < 0:
            raise IndexError(f"token id {min(ids)} is negative")
        return b"".join(map(self._bytes_of_id.__getitem__, ids))

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token stands for."""
        return self.decode([token_id])

    @functools.cached_property
    def _whole(self) -> tiktoken.Encoding:
        return self._encoding(_ONE_PIECE)

    def _encoding(self, pattern: str) -> tiktoken.Encoding:
        special = {_NEVER_ALLOWED: len(self._ranks)}
        return tiktoken.Encoding(self.sha256, pat_str=pattern, mergeable_ranks=self._ranks, special_tokens=special)

    def _encode(self, encoding: tiktoken.Encoding, text: str) -> Int32s:
        text.encode("utf-8")  # tiktoken would replace a lone surrogate and say nothing
        try:
            ranks = encoding.encode_to_numpy(text, disallowed_special=())
        except BaseException as error:
            # Some versions raise ValueError, others panic; the class of a panic is no Exception and cannot be imported.
            if not isinstance(error, ValueError) and type(error).__name__ != "PanicException":
                raise
            raise DocumentError(
                "the tokenizer's pattern engine gave up on this text, most often for a very long run of white space; "
                "leave it out or use another model",
                stage="encode",
                reason="tokenizer_panic",
            ) from error
        ids = self._id_of_rank[ranks]
        if self.missing_bytes and (ids == NO_ID).any():
            byte = int(ranks[ids == NO_ID][0])
            raise DocumentError(
                f"byte 0x{byte:02x} has no token in this model's vocabulary; leave it out or use another model",
                stage="encode",
                reason="byte_without_token",
            )
        return ids


@functools.lru_cache(maxsize=4)
def _load(path: Path, modified_ns: int, num_bytes: int) -> Vocabulary:
    """Load and, unless that was done before, prove. Time and size only tell one version of the file from another."""
    name = display(str(path))
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{name}: cannot be read ({error.strerror or error}); give read access to it") from error
    sha256 = hashlib.sha256(raw).hexdigest()
    content = parse(raw, name)
    verdict = read_verdict(sha256)
    if verdict is not None:
        return _vocabulary(convert(content, name, verdict.more_digits), sha256, verdict, name)
    digits = more_digits() if isolates_digits(content) else ""
    table = convert(content, name, digits)
    oracle = Oracle(content, name)
    prefix, suffix = oracle.around()
    verdict = Verdict(prefix_token_ids=prefix, suffix_token_ids=suffix, more_digits=digits)
    vocabulary = _vocabulary(table, sha256, verdict, name)
    prove(table, oracle, vocabulary.encode, name)
    write_verdict(sha256, verdict)
    return vocabulary


def _vocabulary(table: Table, sha256: str, verdict: Verdict, name: str) -> Vocabulary:
    try:
        return Vocabulary(table, sha256, verdict)
    except ValueError as error:  # tiktoken's pattern engine knows less than that of the tokenizers library
        raise unsupported(name, f"the pre-tokenizer's pattern ({error})") from error
