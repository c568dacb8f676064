"""Bytes to text and back, exactly: which encoding a file is in, and a proof that it gives the same bytes again.

Owns the order of the tries (byte-order mark, strict UTF-8, what the file declares, charset-normalizer's guess, latin-1)
and the rule that tells text from binary. Refuses anything lossy: no `surrogateescape`, no replacement characters, no
translated newlines. A choice that does not give the exact bytes back is not taken; latin-1, where every byte is one
character, comes last.
"""

import codecs
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Literal

from longdoc.encodings import MARKS, encode_pieces

EncodingSource = Literal["bom", "utf-8", "declared", "guess", "latin-1"]

# C0 controls and DEL, but not those that text files hold: BS, TAB, LF, VT, FF, CR and ESC.
_CONTROLS = bytes(b for b in (*range(0x20), 0x7F) if b not in b"\b\t\n\v\f\r\x1b")
_CONTROLS_TOLERATED = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A file's text without its byte-order mark, and how it was found. `encoding` is the name of a Python codec."""

    text: str = field(repr=False)
    encoding: str
    encoding_source: EncodingSource


def decode_bytes(raw: bytes, *, declared: str | None = None) -> Decoded:
    """The text of any bytes at all; `longdoc.encodings.encode_text` gives exactly `raw` back.

    `declared` is the label of an encoding that the file names; one that is unknown or does not fit is passed over.
    """
    if declared and b"\x1b" in raw and declared.strip().lower().startswith("iso-2022-"):
        # Its bytes are all ASCII, so they would pass for UTF-8.
        found = _by_mark(raw) or _by_declaration(raw, declared) or _by_utf8(raw)
    else:
        found = _by_mark(raw) or _by_utf8(raw) or (_by_declaration(raw, declared) if declared else None)
    return found or _by_guess(raw) or _by_latin1(raw)


def decode_unless_binary(raw: bytes, *, declared: str | None = None, is_text: bool = False) -> Decoded | None:
    """The text of a file of unknown content, or None where it is binary. All of `raw` decides, never a first block.

    Binary is (1) what holds a NUL byte and is not, as a whole, valid UTF-16 or UTF-32 with a byte-order mark; and
    (2) what is not valid UTF-8 and of which more than 2% are control bytes other than BS, TAB, LF, VT, FF, CR and ESC
    (compressed data has about 10%, text in an old one-byte or East Asian encoding has none). What stands beside the
    file may say more: that it is in a `declared` encoding, which is then tried, or that it `is_text`, which lets valid
    UTF-8 hold NULs and any bytes be guessed.
    """
    marked = _by_mark(raw)
    if b"\0" in raw:
        if marked is not None and (is_text or marked.encoding != "utf-8-sig"):
            return marked
        return (_by_utf8(raw) if is_text else None) or (_by_label(raw, declared) if declared else None)
    if decoded := marked or _by_utf8(raw) or (_by_label(raw, declared) if declared else None):
        return decoded
    if not is_text and len(raw) - len(raw.translate(None, _CONTROLS)) > _CONTROLS_TOLERATED * len(raw):
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


def _by_declaration(raw: bytes, label: str) -> Decoded | None:
    for name in _LABELS.get(label.strip().lower(), (label,)):
        try:
            codec = codecs.lookup(name.strip()).name
            # A declaration that can be read is in ASCII, so what it names keeps ASCII.
            keeps_ascii = _ASCII.encode(codec) == _ASCII.encode("ascii") and not codec.endswith("escape")
            text = _exactly(raw, codec) if keeps_ascii else None
        except (LookupError, ValueError):
            continue  # unknown, or no encoding of text (base64, rot13)
        if text is not None:
            return Decoded(text=text, encoding=codec, encoding_source="declared")
    return None


def _by_label(raw: bytes, label: str) -> Decoded | None:
    """As `_by_declaration`, of a label that does not stand in the file itself: the file need not keep ASCII."""
    codec = _WIDE.get(label.strip().lower())
    if codec is None:
        return _by_declaration(raw, label)
    text = _exactly(raw, codec)
    return None if text is None else Decoded(text=text, encoding=codec, encoding_source="declared")


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

_WIDE = {f"utf-{bits}{end}": f"utf-{bits}-{end}" for bits in (16, 32) for end in ("le", "be")}

_ASCII = "<?xml charset='a-b'?>\r\n"

# What labels mean on the web, where it is more than they say: https://encoding.spec.whatwg.org/#names-and-labels
_LABELS = {
    "ascii": ("cp1252", "latin-1"),
    "us-ascii": ("cp1252", "latin-1"),
    "iso-8859-1": ("cp1252", "latin-1"),
    "iso8859-1": ("cp1252", "latin-1"),
    "latin1": ("cp1252", "latin-1"),
    "latin-1": ("cp1252", "latin-1"),
    "iso-8859-9": ("cp1254", "iso8859-9"),
    "iso-8859-11": ("cp874", "iso8859-11"),
    "tis-620": ("cp874", "tis-620"),
    "gb2312": ("gb18030",),
    "gbk": ("gb18030",),
    "gb_2312-80": ("gb18030",),
    "shift_jis": ("cp932", "shift_jis"),
    "shift-jis": ("cp932", "shift_jis"),
    "sjis": ("cp932", "shift_jis"),
    "x-sjis": ("cp932", "shift_jis"),
    "windows-31j": ("cp932",),
    "euc-kr": ("cp949",),
    "ks_c_5601-1987": ("cp949",),
    "ksc5601": ("cp949",),
    "windows-949": ("cp949",),
    "big5": ("big5hkscs", "big5", "cp950"),
    "x-mac-roman": ("mac-roman",),
    "macintosh": ("mac-roman",),
    "x-mac-cyrillic": ("mac-cyrillic",),
    # Refused by the HTML standard.
    "utf-7": (),
}
