"""Text cut at seams encodes, piece by piece, as the whole does; nothing is cut anywhere else."""

import unicodedata

import pytest
import tiktoken
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, normalizers
from trained_tokenizers import ATOMS, TABLES, texts

from longdoc.tokenization.convert import _KNOWN_ALTERNATIVES
from longdoc.tokenization.seams import _is_letter, cut
from longdoc.tokenization.vocabulary import Vocabulary

EVERY_CHARACTER = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)

# Mostly letters and white space, so that seams are many.
text_with_seams = st.lists(
    st.one_of(
        st.sampled_from(["a", "the", "中文", "я", " ", "\n", "\n\n", "\r\n", "\t", ".", "1", "'s"]),
        st.sampled_from(ATOMS),
    ),
    max_size=60,
).map("".join)


@pytest.mark.parametrize("shape", [*TABLES, "gemma", "metaspace"], indirect=True, scope="session")
@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=text_with_seams, target=st.integers(1, 20))
def test_pieces_encode_as_the_whole(vocabulary: Vocabulary, text: str, target: int) -> None:
    assert vocabulary.can_be_cut
    pieces = cut(text, target)
    assert [i for piece in pieces for i in vocabulary.encode(piece).tolist()] == vocabulary.encode(text).tolist()


@settings(deadline=None, max_examples=200)
@given(text=st.one_of(text_with_seams, texts), target=st.integers(1, 20))
def test_pieces_are_the_text_and_at_least_as_long_as_wanted(text: str, target: int) -> None:
    pieces = cut(text, target)
    assert "".join(pieces) == text
    assert all(len(piece) >= target for piece in pieces[:-1])
    assert all(pieces) or pieces == [""]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("one two three", ["one", " two", " three"]),
        ("one\r\ntwo", ["one", "\r\ntwo"]),
        ("1.\ntwo", ["1.\n", "two"]),
        ("。\n中文", ["。\n", "中文"]),
        ("1.\n\ntwo", ["1.\n\ntwo"]),
        ("1. \ntwo", ["1. \ntwo"]),
        ("1.\r\ntwo", ["1.\r\ntwo"]),
        ("1 2 3. 4", ["1 2 3. 4"]),
        ("a_ b_\n_c", ["a_ b_\n_c"]),
        ("² ² \x1c\nb", ["² ² \x1c\nb"]),
        ("", [""]),
    ],
)
def test_text_is_cut_at_seams_and_nowhere_else(text: str, pieces: list[str]) -> None:
    assert cut(text, 1) == pieces


def test_the_first_seam_from_the_target_on_is_taken() -> None:
    assert cut("aaa bbb ccc", 3) == ["aaa", " bbb", " ccc"]
    assert cut("aaa bbb ccc", 4) == ["aaa bbb", " ccc"]


def test_no_target_is_no_cut() -> None:
    with pytest.raises(ValueError, match="pieces of 0 characters"):
        cut("a b", 0)


def matched(pattern: str) -> set[str]:
    """The characters that tiktoken's engine matches: what no pattern matches, it drops."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    probe = tiktoken.Encoding("probe", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return set(bytes(probe.encode_ordinary(EVERY_CHARACTER)).decode("utf-8"))


@pytest.mark.parametrize("pattern", [r"\p{L}", r"\p{N}", r"\s"])
def test_both_engines_class_every_character_alike(pattern: str) -> None:
    left = normalizers.Replace(Regex(pattern), "").normalize_str(EVERY_CHARACTER)
    assert set(EVERY_CHARACTER) - set(left) == matched(pattern)


def test_what_a_seam_takes_for_a_letter_is_one_for_the_engine() -> None:
    letters = {char for char in EVERY_CHARACTER if _is_letter(char)}
    assert letters <= matched(r"\p{L}")
    assert len(letters) > 80_000
    assert all(unicodedata.category(char)[0] == "L" for char in letters)


def test_no_known_alternative_matches_a_letter_and_white_space_behind_it() -> None:
    for alternative in _KNOWN_ALTERNATIVES:
        assert "(?<" not in alternative
        ranks = {bytes([byte]): byte for byte in range(256)} | {b"a ": 256, b"a\n": 257, b"a\r": 258, b"a\t": 259}
        probe = tiktoken.Encoding("probe", pat_str=alternative, mergeable_ranks=ranks, special_tokens={})
        found = probe.encode_ordinary("a a\na\ra\t .a !a\n'll\n's 've\t")
        assert max(found, default=0) < 256, alternative
