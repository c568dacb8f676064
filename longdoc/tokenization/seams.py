r"""Where text may be cut so that the pieces, encoded by themselves, are the tokens of the whole.

Two seams, both between tokens for every known pattern (see `convert`), which have no look-behind:
  - a letter | white space: what matches letters is greedy and never matches white space behind them, so that a piece
    ends here, cut or not; behind the seam the text, and so what is matched there, is the same.
  - \n | a letter, where no white space stands before the \n: a lone line end is a piece of its own, or goes to the
    punctuation before it, whatever comes next. With more white space before it, GPT-2's `\s+(?!\S)` takes it along
    at the end of a text but not before a letter, so that is no seam.
Cuts nowhere else: text without seams stays in one piece.
"""

import re
import unicodedata

_SEAM = re.compile(r"[^\W\d_](?=[ \t\r\n])|(?<=\S)\n(?=[^\W\d_])")

# Wider than any seam: whatever may stand on the two sides of one.
_SIDES = re.compile(r"[^\W\d_][ \t\r\n]|\n[^\W\d_]")


def cut(text: str, target_chars: int) -> list[str]:
    """Pieces of at least `target_chars` characters (but for the last), cut at the first seam from there on.

    Joined they are the text. Raises `ValueError` for a target below 1.
    """
    if target_chars < 1:
        raise ValueError(f"pieces of {target_chars} characters")
    pieces, start = [], 0
    while len(text) - start > target_chars:
        stop = _next_seam(text, start + target_chars)
        if stop is None:
            break
        pieces.append(text[start:stop])
        start = stop
    return [*pieces, text[start:]]


def may_cross(token: str) -> bool:
    """Whether a seam could lie inside a token's text, in some text."""
    return _SIDES.search(token) is not None


def _next_seam(text: str, at: int) -> int | None:
    """The first seam at or after `at`, short of the end of the text."""
    for found in _SEAM.finditer(text, at - 1):
        seam = found.end()
        letter = text[seam] if found.group() == "\n" else text[seam - 1]
        if _is_letter(letter):
            return seam
    return None


def _is_letter(char: str) -> bool:
    # Python and the pattern engines carry different versions of Unicode. What was a letter in 3.2 and still is one here
    # is one for all of them.
    return all(edition.category(char)[0] == "L" for edition in (unicodedata.ucd_3_2_0, unicodedata))
