"""The text that spans carry, against all that is said about it: hashes, lengths, lines, and the bytes it came from.

The spans' texts in order are the document's, and are cut again at the segments. A segment with an encoding is encoded
again and must give the bytes that were read: as many, with their hash, and under git's name for them. No more is held
than a window of spans and two segments. An output without text is not looked into.
"""

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from longdoc.checks.findings import Findings
from longdoc.checks.reading import RowGroup, in_order
from longdoc.checks.tiles import Tiles
from longdoc.encodings import encode_pieces, is_encoding

# A window of spans holds their text, about a kilobyte each.
TEXT_WINDOW_ROWS = 16_384
_WORDS_ROWS = 16_384
Words = dict[str, Any]


class _TextError(Exception):
    """The text cannot be followed further; `table` and the message are the fault."""

    def __init__(self, table: str, problem: str) -> None:
        super().__init__(problem)
        self.table = table


def check_texts(findings: Findings, row: dict[str, Any], groups: list[RowGroup], spans: Tiles, segments: Tiles) -> None:
    """Check the texts of one document whose spans and segments tile it."""
    key, state = str(row["doc_key"]), _Texts(spans=spans, segments=segments)
    with findings.reading("spans", key):
        try:
            state.read(groups, row["text_sha256"])
        except _TextError as error:
            state.faults[(error.table, "text")] = str(error)
    for (table, _), problem in state.faults.items():
        findings.fault(table, key, problem)


@dataclass(slots=True, kw_only=True)
class _Texts:
    """One pass over a document's text. `faults` holds the first of each kind: one mistake is told once."""

    spans: Tiles
    segments: Tiles
    faults: dict[tuple[str, str], str] = field(default_factory=dict)
    digest: Any = field(default_factory=hashlib.sha256)
    by_name: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.by_name = np.argsort(self.spans["segment_index"], kind="stable")

    def read(self, groups: list[RowGroup], text_sha256: str) -> None:
        """Follow the text from its first byte to its last."""
        chunks = self._chunks(groups)
        first = next(chunks, None)
        if first is None:
            return
        texts = _cut(first, chunks, self.segments["text_byte_stop"])
        for (encoding, source, _), words in groupby(self._words(), key=_file_of):
            pieces = self._pieces(words, texts, waiting := deque[Words]())
            if encoding is not None and is_encoding(encoding, source):
                self._check_encoding(pieces, waiting, encoding, source)
            for _ in pieces:
                pass
        if self.digest.hexdigest() != text_sha256:
            raise _TextError("spans", f"their texts hash to {self.digest.hexdigest()}, the document's to {text_sha256}")

    def _chunks(self, groups: list[RowGroup]) -> Iterator[bytes]:
        """The text in pieces of whole spans; nothing where the run was told not to store it."""
        place, is_stored = 0, None
        for rows in in_order(groups, index="span_index", columns=["text"], window=TEXT_WINDOW_ROWS):
            texts = rows["text"]
            is_stored = texts[0].is_valid if is_stored is None else is_stored
            if texts.null_count != (0 if is_stored else len(texts)):
                raise _TextError("spans", "some spans have a text and some have none")
            if not is_stored:
                continue
            part = slice(place, place + len(texts))
            wanted = self.spans["text_byte_stop"][part] - self.spans["text_byte_start"][part]
            is_wrong = pc.binary_length(texts).to_numpy() != wanted
            if is_wrong.any():
                raise _TextError(
                    "spans", f"span {place + np.argmax(is_wrong)} has a text of another length than its bytes"
                )
            chunk = "".join(texts.to_pylist()).encode("utf-8")
            self.digest.update(chunk)
            place += len(texts)
            yield chunk

    def _words(self) -> Iterator[Words]:
        """The segments' words, numbered, as dictionaries."""
        index = 0
        for batch in self.segments.words.to_batches(max_chunksize=_WORDS_ROWS):
            for words in batch.to_pylist():
                yield words | {"index": index}
                index += 1

    def _pieces(self, words: Iterable[Words], texts: Iterator[bytes], waiting: deque[Words]) -> Iterator[str]:
        """The text of each segment, looked at; `waiting` takes the segments that were handed out."""
        for each in words:
            waiting.append(each)
            yield self._looked_at(each["index"], next(texts))

    def _looked_at(self, index: int, raw: bytes) -> str:
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise _TextError("segments", f"segment {index} starts or ends inside a character") from None
        num_chars = self.segments["char_stop"][index] - self.segments["char_start"][index]
        if len(text) != num_chars:
            self._fault("chars", index, f"has {num_chars} characters, its text has {len(text)}")
        num_lines = raw.count(b"\n") + (len(raw) > 0 and not raw.endswith(b"\n"))
        if num_lines != self.segments["num_lines"][index]:
            self._fault("lines", index, f"has {self.segments['num_lines'][index]} lines, its text has {num_lines}")
        self._check_lines(index, raw)
        return text

    def _check_lines(self, index: int, raw: bytes) -> None:
        """The lines of the spans that are named after a segment are those of its text that hold their bytes."""
        named = self.spans["segment_index"]
        mine = self.by_name[slice(*np.searchsorted(named, [index, index + 1], sorter=self.by_name))]
        if not len(mine):
            return
        newlines = np.flatnonzero(np.frombuffer(raw, dtype=np.uint8) == ord("\n"))
        start = self.segments["text_byte_start"][index]
        first = np.clip(self.spans["text_byte_start"][mine] - start, 0, len(raw))
        stop = np.clip(self.spans["text_byte_stop"][mine] - start, 0, len(raw))
        line_start = 1 + np.searchsorted(newlines, first)
        line_stop = np.where(stop > first, 2 + np.searchsorted(newlines, stop - 1), line_start)
        found_start, found_stop = self.spans["line_start"][mine], self.spans["line_stop"][mine]
        is_wrong = (found_start != line_start) | (found_stop != line_stop)
        if is_wrong.any():
            place = int(np.argmax(is_wrong))
            found, wanted = (found_start, found_stop), (line_start, line_stop)
            told = [f"{lines[0][place]} to {lines[1][place]}" for lines in (found, wanted)]
            self.faults.setdefault(("spans", "lines"), f"span {mine[place]} has lines {told[0]}, its text {told[1]}")

    def _check_encoding(self, pieces: Iterator[str], waiting: deque[Words], encoding: str, source: str) -> None:
        try:
            for raw in encode_pieces(pieces, encoding, source):
                self._check_bytes(waiting.popleft(), raw)
        except UnicodeError:
            self._fault("source", waiting[0]["index"], f"has text that {encoding} cannot hold")

    def _check_bytes(self, words: Words, raw: bytes) -> None:
        index, num_bytes = words["index"], self.segments["num_bytes_source"][words["index"]]
        if len(raw) != num_bytes:
            self._fault("source", index, f"has {num_bytes} bytes of the source, its text gives {len(raw)}")
        elif words["source_sha256"] not in (None, digest := hashlib.sha256(raw).hexdigest()):
            self._fault("source", index, f"has source_sha256 {words['source_sha256']}, its text gives {digest}")
        elif words["blob_id"] not in (None, blob_id := _blob_id(raw, str(words["blob_id"]))):
            self._fault("source", index, f"has blob_id {words['blob_id']}, its text gives {blob_id}")

    def _fault(self, kind: str, index: int, problem: str) -> None:
        self.faults.setdefault(("segments", kind), f"segment {index} {problem}")


def _file_of(words: Words) -> tuple[Any, ...]:
    """Neighbours of one file share an encoder: its byte-order mark stands once, and encodings may carry a state."""
    return words["encoding"], words["encoding_source"], words["path"]


def _cut(chunk: bytes, chunks: Iterator[bytes], stops: npt.NDArray[np.int64]) -> Iterator[bytes]:
    """The text between the `stops`, each piece whole. `chunk` comes before `chunks`; together they reach the last."""
    start = at = 0
    for stop in stops.tolist():
        missing, pieces = stop - start, list[bytes]()
        while missing:
            if at == len(chunk):
                chunk, at = next(chunks), 0
            pieces.append(chunk[at : at + missing])
            at += len(pieces[-1])
            missing -= len(pieces[-1])
        start = stop
        yield b"".join(pieces)


def _blob_id(raw: bytes, like: str) -> str:
    """Git's id of a blob (https://git-scm.com/book/en/v2/Git-Internals-Git-Objects), by SHA-1 or SHA-256 as `like`."""
    digest = hashlib.sha1(usedforsecurity=False) if len(like) == 40 else hashlib.sha256()
    digest.update(b"blob %d\0" % len(raw))
    digest.update(raw)
    return digest.hexdigest()
