r"""git's wildcards (https://git-scm.com/docs/gitignore#_pattern_format), matched without ever trying a path twice.

Owns what `*`, `?`, `[...]`, `**` and `\` mean in a pattern of `.gitattributes`. Patterns come with repositories, so
their cost is bounded: a star takes the shortest stretch that lets what follows it match, which is enough because the
next star can take the rest; that holds within a name for `*`, and between names for `**`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_NOTHING = rb"(?!)"
_CLASSES = {
    b"alnum": rb"0-9A-Za-z",
    b"alpha": rb"A-Za-z",
    b"blank": rb" \t",
    b"cntrl": rb"\x00-\x1f\x7f",
    b"digit": rb"0-9",
    b"graph": rb"\x21-\x7e",
    b"lower": rb"a-z",
    b"print": rb"\x20-\x7e",
    b"punct": rb"\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e",
    b"space": rb"\t-\r ",
    b"upper": rb"A-Z",
    b"xdigit": rb"0-9A-Fa-f",
}
_STAR, _SLASH = b"*", b"/"


@dataclass(frozen=True, slots=True)
class Wildcard:
    """A compiled pattern. `names` are its parts between slashes, None for `**`."""

    names: tuple[re.Pattern[bytes] | None, ...]

    def matches(self, path: bytes) -> bool:
        """Whether the whole path matches, or the whole name, where the pattern has no slash and is given one."""
        parts = path.split(_SLASH)
        return _matches(self.names, parts)


def compile_wildcard(pattern: bytes) -> Wildcard:
    """A pattern without the slash it may begin with; one that can match nothing is compiled to match nothing."""
    names: list[re.Pattern[bytes] | None] = []
    tokens: list[bytes] = []
    for token in [*_tokens(pattern), _SLASH]:
        if token != _SLASH:
            tokens.append(token)
            continue
        is_deep = tokens == [_STAR, _STAR]
        names.append(None if is_deep else re.compile(_name_regex(tokens), re.DOTALL))
        tokens = []
    return Wildcard(tuple(names))


def _matches(names: Sequence[re.Pattern[bytes] | None], parts: Sequence[bytes]) -> bool:
    """The usual matching of wildcards, a name at a time: go back to the last `**` only, and let it take one more."""
    at = place = 0
    retry: tuple[int, int] | None = None
    while place < len(parts):
        name = names[at] if at < len(names) else _END
        if name is None:
            if at + 1 == len(names):
                return True  # `a/**` is everything below: at least one name is left
            at, retry = at + 1, (at + 1, place)
        elif name.fullmatch(parts[place]) is not None:
            at, place = at + 1, place + 1
        elif retry is not None:
            at, place = retry[0], retry[1] + 1
            retry = (at, place)
        else:
            return False
    return at == len(names)


_END = re.compile(_NOTHING)


def _tokens(pattern: bytes) -> Iterator[bytes]:
    """Stars, slashes, and regular expressions for one byte each."""
    at = 0
    while at < len(pattern):
        byte = pattern[at : at + 1]
        if byte in (_STAR, _SLASH):
            token, at = byte, at + 1
        elif byte == b"[":
            token, at = _bracket(pattern, at)
        elif byte == b"\\":
            escaped = pattern[at + 1 : at + 2]
            token, at = (re.escape(escaped) if escaped else _NOTHING), at + 2
        else:
            token, at = (rb"[^/]" if byte == b"?" else re.escape(byte)), at + 1
        # `\/` and `\*`: re.escape leaves the first alone and gives the second its backslash.
        yield token


def _name_regex(tokens: Sequence[bytes]) -> bytes:
    """The parts between stars; each star but the last takes the shortest stretch, once and for all."""
    chunks: list[list[bytes]] = [[]]
    for token in tokens:
        if token == _STAR:
            chunks.append([])
        else:
            chunks[-1].append(token)
    first, *rest = [b"".join(chunk) for chunk in chunks]
    if not rest:
        return first
    *between, last = rest
    return first + b"".join(rb"(?>.*?" + chunk + rb")" for chunk in between if chunk) + rb".*" + last


def _bracket(pattern: bytes, at: int) -> tuple[bytes, int]:
    """A class of bytes; one that never closes matches nothing, and takes the rest of the pattern with it."""
    place, members = at + 1, b""
    negated = pattern[place : place + 1] in (b"!", b"^")
    place += negated
    first = place
    while pattern[place : place + 1] != b"]" or place == first:
        if place >= len(pattern):
            return _NOTHING, len(pattern)
        if pattern.startswith(b"[:", place) and (stop := pattern.find(b":]", place + 2)) > 0:
            if (name := pattern[place + 2 : stop]) not in _CLASSES:
                return _NOTHING, len(pattern)
            members, place = members + _CLASSES[name], stop + 2
            continue
        low, place = _member(pattern, place)
        high = low
        if pattern[place : place + 1] == b"-" and pattern[place + 1 : place + 2] not in (b"]", b""):
            high, place = _member(pattern, place + 1)
        if low <= high:
            members += re.escape(low) + b"-" + re.escape(high)
    if not members:
        return (rb"[^/]" if negated else _NOTHING), place + 1
    return rb"(?!/)[" + b"^" * negated + members + b"]", place + 1


def _member(pattern: bytes, place: int) -> tuple[bytes, int]:
    if pattern[place : place + 1] == b"\\" and place + 1 < len(pattern):
        return pattern[place + 1 : place + 2], place + 2
    return pattern[place : place + 1], place + 1
