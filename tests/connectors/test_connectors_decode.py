"""Bytes to text and back: the order of the tries, the stored names, and that nothing is ever lost."""

import codecs

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.decode import decode_bytes, decode_unless_binary
from longdoc.encodings import encode_pieces, encode_text

SENTENCE = "Ein Wörterbuch für Übungen: äöü, “quoted”, 中文, Ω, 😀.\r\n"

LEGACY = ["cp1252", "koi8-r", "cp1251", "shift_jis", "euc_jp", "iso2022_jp", "big5", "gb18030", "euc_kr", "hz", "utf_7"]


@settings(deadline=None, max_examples=200)
@given(
    st.one_of(
        st.binary(max_size=200),
        st.builds(
            bytes.__add__,
            st.sampled_from(
                [
                    codecs.BOM_UTF8,
                    codecs.BOM_UTF16_LE,
                    codecs.BOM_UTF16_BE,
                    codecs.BOM_UTF32_LE,
                    codecs.BOM_UTF32_BE,
                    b"+/v8-",
                ]
            ),
            st.binary(max_size=40),
        ),
    )
)
def test_any_bytes_come_back_from_their_text_and_stored_encoding(raw: bytes) -> None:
    decoded = decode_bytes(raw)
    assert encode_text(decoded.text, decoded.encoding, decoded.encoding_source) == raw
    decoded.text.encode("utf-8")


@settings(deadline=None, max_examples=60)
@given(text=st.text(max_size=60), codec=st.sampled_from(LEGACY))
def test_text_in_old_encodings_comes_back_byte_for_byte(text: str, codec: str) -> None:
    raw = text.encode(codec, errors="ignore")
    decoded = decode_bytes(raw)
    assert encode_text(decoded.text, decoded.encoding, decoded.encoding_source) == raw


@pytest.mark.parametrize(
    ("raw", "encoding", "source"),
    [
        (SENTENCE.encode("utf-8"), "utf-8", "utf-8"),
        (codecs.BOM_UTF8 + SENTENCE.encode("utf-8"), "utf-8-sig", "bom"),
        (codecs.BOM_UTF16_LE + SENTENCE.encode("utf-16-le"), "utf-16", "bom"),
        (codecs.BOM_UTF16_BE + SENTENCE.encode("utf-16-be"), "utf-16-be", "bom"),
        (codecs.BOM_UTF32_LE + SENTENCE.encode("utf-32-le"), "utf-32", "bom"),
        (codecs.BOM_UTF32_BE + SENTENCE.encode("utf-32-be"), "utf-32-be", "bom"),
    ],
)
def test_marked_and_utf8_files_are_decoded_exactly(raw: bytes, encoding: str, source: str) -> None:
    decoded = decode_bytes(raw)
    assert (decoded.text, decoded.encoding, decoded.encoding_source) == (SENTENCE, encoding, source)


def test_russian_in_windows_1251_is_guessed() -> None:
    text = "Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему.\n" * 5
    decoded = decode_bytes(text.encode("cp1251"))
    assert (decoded.text, decoded.encoding_source) == (text, "guess")


def test_only_the_first_byte_order_mark_is_not_text() -> None:
    decoded = decode_bytes(codecs.BOM_UTF8 * 2 + b"a")
    assert decoded.text == "\ufeffa"


def test_a_lone_surrogate_behind_a_mark_is_not_utf16_and_nothing_is_lost() -> None:
    raw = codecs.BOM_UTF16_LE + b"\x00\xd8a\x00"
    decoded = decode_bytes(raw)
    assert decoded.encoding_source != "bom"
    assert encode_text(decoded.text, decoded.encoding, decoded.encoding_source) == raw


def test_a_character_that_no_encoding_owns_ends_in_latin1() -> None:
    # 0x81 is undefined in cp1252, and the rest is no UTF-8.
    decoded = decode_bytes(bytes(range(0x80, 0x100)))
    assert encode_text(decoded.text, decoded.encoding, decoded.encoding_source) == bytes(range(0x80, 0x100))
    assert len(decoded.text) > 0


def test_newlines_nul_and_form_feed_stay() -> None:
    assert decode_bytes(b"a\r\nb\rc\nd\0e\ff").text == "a\r\nb\rc\nd\0e\ff"


@pytest.mark.parametrize("codec", ["iso2022_jp", "shift_jis", "utf_7", "hz", "utf-8"])
def test_pieces_cut_at_lines_are_slices_of_the_whole(codec: str) -> None:
    lines = ["日本語の一行目\n", "second\n", "三行目です\n", "end"] if codec != "hz" else ["中文\n", "second\n", "三行"]
    pieces = list(encode_pieces(lines, codec, "guess"))
    assert len(pieces) == len(lines)
    assert b"".join(pieces) == "".join(lines).encode(codec)


def test_the_mark_belongs_to_the_first_piece() -> None:
    assert list(encode_pieces(["a", "b"], "utf-16-be", "bom")) == [codecs.BOM_UTF16_BE + b"\0a", b"\0b"]


@pytest.mark.parametrize(
    ("raw", "is_text"),
    [
        (b"", True),
        (b"plain\n", True),
        (b"one NUL \0 here\n", False),
        (codecs.BOM_UTF8 + b"one NUL \0 here\n", False),
        (SENTENCE.encode("utf-16"), True),
        (SENTENCE.encode("utf-32"), True),
        (codecs.BOM_UTF16_LE + b"\x00\xd8\x00\x00", False),
        ("naïve café\n".encode("latin-1"), True),
        ("Ночь, улица, фонарь, аптека\n".encode("koi8-r"), True),
        # A multi-byte character across any block's edge is still UTF-8: the whole decides.
        (b"x" * 1023 + "é".encode() * 4000, True),
        # Not UTF-8, and three control bytes in a hundred.
        (b"\xff" * 97 + b"\x01\x02\x03", False),
        (b"\xff" * 98 + b"\x01\x02", True),
        # Terminal colours and page breaks are no sign of binary data.
        (b"\x1b[31mred\x1b[0m\f\b\v \xe9\xe8" * 3, True),
    ],
)
def test_binary_is_told_from_text_on_the_whole_file(raw: bytes, *, is_text: bool) -> None:
    assert (decode_unless_binary(raw) is not None) == is_text
