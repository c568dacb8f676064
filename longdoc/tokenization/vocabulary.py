"""The vocabulary of a model: text to token ids exactly as the model's own tokenizer would, and back to bytes.

Owns loading (once per process and file) and who encodes: tiktoken where the tokenizer comes to one table, which is
several times as fast, and the `tokenizers` library where it does not; the ids are the same. Refuses, through
`tokenizer_file` and `proof`, tokenizers whose tokens do not stand for the text. Control tokens written out in a text
are ordinary text here, always.
"""

import functools
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from longdoc.errors import ModelError
from longdoc.records import Int32s, Int64s, display
from longdoc.tokenization.convert import NotOneTable, convert, isolates_digits
from longdoc.tokenization.encoders import Encoder
from longdoc.tokenization.library_encoder import LibraryEncoder
from longdoc.tokenization.proof import (
    Oracle,
    Verdict,
    more_digits,
    prove,
    prove_batches,
    prove_merges,
    read_verdict,
    write_verdict,
)
from longdoc.tokenization.runs import LONGEST_RUN
from longdoc.tokenization.table_encoder import TableEncoder, joined_ids
from longdoc.tokenization.token_bytes import TokenBytes
from longdoc.tokenization.tokenizer_file import TokenizerFile, parse, unsupported
from longdoc.tokenization.unicode_form import num_changed

if TYPE_CHECKING:
    from tiktoken import Encoding


class Vocabulary:
    """The tokenizer of one model.

    `sha256` is that of tokenizer.json; `identity` is what token ids depend on: that, and the `policy` for text that
    the tokenizer itself would change, '' where there is none. `vocab_size` is one more than the largest id,
    `token_num_bytes` int32 [vocab_size] the bytes each id stands for. `prefix_token_ids` and `suffix_token_ids` are
    what the model wants once around a document. `missing_bytes` have no token: text that holds one cannot be encoded
    without losing it. `backend` is tiktoken or tokenizers, and `not_tiktoken` why not the first.
    """

    def __init__(self, file: TokenizerFile, sha256: str, encoder: Encoder, verdict: Verdict) -> None:
        self.sha256 = sha256
        self.identity = file.identity(sha256)
        self.policy = file.policy
        self.prefix_token_ids = verdict.prefix_token_ids
        self.suffix_token_ids = verdict.suffix_token_ids
        self.not_tiktoken = verdict.not_tiktoken
        self.backend = encoder.backend
        self.vocab_size = len(encoder.bytes_of_id)
        self.token_num_bytes: Int32s = np.fromiter(map(len, encoder.bytes_of_id), dtype=np.int32)
        self.missing_bytes = encoder.missing_bytes
        self._encoder = encoder
        self._bytes_of_id = list(encoder.bytes_of_id)
        self._unicode_form = file.unicode_form

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
        """Whether pieces cut at the seams of `seams.cut` are known to encode as the whole does."""
        return self._encoder.can_be_cut

    def encode(self, text: str, longest_run: int = LONGEST_RUN) -> Int32s:
        """Token ids, int32 [N], of ordinary text. Runs of white space over `longest_run` are merged by themselves.

        Raises `DocumentError` where a byte of the text has no token, and `UnicodeEncodeError` for lone surrogates.
        """
        return self._encoder.encode(text, longest_run)

    def encode_batch(self, texts: Sequence[bytes]) -> tuple[Int32s, list[int | None]]:
        """Token ids of many texts in UTF-8 end to end, as `encode` gives them but faster, and how many each has.

        None stands for a text with a byte that has no token. Raises `DocumentError` where the engine gives up on one.
        """
        if isinstance(self._encoder, TableEncoder):
            return self._encoder.encode_batch(texts, LONGEST_RUN)
        missing = self.missing_bytes
        return joined_ids(
            [None if any(byte in text for byte in missing) else self.encode(text.decode("utf-8")) for text in texts]
        )

    def tiktoken_encoding(self) -> "Encoding":
        """The `tiktoken.Encoding` behind this vocabulary, to measure it alone. Raises `ModelError` where none is."""
        if not isinstance(self._encoder, TableEncoder):
            raise ModelError(f"tiktoken cannot run this tokenizer: {self.not_tiktoken}; choose another --model")
        return self._encoder.pieces

    def num_as_they_stand(self, text: str) -> int:
        """The places of a text that the model's own tokenizer would change, and that are encoded as they stand."""
        return num_changed(text, self._unicode_form) + self._encoder.num_apart(text)

    def decode(self, token_ids: Iterable[int]) -> bytes:
        """The bytes that token ids stand for. Raises `IndexError` for an id outside the vocabulary."""
        ids = token_ids.tolist() if isinstance(token_ids, np.ndarray) else list(token_ids)
        if ids and min(ids) < 0:
            raise IndexError(f"token id {min(ids)} is negative")
        return b"".join(map(self._bytes_of_id.__getitem__, ids))

    def are_text(self, token_ids: Int32s, text: bytes) -> bool:
        """Whether token ids stand for exactly this text. Raises `IndexError` for an id outside the vocabulary."""
        return self._token_bytes.are_text(token_ids, text)

    def byte_starts(self, token_ids: Int32s) -> Int64s:
        """Where each of N tokens starts in their text: int64 [N + 1], the last one is the length of the text."""
        return self._token_bytes.byte_starts(token_ids)

    @functools.cached_property
    def _token_bytes(self) -> TokenBytes:
        return TokenBytes(self._bytes_of_id)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token stands for."""
        return self.decode([token_id])


@functools.lru_cache(maxsize=4)
def _load(path: Path, modified_ns: int, num_bytes: int) -> Vocabulary:
    """Load and, unless that was done before, prove. Time and size only tell one version of the file from another."""
    name = display(str(path))
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{name}: cannot be read ({error.strerror or error}); give read access to it") from error
    sha256 = hashlib.sha256(raw).hexdigest()
    file = parse(raw, name)
    verdict = read_verdict(sha256)
    if verdict is None:
        encoder, verdict = _prove(file)
        write_verdict(sha256, verdict)
    elif verdict.not_tiktoken:
        encoder = LibraryEncoder(file)
    else:
        encoder = TableEncoder(convert(file, verdict.more_digits))
    return Vocabulary(file, sha256, encoder, verdict)


def _prove(file: TokenizerFile) -> tuple[Encoder, Verdict]:
    oracle = Oracle(file)
    digits = more_digits() if isolates_digits(file) else ""
    encoder: Encoder
    try:
        encoder, reason = _proved_table(file, oracle, digits), ""
    except NotOneTable as error:
        encoder, reason = LibraryEncoder(file), str(error)
        try:
            prove(file, encoder, oracle)
        except NotOneTable as difference:
            raise unsupported(file.name, str(difference), "ids would not be the model's own") from difference
    prefix, suffix = oracle.around()
    verdict = Verdict(prefix_token_ids=prefix, suffix_token_ids=suffix, more_digits=digits, not_tiktoken=reason)
    return encoder, verdict


def _proved_table(file: TokenizerFile, oracle: Oracle, digits: str) -> TableEncoder:
    table = convert(file, digits)
    encoder = TableEncoder(table)
    prove_merges(file, table, oracle)
    prove(file, encoder, oracle)
    prove_batches(file, encoder)
    return encoder
