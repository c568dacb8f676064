"""Text back to the bytes it came from: the promise that a segment's `encoding` and `encoding_source` make.

Owns the byte-order marks and the way back; connectors use it to prove a choice, `verify` to check what was stored.
Refuses anything lossy: an encoder is strict, and an encoding that does not exist is an error, never another one.
"""

import codecs
from collections.abc import Iterable, Iterator

#: The `encoding_source` of text whose bytes begin with a byte-order mark.
FROM_MARK = "bom"

# UTF-32 little-endian begins with the mark of UTF-16 little-endian, so it is tried first.
# Each row: the mark, the name that is stored, the codec that does not write a mark of its own.
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32", "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be", "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8-sig", "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16", "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "utf-16-be"),
)
_MARKED = {stored: (mark, codec) for mark, stored, codec in MARKS}


def encode_text(text: str, encoding: str, encoding_source: str) -> bytes:
    """A file's bytes from its text and stored encoding, with the byte-order mark where it had one.

    Raises `UnicodeError` where `text` is not text of that encoding, `LookupError` for an unknown one.
    """
    return b"".join(encode_pieces((text,), encoding, encoding_source))


def encode_pieces(pieces: Iterable[str], encoding: str, encoding_source: str) -> Iterator[bytes]:
    """The slice of the file's bytes that each piece of its text stands for; together they are the file.

    One encoder runs through all pieces, because encodings such as ISO-2022-JP carry a state from one to the next.
    The byte-order mark belongs to the first piece, what closes the last state to the last one. One piece is held
    besides the one that is encoded. Raises as `encode_text` does.
    """
    mark, codec = _mark_and_codec(encoding, encoding_source)
    encoder = codecs.getincrementalencoder(codec)(errors="strict")
    ahead = mark
    remaining = iter(pieces)
    piece = next(remaining, None)
    while piece is not None:
        following = next(remaining, None)
        yield ahead + encoder.encode(piece, final=following is None)
        ahead, piece = b"", following


def is_encoding(encoding: str, encoding_source: str) -> bool:
    """Whether text can be in this encoding at all, with a byte-order mark where `encoding_source` says so."""
    try:
        # Asked of an encoder of text: codecs.lookup also knows base64 and rot13.
        "".encode(_mark_and_codec(encoding, encoding_source)[1])
    except (LookupError, ValueError):
        return False
    return True


def _mark_and_codec(encoding: str, encoding_source: str) -> tuple[bytes, str]:
    return _MARKED[encoding] if encoding_source == FROM_MARK else (b"", encoding)
