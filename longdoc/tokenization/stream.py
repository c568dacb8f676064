"""A document that is encoded while it is being read: a repository, whose files come one by one.

Owns putting the document together from its stream. Every text is handed on as soon as it is there, so that reading and
encoding take place side by side; what comes out is exactly what reading first and encoding then would give.
"""

from io import BytesIO

from longdoc.records import Document, DocumentRef, Segment, StreamingRef, TokenSequence, head_of
from longdoc.tokenization.cache import TokenCache
from longdoc.tokenization.encode import PIECE_CHARS, refuse_missing_bytes, with_warning
from longdoc.tokenization.pool import EncodingPool, PooledPieces
from longdoc.tokenization.segments import SegmentEncoder
from longdoc.tokenization.set_aside import set_aside_from
from longdoc.tokenization.vocabulary import Vocabulary


def read_and_encode(
    ref: DocumentRef, vocabulary: Vocabulary, pool: EncodingPool, *, cache: TokenCache | None = None
) -> tuple[Document, TokenSequence]:
    """Read a document and encode it in a pool: what `ref.read()` and then `encode_setting_aside` give.

    Raises `DocumentError` as they do, `InfrastructureError` where a process of the pool was killed.
    """
    pieces = PooledPieces(pool)
    encoder = SegmentEncoder(vocabulary=vocabulary, pieces=pieces, cache=cache, piece_chars=PIECE_CHARS)
    if isinstance(ref, StreamingRef):
        document = _streamed(ref, encoder)
    else:
        document = ref.read()
        for segment in document.segments:
            encoder.add(segment, document.segment_text(segment))
    before = None
    if document.kind == "repository":
        document, before = set_aside_from(document, vocabulary.missing_bytes)
    refuse_missing_bytes(document, vocabulary)
    sequence = encoder.finish(document, before)
    return with_warning(document, vocabulary), sequence


def _streamed(ref: StreamingRef, encoder: SegmentEncoder) -> Document:
    segments: list[Segment] = []
    whole = BytesIO()  # grows in place, and gives what it holds away without a copy
    for segment, text in ref.stream():
        segments.append(segment)
        whole.write(text)
        encoder.add(segment, text)
    document = head_of(ref, text=whole.getvalue(), segments=tuple(segments))
    document.check()
    return document
