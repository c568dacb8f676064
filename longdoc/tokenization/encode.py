"""A document as token ids: each segment by itself, long ones in pieces, blobs from the cache, all of it checked.

A segment's edge is always a token boundary, so that a blob has the same token ids in every commit. Owns the check that
the ids stand for exactly the document's bytes, segment by segment, and the warning where the model's own tokenizer
would have changed some of them; refuses text that its vocabulary cannot express.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from longdoc.errors import DocumentError, ensure
from longdoc.records import Document, Int32s, Segment, TokenSequence
from longdoc.tokenization.cache import TokenCache, TokenKey
from longdoc.tokenization.seams import cut
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
    _refuse_missing_bytes(document, vocabulary)
    segments = [segment for segment in document.segments if segment.text_byte_stop > segment.text_byte_start]
    keys = {} if cache is None else _keys(segments, vocabulary)
    known = {} if cache is None else _known(cache, keys, document, vocabulary)
    todo = [segment for segment in segments if segment.segment_index not in known]
    encode = encode_pieces or (lambda texts: [vocabulary.encode(text) for text in texts])
    fresh = _encode_segments(document, todo, vocabulary, encode, piece_chars)
    if cache is not None:
        cache.put_many({keys[at]: token_ids for at, token_ids in fresh.items() if at in keys})
    return _join(document, vocabulary, known | fresh)


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
    batch: list[str] = []
    num_chars = 0
    for text in texts:
        batch.append(text)
        num_chars += len(text) + _CHARS_A_CALL
        if num_chars >= PIECE_CHARS:
            yield batch
            batch, num_chars = [], 0
    if batch:
        yield batch


def _encode_segments(
    document: Document, segments: list[Segment], vocabulary: Vocabulary, encode: EncodePieces, piece_chars: int
) -> dict[int, Int32s]:
    """Token ids by segment index. Texts that repeat (the newline between files, headers alike) are encoded once."""
    pieces_of: dict[bytes, list[int]] = {}
    pieces: list[str] = []
    for segment in segments:
        text = document.segment_text(segment)
        if text not in pieces_of:
            cuts = cut(text.decode("utf-8"), piece_chars) if vocabulary.can_be_cut else [text.decode("utf-8")]
            pieces_of[text] = list(range(len(pieces), len(pieces) + len(cuts)))
            pieces += cuts
    encoded = encode(pieces) if pieces else []
    ensure(len(encoded) == len(pieces), f"{len(encoded)} of {len(pieces)} pieces came back encoded")
    joined = {text: np.concatenate([encoded[at] for at in places]) for text, places in pieces_of.items()}
    by_segment = {segment.segment_index: joined[document.segment_text(segment)] for segment in segments}
    for segment in segments:
        if not _stand_for(by_segment[segment.segment_index], segment, document, vocabulary):
            raise DocumentError(
                f"{_place(document, segment)}: its tokens do not stand for exactly its text; report this with the file",
                stage="encode",
                reason="tokens_differ_from_text",
            )
    return by_segment


def _stand_for(token_ids: Int32s, segment: Segment, document: Document, vocabulary: Vocabulary) -> bool:
    return vocabulary.decode(token_ids) == document.segment_text(segment)


def _keys(segments: Iterable[Segment], vocabulary: Vocabulary) -> dict[int, TokenKey]:
    return {
        segment.segment_index: TokenKey(
            blob_id=segment.blob_id, encoding=segment.encoding or "", tokenizer_sha256=vocabulary.identity
        )
        for segment in segments
        if segment.blob_id is not None
    }


def _known(
    cache: TokenCache, keys: dict[int, TokenKey], document: Document, vocabulary: Vocabulary
) -> dict[int, Int32s]:
    """The cached ids by segment index, where they stand for the segment's text: a connector may read a blob anew."""
    found = cache.get_many(keys.values())
    return {
        at: found[key]
        for at, key in keys.items()
        if key in found and _stand_for(found[key], document.segments[at], document, vocabulary)
    }


def _join(document: Document, vocabulary: Vocabulary, by_segment: dict[int, Int32s]) -> TokenSequence:
    nothing = np.zeros(0, dtype=np.int32)
    ids = [by_segment.get(segment.segment_index, nothing) for segment in document.segments]
    token_ids = np.concatenate([nothing, *ids])
    byte_starts = np.zeros(len(token_ids) + 1, dtype=np.int64)
    np.cumsum(vocabulary.token_num_bytes[token_ids], out=byte_starts[1:])
    segment_starts = np.zeros(len(ids) + 1, dtype=np.int64)
    np.cumsum([len(some) for some in ids], out=segment_starts[1:])
    wanted = [*(segment.text_byte_start for segment in document.segments), len(document.text)]
    ensure(
        byte_starts[segment_starts].tolist() == wanted,
        f"{document.source_uri}: tokens were lost or doubled where segments were joined",
    )
    return TokenSequence(
        token_ids=token_ids,
        byte_starts=byte_starts,
        segment_starts=segment_starts,
        prefix_token_ids=vocabulary.prefix_token_ids,
        suffix_token_ids=vocabulary.suffix_token_ids,
    )


def _refuse_missing_bytes(document: Document, vocabulary: Vocabulary) -> None:
    for segment, line, byte in places_without_token(document, vocabulary.missing_bytes):
        raise DocumentError(
            f"{_place(document, segment)}, line {line}: byte 0x{byte:02x} has no token in this model's "
            "vocabulary; leave the file out (--exclude) or use another model",
            stage="encode",
            reason=BYTE_WITHOUT_TOKEN,
            needs="a model whose vocabulary has all bytes",
        )


def _place(document: Document, segment: Segment) -> str:
    name = segment.display_path or segment.title
    return f"{document.source_uri}: {name}" if name else document.source_uri
