"""Encodes with tiktoken, from a table of a byte-level BPE: several times as fast as the `tokenizers` library."""

import functools
from collections.abc import Sequence

import numpy as np
import tiktoken

from longdoc.records import Int32s
from longdoc.tokenization.batches import BatchSplitter, batch_splitter
from longdoc.tokenization.convert import NO_ID, NUM_BYTES, NotOneTable, Table
from longdoc.tokenization.encoders import byte_without_token, or_document_error
from longdoc.tokenization.runs import cut_runs

# tiktoken's quick path into numpy looks for control tokens; with none at all it would look at every character.
_NEVER_ALLOWED = "<|no control token is ever allowed|>"
_ONE_PIECE = r"[\s\S]+"


def joined_ids(encoded: Sequence[Int32s | None]) -> tuple[Int32s, list[int | None]]:
    """The ids of several texts end to end, and how many each has; a text without ids stays without."""
    nothing = np.zeros(0, dtype=np.int32)
    counts = [None if ids is None else len(ids) for ids in encoded]
    return np.concatenate([nothing, *(ids for ids in encoded if ids is not None)]), counts


class TableEncoder:
    """An `Encoder` behind which tiktoken works. Raises `NotOneTable` for a pattern that it cannot run."""

    backend = "tiktoken"

    def __init__(self, table: Table) -> None:
        self.pretokenization = table.pretokenization
        self.bytes_of_id = table.bytes_of_id
        self.missing_bytes = bytes(byte for byte in range(NUM_BYTES) if table.id_of_rank[byte] == NO_ID)
        # Text with tokens for runs of spaces has two spaces side by side in such a token and nowhere else, so that
        # they may stand for whatever the merges made of them.
        self._ranks = dict(table.ranks)
        self._id_of_rank = table.id_of_rank.copy()
        for token, token_id in table.text_tokens.items():
            rank = self._ranks.setdefault(token, len(self._ranks))
            self._id_of_rank = np.resize(self._id_of_rank, max(rank + 1, len(self._id_of_rank)))
            self._id_of_rank[rank] = token_id
        try:
            self.pieces = self._encoding(table.pretokenization.pattern)
        except ValueError as error:  # tiktoken's pattern engine knows less than that of the tokenizers library
            raise NotOneTable(f"the pre-tokenizer's pattern ({error})") from error

    @property
    def can_be_cut(self) -> bool:
        """Whether every alternative of the pattern is one that seams were reasoned out for."""
        return self.pretokenization.is_known

    def encode(self, text: str, longest_run: int) -> Int32s:
        """See `Encoder`. Runs of white space over `longest_run` are merged by themselves."""
        if len(text) <= longest_run:
            return self._encode(self.pieces, text)
        parts = cut_runs(text, self.pretokenization, longest_run)
        return np.concatenate([self._encode(self._whole if whole else self.pieces, part) for whole, part in parts])

    def encode_batch(self, texts: Sequence[bytes], longest_run: int) -> tuple[Int32s, list[int | None]]:
        """The ids of many texts in UTF-8 end to end, as `encode` gives them, and how many each has.

        None stands for a text with a byte that has no token.
        """
        splitter = self._splitter
        if splitter is None:
            return joined_ids([self._or_none(text, longest_run) for text in texts])
        ranks, counts = splitter.encode(texts)
        ids: Int32s = self._id_of_rank[ranks]
        is_whole = not self.missing_bytes or bool((ids != NO_ID).all())
        if is_whole and None not in counts:
            return ids, counts
        encoded: list[Int32s | None] = []
        start = 0
        for text, count in zip(texts, counts, strict=True):
            if count is None:
                encoded.append(self._or_none(text, longest_run))
                continue
            some = ids[start : start + count]
            encoded.append(some if is_whole or bool((some != NO_ID).all()) else None)
            start += count
        return joined_ids(encoded)

    def _or_none(self, text: bytes, longest_run: int) -> Int32s | None:
        if any(byte in text for byte in self.missing_bytes):
            return None
        return self.encode(text.decode("utf-8"), longest_run)

    @functools.cached_property
    def _splitter(self) -> BatchSplitter | None:
        return batch_splitter(self.pretokenization, self._ranks)

    def num_apart(self, text: str) -> int:
        """None: every token stands for the bytes that it was made of."""
        return 0

    @functools.cached_property
    def _whole(self) -> tiktoken.Encoding:
        return self._encoding(_ONE_PIECE)

    def _encoding(self, pattern: str) -> tiktoken.Encoding:
        special = {_NEVER_ALLOWED: len(self._ranks)}
        return tiktoken.Encoding("longdoc", pat_str=pattern, mergeable_ranks=self._ranks, special_tokens=special)

    def _encode(self, encoding: tiktoken.Encoding, text: str) -> Int32s:
        text.encode("utf-8")  # tiktoken would replace a lone surrogate and say nothing
        ranks = or_document_error(lambda: encoding.encode_to_numpy(text, disallowed_special=()))
        ids: Int32s = self._id_of_rank[ranks]
        if self.missing_bytes and (ids == NO_ID).any():
            raise byte_without_token(int(ranks[ids == NO_ID][0]))
        return ids
