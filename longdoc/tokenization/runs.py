"""Long runs of white space, which tiktoken's pattern engine cannot match: cut out here, to be merged by themselves.

The engine's stack holds 1,000,000 steps and `\\s+(?!\\S)` takes one a character; a longer run fails, in tiktoken and
in the `tokenizers` library alike. So the oracle for such text is the pattern itself, worked out by hand: of a run that
is followed by text, all but the last character is one piece; at the end of the text, or before a digit that stands
alone, the whole run is. Where `\\s*[\\r\\n]+` is in the pattern, everything up to the last line end is matched by that
(without the stack) and the run begins behind it. Text under a pattern that this was not worked out for is not cut.
"""

import re
from collections.abc import Iterator

from tokenizers.pre_tokenizers import Digits

from longdoc.tokenization.convert import Pretokenization

LONGEST_RUN = 100_000
# White_Space of Unicode, as `\s` in Rust; Python's own `\s` has U+001C to U+001F too.
_WHITE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
_WHITE_SPACE = re.compile(f"[{_WHITE}]*")


def cut_runs(text: str, pretokenization: Pretokenization, longest: int = LONGEST_RUN) -> Iterator[tuple[bool, str]]:
    """Text as (is one piece, part), in order. Runs of at most `longest` characters stay in the parts around them."""
    if not pretokenization.is_known or next(_long_runs(text, longest), None) is None:
        yield False, text
    elif pretokenization.longest_spaces:
        # What stands between tokens for runs of spaces is a text of its own.
        spaces = re.compile(f"((?: {{2,{pretokenization.longest_spaces}}})+)")
        for index, part in enumerate(spaces.split(text)):
            yield from ((False, part),) if index % 2 else _cut_runs(part, pretokenization, longest)
    else:
        yield from _cut_runs(text, pretokenization, longest)


def _cut_runs(text: str, pretokenization: Pretokenization, longest: int) -> Iterator[tuple[bool, str]]:
    done = 0
    for start, stop in _long_runs(text, longest):
        if pretokenization.newlines_end_runs:
            start = max(start, 1 + max(text.rfind(end, start, stop) for end in "\r\n"))
        whole = stop == len(text) or (pretokenization.digits_alone and _is_digit(text[stop]))
        stop -= not whole
        if stop - start >= longest:
            yield False, text[done:start]
            yield True, text[start:stop]
            done = stop
    yield False, text[done:]


def _is_digit(char: str) -> bool:
    return len(Digits(individual_digits=True).pre_tokenize_str("a" + char)) == 2


def _long_runs(text: str, longest: int) -> Iterator[tuple[int, int]]:
    """The maximal runs of more than `longest` white-space characters. Looks at one character in `longest`."""
    at = longest
    while at < len(text):
        found = _WHITE_SPACE.match(text, at)
        assert found is not None
        stop = found.end()
        if stop > at:
            before = text[at - longest : at]
            start = at - len(before) + len(before.rstrip(_WHITE))
            if stop - start > longest:
                yield start, stop
        at = stop + longest - stop % longest
