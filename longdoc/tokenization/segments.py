"""The segments of one document on their way to token ids: looked up in the cache, cut, handed on, joined, checked.

Segments may come while the document is still being read. Owns the check that the joined ids stand for exactly the
document's bytes and that every segment's edge is a token's. Does not know who encodes: that is `Pieces`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from longdoc.errors import DocumentError, ensure
from longdoc.records import Document, Int32s, Segment, TokenSequence
from longdoc.tokenization.cache import TokenCache, TokenKey
from longdoc.tokenization.seams import cut
from longdoc.tokenization.vocabulary import Vocabulary

# Segments that are looked up in the cache together.
_LOOKED_UP_AT_ONCE = 500
_NOTHING = np.zeros(0, dtype=np.int32)


class Pieces(Protocol):
    """Texts that are being encoded, here or elsewhere."""

    def put(self, text: bytes) -> None:
        """Hand over the next text, in UTF-8."""
        ...

    def results(self) -> Iterable[Int32s]:
        """The ids of every text, in order. Raises `DocumentError` where one cannot be encoded."""
        ...


@dataclass(slots=True, kw_only=True)
class SegmentEncoder:
    """Encodes the segments of one document. Texts that repeat (the newline between files) are encoded once."""

    vocabulary: Vocabulary
    pieces: Pieces
    cache: TokenCache | None = None
    piece_chars: int
    _waiting: list[tuple[Segment, bytes]] = field(default_factory=list)
    _known: dict[int, Int32s] = field(default_factory=dict)
    _pieces_of: dict[bytes, range] = field(default_factory=dict)
    _text_of: dict[int, bytes] = field(default_factory=dict)
    _keys: dict[int, TokenKey] = field(default_factory=dict)
    _texts: list[bytes] = field(default_factory=list)

    def add(self, segment: Segment, text: bytes) -> None:
        """The next segment and its text in UTF-8."""
        if not text:
            return
        if self.cache is None or segment.blob_id is None:
            self._put(segment, text)
            return
        self._waiting.append((segment, text))
        if len(self._waiting) >= _LOOKED_UP_AT_ONCE:
            self._look_up()

    def finish(self, document: Document, index_before: Sequence[int] | None = None) -> TokenSequence:
        """The token ids of the document that the segments made.

        `index_before` gives the index that each segment of the document had when it was added, where that is another.
        Raises `DocumentError` where a text could not be encoded, or the ids do not stand for exactly the text.
        """
        self._look_up()
        fresh = self._fresh()
        by_index = self._known | fresh
        indices = range(len(document.segments)) if index_before is None else index_before
        ids = []
        for segment, index in zip(document.segments, indices, strict=True):
            has_text = segment.text_byte_stop > segment.text_byte_start
            if has_text and index not in by_index:
                raise _difference(document, segment)
            ids.append(by_index[index] if has_text else _NOTHING)
        sequence = self._join(document, ids)
        if self.cache is not None:
            self.cache.put_many({key: fresh[at] for at, key in self._keys.items() if at in fresh})
        return sequence

    def _look_up(self) -> None:
        """What the cache holds, where it stands for the text: a connector may read a blob anew."""
        if self.cache is None or not self._waiting:
            return
        keys = {segment.segment_index: self._key(segment) for segment, _ in self._waiting}
        found = self.cache.get_many(keys.values())
        for segment, text in self._waiting:
            key = keys[segment.segment_index]
            if key in found and self.vocabulary.are_text(found[key], text):
                self._known[segment.segment_index] = found[key]
            else:
                self._keys[segment.segment_index] = key
                self._put(segment, text)
        self._waiting.clear()

    def _key(self, segment: Segment) -> TokenKey:
        assert segment.blob_id is not None
        return TokenKey(
            blob_id=segment.blob_id, encoding=segment.encoding or "", tokenizer_sha256=self.vocabulary.identity
        )

    def _put(self, segment: Segment, text: bytes) -> None:
        self._text_of[segment.segment_index] = text
        if text in self._pieces_of:
            return
        cuts = self._cut(text)
        self._pieces_of[text] = range(len(self._texts), len(self._texts) + len(cuts))
        self._texts += cuts
        for piece in cuts:
            self.pieces.put(piece)

    def _cut(self, text: bytes) -> list[bytes]:
        # No text has more characters than bytes.
        if len(text) <= self.piece_chars or not self.vocabulary.can_be_cut:
            return [text]
        return [piece.encode("utf-8") for piece in cut(text.decode("utf-8"), self.piece_chars)]

    def _fresh(self) -> dict[int, Int32s]:
        """The ids of what was not in the cache, by the index of the segment; each piece is checked as it comes.

        A segment whose ids do not stand for its text has none here; it may yet be set aside.
        """
        encoded: list[Int32s | None] = []
        for text, ids in zip(self._texts, self.pieces.results() if self._texts else (), strict=True):
            encoded.append(ids if self.vocabulary.are_text(ids, text) else None)
        joined = {text: _joined(encoded[at.start : at.stop]) for text, at in self._pieces_of.items()}
        found = ((index, joined[text]) for index, text in self._text_of.items())
        return {index: ids for index, ids in found if ids is not None}

    def _join(self, document: Document, ids: Sequence[Int32s]) -> TokenSequence:
        token_ids = np.concatenate([_NOTHING, *ids])
        segment_starts = np.zeros(len(ids) + 1, dtype=np.int64)
        np.cumsum([len(some) for some in ids], out=segment_starts[1:])
        byte_starts = self.vocabulary.byte_starts(token_ids)
        # The ids of each segment were checked against its text; so this checks that all are there, in order.
        wanted = [*(segment.text_byte_start for segment in document.segments), len(document.text)]
        ensure(
            byte_starts[segment_starts].tolist() == wanted,
            f"{document.source_uri}: tokens were lost or doubled where segments were joined",
        )
        return TokenSequence(
            token_ids=token_ids,
            byte_starts=byte_starts,
            segment_starts=segment_starts,
            prefix_token_ids=self.vocabulary.prefix_token_ids,
            suffix_token_ids=self.vocabulary.suffix_token_ids,
        )


def _joined(pieces: Sequence[Int32s | None]) -> Int32s | None:
    found = [ids for ids in pieces if ids is not None]
    if len(found) < len(pieces):
        return None
    return found[0] if len(found) == 1 else np.concatenate(found)


def _difference(document: Document, segment: Segment) -> DocumentError:
    return DocumentError(
        f"{place_of(document, segment)}: its tokens do not stand for exactly its text; report this with the file",
        stage="encode",
        reason="tokens_differ_from_text",
    )


def place_of(document: Document, segment: Segment) -> str:
    """A segment for a message."""
    name = segment.display_path or segment.title
    return f"{document.source_uri}: {name}" if name else document.source_uri
