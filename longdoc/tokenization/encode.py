"""A document as token ids: each segment by itself, long ones in pieces, blobs from the cache, all of it checked.

A segment's edge is always a token boundary, so that a blob has the same token ids in every commit. Owns the ways into
`SegmentEncoder` for a document that was read, and the warning where the model's own tokenizer would have changed some
of its text; refuses text that its vocabulary cannot express.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from longdoc.errors import DocumentError
from longdoc.records import Document, Int32s, TokenSequence
from longdoc.tokenization.cache import TokenCache
from longdoc.tokenization.segments import SegmentEncoder, place_of
from longdoc.tokenization.set_aside import BYTE_WITHOUT_TOKEN, places_without_token, set_aside
from longdoc.tokenization.vocabulary import Vocabulary

EncodePieces = Callable[[Sequence[str]], Sequence[Int32s]]

#: Characters of a piece: about 15 ms of work, so that a pool is kept busy to the end.
PIECE_CHARS = 250_000
# What handing over a text costs, in characters that could be encoded in that time.
_CHARS_A_CALL = 100


def encode_document(
    document: Document,
    vocabulary: Vocabulary,
    *,
    cache: TokenCache | None = None,
    encode_pieces: EncodePieces | None = None,
    piece_chars: int = PIECE_CHARS,
) -> TokenSequence:
    """The document's token ids and where in its text they start.

    `encode_pieces` turns texts into token ids, in order; without it they are encoded here, one after another. Raises
    `DocumentError` where text cannot be encoded, or the ids do not stand for exactly the text.
    """
    refuse_missing_bytes(document, vocabulary)
    pieces = _Here(vocabulary) if encode_pieces is None else _AtOnce(encode_pieces)
    encoder = SegmentEncoder(vocabulary=vocabulary, pieces=pieces, cache=cache, piece_chars=piece_chars)
    for segment in document.segments:
        encoder.add(segment, document.segment_text(segment))
    return encoder.finish(document)


@dataclass(slots=True)
class _AtOnce:
    """Texts that are encoded together when all of them are there."""

    _encode: EncodePieces
    _texts: list[bytes] = field(default_factory=list)

    def put(self, text: bytes) -> None:
        self._texts.append(text)

    def results(self) -> Sequence[Int32s]:
        return self._encode([text.decode("utf-8") for text in self._texts])


@dataclass(slots=True)
class _Here:
    """Texts that are encoded in this process, a batch at a time."""

    _vocabulary: Vocabulary
    _texts: list[bytes] = field(default_factory=list)

    def put(self, text: bytes) -> None:
        self._texts.append(text)

    def results(self) -> Iterator[Int32s]:
        for batch in _batches(self._texts):
            yield from encode_texts(self._vocabulary, batch)


def encode_texts(vocabulary: Vocabulary, texts: Sequence[bytes]) -> list[Int32s]:
    """The ids of texts in UTF-8. Raises `DocumentError` for one with a byte that has no token."""
    ids, counts = vocabulary.encode_batch(texts)
    encoded: list[Int32s] = []
    start = 0
    for text, count in zip(texts, counts, strict=True):
        # Where a byte has no token, the slow way says which one.
        encoded.append(vocabulary.encode(text.decode("utf-8")) if count is None else ids[start : start + count])
        start += count or 0
    return encoded


def encode_setting_aside(
    document: Document,
    vocabulary: Vocabulary,
    *,
    cache: TokenCache | None = None,
    encode_pieces: EncodePieces | None = None,
) -> tuple[Document, TokenSequence]:
    """The document without the text of those files that this vocabulary cannot express, and its token ids.

    Only files of a repository are set aside, each as a segment with a reason (see `set_aside`); a book is one text, so
    for it, and for a repository whose own name cannot be encoded, this raises as `encode_document` does.
    """
    if document.kind == "repository":
        document = set_aside(document, vocabulary.missing_bytes)
    sequence = encode_document(document, vocabulary, cache=cache, encode_pieces=encode_pieces)
    return with_warning(document, vocabulary), sequence


def with_warning(document: Document, vocabulary: Vocabulary) -> Document:
    """The document, with a warning where the model's own tokenizer would have changed its text."""
    if not vocabulary.policy:
        return document
    texts = (document.segment_text(segment).decode("utf-8") for segment in document.segments)
    num_places = sum(map(vocabulary.num_as_they_stand, texts))
    if not num_places:
        return document
    warning = (
        f"places in the text that the model's own tokenizer would change: {num_places}. They are encoded as they stand "
        f"({vocabulary.policy}), so that no byte is lost; the model may never have been trained on such tokens."
    )
    return replace(document, warnings=(*document.warnings, warning))


def batch_texts(texts: Sequence[str]) -> Iterator[list[str]]:
    """Neighbouring texts together until they are about one piece: a repository has thousands of small ones."""
    return _batches(texts)


_Text = TypeVar("_Text", str, bytes)


def _batches(texts: Sequence[_Text]) -> Iterator[list[_Text]]:
    batch: list[_Text] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text) + _CHARS_A_CALL
        if size >= PIECE_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def refuse_missing_bytes(document: Document, vocabulary: Vocabulary) -> None:
    """Raise `DocumentError` where the text holds a byte that has no token."""
    for segment, line, byte in places_without_token(document, vocabulary.missing_bytes):
        raise DocumentError(
            f"{place_of(document, segment)}, line {line}: byte 0x{byte:02x} has no token in this model's "
            "vocabulary; leave the file out (--exclude) or use another model",
            stage="encode",
            reason=BYTE_WITHOUT_TOKEN,
            needs="a model whose vocabulary has all bytes",
        )
