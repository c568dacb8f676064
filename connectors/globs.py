r"""Which paths of a repository are wanted. Owns what a glob means; knows no other pattern language.

- A pattern without `/` is matched against the file's name, at any depth: `*.py`, `README*`.
- A pattern with `/` is matched against the whole path from the repository's root: `longdoc/*.py`, `docs/a.md`.
- `**` as a whole component stands for any number of folders, none included: `**/tests/*.py`, `src/**`.
- A pattern that ends in `/` means everything below that folder: `docs/` is `docs/**`. A leading `/` changes nothing
  but that the pattern then has one: `/setup.py` is the one at the root.
- `*` and `?` stop at `/`; `[abc]`, `[a-z]` and `[!abc]` are character classes, as in `fnmatch`. Case matters.

These are not ignore rules: there is no negation, and the last pattern has no privilege. A path is wanted if it matches
an include, or there is none, and matches no exclude. Paths are bytes; for matching they are read as UTF-8, and a byte
that is not UTF-8 counts as one character.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from longdoc.errors import SourceError

# In a class, "]" right after "[" or "[!" is a member.
_TOKEN = re.compile(r"\*+|\?|\[(?P<negation>!?)(?P<members>\]?[^\]/]*)\]|.", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Globs:
    """The include and exclude patterns of one repository."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def wants(self, path: bytes) -> bool:
        """Whether a path, from the repository's root, is part of the document's text."""
        wanted = not self.include or any(glob_matches(pattern, path) for pattern in self.include)
        return wanted and not self.excludes(path)

    def excludes(self, path: bytes) -> bool:
        """Whether an exclude pattern takes a path out."""
        return any(glob_matches(pattern, path) for pattern in self.exclude)

    def unmatched_includes(self, paths: Sequence[bytes]) -> list[str]:
        """The include patterns that match none of the paths."""
        return [p for p in self.include if not any(glob_matches(p, path) for path in paths)]


def glob_matches(pattern: str, path: bytes) -> bool:
    """Whether a pattern matches a path, as the module's docstring defines. `SourceError` for an impossible pattern."""
    # Only for comparing: this is also how Python hands over command-line arguments that are not UTF-8.
    name = path.decode("utf-8", errors="surrogateescape")
    return _compiled(pattern).fullmatch(name if "/" in pattern else name.rpartition("/")[2]) is not None


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(_path_regex(pattern), re.DOTALL)
    except re.error as error:
        raise SourceError(f"glob {pattern!r} cannot be read: {error.msg}. Write a class as [a-z] or [abc].") from error


def _path_regex(pattern: str) -> str:
    if "/" not in pattern:
        return _component_regex(pattern)
    below = pattern + "**" if pattern.endswith("/") else pattern
    *folders, last = below.removeprefix("/").split("/")
    regex = "".join("(?:[^/]+/)*" if folder == "**" else _component_regex(folder) + "/" for folder in folders)
    # Below a folder means below it: `docs/**` is not a file called `docs`.
    return regex + (".+" if last == "**" else _component_regex(last))


def _component_regex(component: str) -> str:
    return "".join(_token_regex(token) for token in _TOKEN.finditer(component))


def _token_regex(token: re.Match[str]) -> str:
    if token[0].startswith("*"):
        return "[^/]*"
    if token[0] == "?":
        return "[^/]"
    if not token["members"]:
        return re.escape(token[0])
    # A hyphen keeps its meaning; everything else that a class could mean to `re` is escaped.
    members = "".join(c if c == "-" or c.isalnum() else f"\\{c}" for c in token["members"])
    return f"(?!/)[{'^' if token['negation'] else ''}{members}]"
