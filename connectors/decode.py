"""Bytes to text and back, exactly: which encoding a file is in, and a proof that it gives the same bytes again.

Owns the order of the tries (byte-order mark, strict UTF-8, charset-normalizer's guess, latin-1) and the rule that tells
text from binary. Refuses anything lossy: no `surrogateescape`, no replacement characters, no translated newlines. A
choice that does not give the exact bytes back is not taken; latin-1, where every byte is one character, comes last.
"""

import codecs
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Literal

from longdoc.encodings import MARKS, encode_pieces

EncodingSource = Literal["bom", "utf-8", "guess", "latin-1"]

# C0 controls and DEL, but not those that text files hold: BS, TAB, LF, VT, FF, CR and ESC.
_CONTROLS = bytes(b for b in (*range(0x20), 0x7F) if b not in b"\b\t\n\v\f\r\x1b")
_CONTROLS_TOLERATED = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A file's text without its byte-order mark, and how it was found. `encoding` is the name of a Python codec."""

    text: str = field(repr=False)
    encoding: str
    encoding_source: EncodingSource


def decode_bytes(raw: bytes) -> Decoded:
    """The text of any bytes at all; `longdoc.encodings.encode_text` gives exactly `raw` back."""
    return _by_mark(raw) or _by_utf8(raw) or _by_guess(raw) or _by_latin1(raw)


def decode_unless_binary(raw: bytes) -> Decoded | None:
    """The text of a file of unknown content, or None where it is binary. All of `raw` decides, never a first block.

    Binary is (1) what holds a NUL byte and is not, as a whole, valid UTF-16 or UTF-32 with a byte-order mark; and
    (2) what is not valid UTF-8 and of which more than 2% are control bytes other than BS, TAB, LF, VT, FF, CR and ESC
    (compressed data has about 10%, text in an old one-byte or East Asian encoding has none).
    """
    marked = _by_mark(raw)
    if b"\0" in raw:
        return marked if marked is not None and marked.encoding != "utf-8-sig" else None
    if decoded := marked or _by_utf8(raw):
        return decoded
    if len(raw) - len(raw.translate(None, _CONTROLS)) > _CONTROLS_TOLERATED * len(raw):
        return None
    return _by_guess(raw) or _by_latin1(raw)


def decoder_version() -> str:
    """Changes whenever the same bytes may be decoded to another text: the guess is charset-normalizer's."""
    return f"charset-normalizer-{version('charset-normalizer')}"


def _by_mark(raw: bytes) -> Decoded | None:
    for mark, stored, codec in MARKS:
        if raw.startswith(mark) and (text := _exactly(raw[len(mark) :], codec)) is not None:
            return Decoded(text=text, encoding=stored, encoding_source="bom")
    return None


def _by_utf8(raw: bytes) -> Decoded | None:
    try:
        # Strict UTF-8 is one-to-one, so the way back needs no check.
        return Decoded(text=raw.decode("utf-8"), encoding="utf-8", encoding_source="utf-8")
    except UnicodeDecodeError:
        return None


def _by_guess(raw: bytes) -> Decoded | None:
    from charset_normalizer import from_bytes  # needed by few files, and slow to import

    for match in from_bytes(raw):
        codec = codecs.lookup(match.encoding).name
        if (text := _exactly(raw, codec)) is not None:
            return Decoded(text=text, encoding=codec, encoding_source="guess")
    return None


def _by_latin1(raw: bytes) -> Decoded:
    return Decoded(text=raw.decode("latin-1"), encoding="latin-1", encoding_source="latin-1")


def _exactly(raw: bytes, codec: str) -> str | None:
    """The text of `raw`, or None where the codec fails or does not give the bytes back, whole and line by line."""
    try:
        text = raw.decode(codec)
        # A lone surrogate (UTF-7 lets them through) has no UTF-8, and the document's text is UTF-8.
        text.encode("utf-8")
        lines = [text] if codec in _STATELESS else text.splitlines(keepends=True)
        if b"".join(encode_pieces(lines, codec, "guess")) == raw:
            return text
    except UnicodeError:
        pass
    return None


# Encodings in which each character always has the same bytes: checking them whole is checking them in any pieces.
_STATELESS = frozenset({"utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"})
