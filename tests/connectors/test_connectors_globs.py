"""What a glob means. The table is the definition in the module's docstring, case by case."""

import pytest

from connectors.globs import Globs, glob_matches
from longdoc.errors import SourceError


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.py", "a.py", True),
        ("*.py", "deep/down/a.py", True),
        ("*.py", "a.pyc", False),
        ("README*", "docs/README.md", True),
        ("longdoc/*.py", "longdoc/run.py", True),
        ("longdoc/*.py", "longdoc/cli/run.py", False),
        ("longdoc/*.py", "other/longdoc/run.py", False),
        ("longdoc/**", "longdoc/cli/run.py", True),
        ("longdoc/**", "longdoc/run.py", True),
        ("longdoc/**", "longdoc", False),
        ("longdoc/**", "longdocs/run.py", False),
        ("docs/", "docs/a/b.md", True),
        ("docs/", "docs", False),
        ("**/tests/*.py", "tests/a.py", True),
        ("**/tests/*.py", "x/y/tests/a.py", True),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**/b", "a/xb", False),
        ("**", "any/where", True),
        ("/setup.py", "setup.py", True),
        ("/setup.py", "pkg/setup.py", False),
        ("?.txt", "a.txt", True),
        ("?.txt", "é.txt", True),
        ("?.txt", "ab.txt", False),
        ("[abc].txt", "b.txt", True),
        ("[a-c].txt", "d.txt", False),
        ("[!a-c].txt", "d.txt", True),
        ("[!a-c].txt", "b.txt", False),
        ("a/[!x]b", "a//b", False),
        ("[]].txt", "].txt", True),
        ("a[b", "a[b", True),
        ("a.c", "abc", False),
        ("*.PY", "a.py", False),
        ("(a|b)+", "(a|b)+", True),
        ("[^a]", "^", True),
        ("line*", "line\nbreak", True),
    ],
)
def test_pattern(pattern: str, path: str, *, expected: bool) -> None:
    assert glob_matches(pattern, path.encode()) == expected


def test_a_name_that_is_not_utf8_can_be_matched() -> None:
    assert glob_matches("caf?.txt", b"x/caf\xe9.txt")
    assert glob_matches("*.txt", b"\xff\xfe.txt")


def test_includes_choose_and_excludes_take_away() -> None:
    globs = Globs(include=("src/**", "*.md"), exclude=("**/test_*",))
    assert [globs.wants(path) for path in (b"src/a.py", b"src/test_a.py", b"x/b.md", b"setup.py")] == [
        True,
        False,
        True,
        False,
    ]
    assert Globs(exclude=("*.lock",)).wants(b"a.py")


def test_an_impossible_class_is_refused() -> None:
    with pytest.raises(SourceError, match=r"glob '\[z-a\]' cannot be read: bad character range"):
        glob_matches("[z-a]", b"x")
