r"""The attributes that a commit's own `.gitattributes` files give its paths, by git's rules.

Owns the format (https://git-scm.com/docs/gitattributes): patterns and their quoting, the four states of an attribute,
macros (`binary` is built in, others stand in the file at the root), and which file and line wins: the one nearest to
the path, and in it the last. Refuses what is not in the commit: neither the user's attributes nor those in
`$GIT_DIR/info` change a document. Lines and files that are longer than git reads count for nothing, as in git.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from connectors.wildmatch import Wildcard, compile_wildcard

#: Set, unset, unspecified on purpose, or a value.
State = bool | bytes | None
FILE_NAME = b".gitattributes"

# https://github.com/git/git/blob/master/attr.h
_LONGEST_LINE, _LARGEST_FILE = 2048, 100 * 1024 * 1024
_BINARY: tuple[tuple[bytes, State], ...] = ((b"diff", False), (b"merge", False), (b"text", False))
_BLANK = b" \t\r\n"
_NAME = re.compile(rb"[A-Za-z0-9_.][A-Za-z0-9_.-]*")
_ESCAPES = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_QUOTED = re.compile(rb'"(?P<inside>(?:[^"\\]|\\[abfnrtv"\\]|\\[0-3][0-7]{2})*)"')
_ESCAPED = re.compile(rb"\\([0-3][0-7]{2}|.)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """One line of a file: which paths below the file's folder it is for, and what it says of them, last word first."""

    pattern: Wildcard
    is_for_name: bool
    states: tuple[tuple[bytes, State], ...]


@dataclass(slots=True)
class _Rules:
    """The lines of one file, last first. Patterns `*.x` are looked up by their ending; there may be thousands."""

    general: list[tuple[int, _Rule]] = field(default_factory=list)
    by_ending: dict[bytes, list[tuple[int, _Rule]]] = field(default_factory=dict)

    def matching(self, path: bytes) -> Iterable[_Rule]:
        """The rules for a path relative to the file's folder, last first."""
        name = path.rpartition(b"/")[2]
        found = [
            (line, rule) for line, rule in self.general if rule.pattern.matches(name if rule.is_for_name else path)
        ]
        if self.by_ending:
            dots = [place for place, byte in enumerate(name) if byte == 0x2E]
            found += [entry for dot in dots for entry in self.by_ending.get(name[dot:], ())]
        return (rule for _, rule in sorted(found, key=lambda entry: -entry[0]))


class Attributes:
    """The attributes of the paths of one commit. `files` maps the path of each `.gitattributes` to its content."""

    def __init__(self, files: Mapping[bytes, bytes]) -> None:
        self._macros: dict[bytes, tuple[tuple[bytes, State], ...]] = {b"binary": tuple(reversed(_BINARY))}
        self._rules: dict[bytes, _Rules] = {}
        for path, content in files.items():
            folder = path.rpartition(b"/")[0]
            self._rules[folder] = self._read(content, may_define=not folder)

    def of(self, path: bytes) -> dict[bytes, State]:
        """Every attribute of a path that is set, unset or has a value. A path is relative to the repository's root."""
        if not self._rules:
            return {}
        states: dict[bytes, State] = {}
        for folder in _folders(path):
            if (rules := self._rules.get(folder)) is not None:
                below = path[len(folder) + 1 :] if folder else path
                for rule in rules.matching(below):
                    self._fill(states, rule.states)
        return {name: state for name, state in states.items() if state is not None}

    def _fill(self, states: dict[bytes, State], said: Sequence[tuple[bytes, State]]) -> None:
        """Take what has not been said yet. A macro that is set says all that it stands for at once."""
        waiting = list(reversed(said))
        while waiting:
            name, state = waiting.pop()
            if name not in states:
                states[name] = state
                if state is True and name in self._macros:
                    waiting.extend(reversed(self._macros[name]))

    def _read(self, content: bytes, *, may_define: bool) -> _Rules:
        rules = _Rules()
        if len(content) > _LARGEST_FILE:
            return rules
        for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n")):
            if len(line) >= _LONGEST_LINE:
                continue
            pattern, rest = _split(line.lstrip(_BLANK))
            if pattern.startswith(b"[attr]") and (name := pattern.removeprefix(b"[attr]")):
                if may_define and (states := _states(rest)) is not None and _is_name(name):
                    self._macros[name] = states
            elif pattern and not pattern.startswith(b"!") and (states := _states(rest)) is not None:
                _add(rules, number, pattern, states)
        return rules


def _add(rules: _Rules, number: int, pattern: bytes, states: tuple[tuple[bytes, State], ...]) -> None:
    if pattern.endswith(b"/"):
        return  # means folders only, and folders have no attributes
    is_for_name, ending = b"/" not in pattern, pattern[1:]
    rule = _Rule(pattern=compile_wildcard(pattern.removeprefix(b"/")), is_for_name=is_for_name, states=states)
    if is_for_name and pattern.startswith(b"*.") and not re.search(rb"[*?\[\\]", ending):
        rules.by_ending.setdefault(ending, []).append((number, rule))
    else:
        rules.general.append((number, rule))


def _folders(path: bytes) -> Iterable[bytes]:
    """The folders that hold a path, the nearest first; the root is empty."""
    folder = path.rpartition(b"/")[0]
    while folder:
        yield folder
        folder = folder.rpartition(b"/")[0]
    yield b""


def _split(line: bytes) -> tuple[bytes, bytes]:
    """A line's pattern, unquoted, and the attributes behind it. The pattern is empty where the line says nothing."""
    if not line or line.startswith(b"#"):
        return b"", b""
    if line.startswith(b'"') and (quoted := _QUOTED.match(line)):
        return _ESCAPED.sub(_unescaped, quoted["inside"]), line[quoted.end() :]
    stop = next((place for place, byte in enumerate(line) if byte in _BLANK), len(line))
    return line[:stop], line[stop:]


def _unescaped(match: re.Match[bytes]) -> bytes:
    escaped = match[1]
    return bytes([int(escaped, 8)]) if len(escaped) == 3 else _ESCAPES.get(escaped, escaped)


def _states(rest: bytes) -> tuple[tuple[bytes, State], ...] | None:
    """What a line says of its attributes, last word first; None where one of them has no possible name."""
    states = []
    for word in re.split(rb"[ \t\r\n]+", rest.strip(_BLANK)):
        if not word:
            continue
        name, equals, value = word.lstrip(b"-!") if word[:1] in (b"-", b"!") else word, b"", b""
        state: State = {b"-": False, b"!": None}.get(word[:1], True)
        if state is True:
            name, equals, value = word.partition(b"=")
            state = value if equals else True
        elif word[1:2] in (b"-", b"!"):
            return None
        else:
            name = word[1:].partition(b"=")[0]
        if not _is_name(name):
            return None
        states.append((name, state))
    return tuple(reversed(states))


def _is_name(name: bytes) -> bool:
    return _NAME.fullmatch(name) is not None
