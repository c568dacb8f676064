"""The segments of one document on their way to token ids: looked up in the cache, cut, handed on, joined, checked.

Segments may come while the document is still being read. Owns the check that the ids of every segment stand for exactly
its text, and that together they are the document's. Keeps no text of its own but short ones: a large document is there
once. Does not know who encodes: that is `Pieces`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from longdoc.errors import DocumentError, ensure
from longdoc.records import Document, Int32s, Int64s, Segment, TokenSequence
from longdoc.tokenization.cache import TokenCache, TokenKey
from longdoc.tokenization.seams import cut
from longdoc.tokenization.vocabulary import Vocabulary

# Segments that are looked up in the cache together.
_LOOKED_UP_AT_ONCE = 500
# Longer texts are known again by their blob alone.
_SHORT_BYTES = 4096
_Number = TypeVar("_Number", np.int32, np.int64)


class Pieces(Protocol):
    """Texts that are being encoded, here or elsewhere."""

    def put(self, text: bytes) -> None:
        """Hand over the next text, in UTF-8."""
        ...

    def results(self) -> Iterable[Int32s]:
        """The ids of every text, in order. Raises `DocumentError` where one cannot be encoded."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """Where a segment's ids come from: the next `num_pieces` results, the ids of an earlier segment, or the cache."""

    index: int
    num_pieces: int = 0
    same_as: int | None = None
    known: Int32s | None = None


@dataclass(slots=True, kw_only=True)
class SegmentEncoder:
    """Encodes the segments of one document. Texts that repeat (the newline between files) are encoded once."""

    vocabulary: Vocabulary
    pieces: Pieces
    cache: TokenCache | None = None
    piece_chars: int
    _waiting: list[tuple[Segment, bytes]] = field(default_factory=list)
    _sources: list[_Source] = field(default_factory=list)
    _first_with: dict[bytes | tuple[str, str | None], int] = field(default_factory=dict)
    _keys: dict[int, TokenKey] = field(default_factory=dict)

    def add(self, segment: Segment, text: bytes) -> None:
        """The next segment and its text in UTF-8."""
        if not text:
            return
        if self.cache is None:
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
        indices = range(len(document.segments)) if index_before is None else index_before
        placed = _Placed(document=document, vocabulary=self.vocabulary, indices=indices)
        placed.fill(self._sources, iter(self.pieces.results() if self._sources else ()))
        sequence = placed.sequence()
        if self.cache is not None:
            self.cache.put_many({key: placed.ids_of(at) for at, key in self._keys.items() if at in placed.ranges})
        return sequence

    def _look_up(self) -> None:
        """What the cache holds, where it stands for the text: a connector may read a blob anew."""
        if self.cache is None or not self._waiting:
            return
        keys = {segment.segment_index: self._key(segment) for segment, _ in self._waiting if segment.blob_id}
        found = self.cache.get_many(keys.values())
        for segment, text in self._waiting:
            key = keys.get(segment.segment_index)
            ids = None if key is None else found.get(key)
            if ids is not None and self.vocabulary.are_text(ids, text):
                self._sources.append(_Source(index=segment.segment_index, known=ids))
                continue
            if key is not None:
                self._keys[segment.segment_index] = key
            self._put(segment, text)
        self._waiting.clear()

    def _key(self, segment: Segment) -> TokenKey:
        assert segment.blob_id is not None
        return TokenKey(
            blob_id=segment.blob_id, encoding=segment.encoding or "", tokenizer_sha256=self.vocabulary.identity
        )

    def _put(self, segment: Segment, text: bytes) -> None:
        is_short = len(text) <= _SHORT_BYTES or segment.blob_id is None
        name = text if is_short else (segment.blob_id or "", segment.encoding)
        first = self._first_with.setdefault(name, segment.segment_index)
        if first != segment.segment_index:
            self._sources.append(_Source(index=segment.segment_index, same_as=first))
            return
        cuts = self._cut(text)
        self._sources.append(_Source(index=segment.segment_index, num_pieces=len(cuts)))
        for piece in cuts:
            self.pieces.put(piece)

    def _cut(self, text: bytes) -> list[bytes]:
        # No text has more characters than bytes.
        if len(text) <= self.piece_chars or not self.vocabulary.can_be_cut:
            return [text]
        return [piece.encode("utf-8") for piece in cut(text.decode("utf-8"), self.piece_chars)]


class _Placed:
    """The ids of a document's segments, each put in its place as it comes, and checked there."""

    def __init__(self, *, document: Document, vocabulary: Vocabulary, indices: Sequence[int]) -> None:
        self._document = document
        self._vocabulary = vocabulary
        self._segment_at = dict(zip(indices, document.segments, strict=True))
        # Room for more tokens than there are in most texts; what is not written to takes no memory.
        room = len(document.text) // 2 + 16
        self._ids: Int32s = np.empty(room, dtype=np.int32)
        self._byte_starts: Int64s = np.empty(room + 1, dtype=np.int64)
        self._byte_starts[0] = self._num_ids = 0
        self._set_aside: dict[int, Int32s] = {}
        #: By the index a segment was added with: its tokens, from and to.
        self.ranges: dict[int, tuple[int, int]] = {}

    def fill(self, sources: Sequence[_Source], results: Iterator[Int32s]) -> None:
        """Place the ids of every source, in order, taking results as they are due."""
        for source in sources:
            if source.num_pieces:
                pieces = [next(results) for _ in range(source.num_pieces)]
            elif source.known is not None:
                pieces = [source.known]
            else:
                assert source.same_as is not None
                pieces = [self.ids_of(source.same_as)]
            self._place(source.index, pieces)
        ensure(next(results, None) is None, "more pieces came back encoded than were handed over")

    def ids_of(self, index: int) -> Int32s:
        """The ids of a segment that was placed, or set aside."""
        if index not in self.ranges:
            return self._set_aside[index]
        start, stop = self.ranges[index]
        return self._ids[start:stop]

    def _place(self, index: int, pieces: Sequence[Int32s]) -> None:
        segment = self._segment_at.get(index)
        if segment is None or segment.text_byte_stop == segment.text_byte_start:
            # Another segment with the same text may still want them.
            self._set_aside[index] = np.concatenate(pieces)
            return
        start, text = self._num_ids, self._document.segment_text(segment)
        for ids in pieces:
            self._append(ids)
        self.ranges[index] = (start, self._num_ids)
        if not self._vocabulary.are_text(self._ids[start : self._num_ids], text):
            raise DocumentError(
                f"{place_of(self._document, segment)}: its tokens do not stand for exactly its text; report this with "
                "the file",
                stage="encode",
                reason="tokens_differ_from_text",
            )

    def _append(self, ids: Int32s) -> None:
        start, stop = self._num_ids, self._num_ids + len(ids)
        if stop > len(self._ids):
            self._ids = _grown(self._ids, 2 * stop)
            self._byte_starts = _grown(self._byte_starts, 2 * stop + 1)
        self._ids[start:stop] = ids
        # While other processes still encode: at the end nobody else would have work.
        starts = self._vocabulary.byte_starts(ids)
        np.add(starts, self._byte_starts[start], out=self._byte_starts[start : stop + 1])
        self._num_ids = stop

    def sequence(self) -> TokenSequence:
        """The whole. Raises `AssertionError` where a segment is not in its place."""
        token_ids, byte_starts = self._ids[: self._num_ids], self._byte_starts[: self._num_ids + 1]
        stops = [0]
        for index in self._segment_at:
            stops.append(self.ranges[index][1] if index in self.ranges else stops[-1])
        segment_starts = np.array(stops, dtype=np.int64)
        # The ids of each segment were checked against its text; so this checks that all are there, in order.
        wanted = [*(segment.text_byte_start for segment in self._document.segments), len(self._document.text)]
        ensure(
            byte_starts[segment_starts].tolist() == wanted,
            f"{self._document.source_uri}: tokens were lost or doubled where segments were joined",
        )
        return TokenSequence(
            token_ids=token_ids,
            byte_starts=byte_starts,
            segment_starts=segment_starts,
            prefix_token_ids=self._vocabulary.prefix_token_ids,
            suffix_token_ids=self._vocabulary.suffix_token_ids,
        )


def _grown(array: npt.NDArray[_Number], size: int) -> npt.NDArray[_Number]:
    larger = np.empty(size, dtype=array.dtype)
    larger[: len(array)] = array
    return larger


def place_of(document: Document, segment: Segment) -> str:
    """A segment for a message."""
    name = segment.display_path or segment.title
    return f"{document.source_uri}: {name}" if name else document.source_uri
