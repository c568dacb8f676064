"""Attributes of a commit's paths: what git says of them is what is said here."""

import os
from pathlib import Path

import pytest
from git_plumbing import REGULAR, commit_entries, new_repository, run_git, write_blob
from hypothesis import example, given, settings
from hypothesis import strategies as st

from connectors.attributes import Attributes

PATHS = (
    b"a",
    b"a.x",
    b"A.x",
    b".x",
    b"d/a.x",
    b"d/e/a",
    b"d/e/a.x.y",
    b"e/a",
    b"d/e/[a]",
    b"d e/a b",
    b"d/*",
    b"d/a\\b",
    b"x/\xe9",
)


def by_git(folder: Path, files: dict[bytes, bytes]) -> dict[bytes, dict[bytes, bytes]]:
    """What `git check-attr` says of every path, by its own words."""
    empty = write_blob(folder, b"")
    entries = dict.fromkeys(PATHS, (REGULAR, empty)) | {
        path: (REGULAR, write_blob(folder, content)) for path, content in files.items()
    }
    commit_entries(folder, entries)
    index = {"GIT_INDEX_FILE": str(folder / ".git" / "test-index"), "GIT_DIR": str(folder / ".git")}
    arguments = ["-c", f"core.attributesFile={os.devnull}", "check-attr", "--cached", "-z", "--stdin", "-a"]
    fields = run_git(folder, *arguments, stdin=b"\0".join(PATHS) + b"\0", **index).split(b"\0")[:-1]
    found: dict[bytes, dict[bytes, bytes]] = {path: {} for path in PATHS}
    for path, name, value in zip(fields[::3], fields[1::3], fields[2::3], strict=True):
        found[path][name] = value
    return found


def by_us(files: dict[bytes, bytes]) -> dict[bytes, dict[bytes, bytes]]:
    words = {True: b"set", False: b"unset"}
    return {
        path: {
            name: words[state] if isinstance(state, bool) else state or b""
            for name, state in Attributes(files).of(path).items()
        }
        for path in PATHS
    }


PATTERN = st.one_of(
    st.sampled_from(
        rb"""* *.x a /a d/a.x d/** **/a **/e/* d/*/a [a-c]* d/ !a [!a]* "d\040e/a\040b" [[:upper:]]* \a d/[*] a**x **
        **.x d/**/a "x/\351" [attr]m []a]* [a d/\* [^x]* *[.]x ?.x d?e/a* [[:x:]a] [a-]""".split()
    ),
    st.text(alphabet="ade.x*?/[]!^-\\", min_size=1, max_size=7).map(str.encode),
)
WORD = st.sampled_from(
    [
        b"text",
        b"-text",
        b"!text",
        b"text=auto",
        b"binary",
        b"-binary",
        b"!binary",
        b"m",
        b"-m",
        b"diff",
        b"-diff",
        b"q=",
        b"--q",
    ]
)
LINE = st.builds(
    lambda pattern, words, between: pattern + between + between.join(words),
    PATTERN,
    st.lists(WORD, max_size=3),
    st.sampled_from([b" ", b"\t ", b"  "]),
)
FILE = st.lists(
    st.one_of(LINE, st.sampled_from([b"", b"# text", b"[attr]m text -diff q=1", b"[attr] m -text"])), max_size=5
).map(b"\n".join)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_repository(tmp_path_factory.mktemp("attributes") / "repo")


@settings(max_examples=40)
@given(root=FILE, inner=FILE, deep=FILE)
@example(root=b"[attr]m text -diff\n* m\n*.x binary\n", inner=b"*.x !text\n", deep=b"a -binary diff")
@example(root=b"*.x text\r\na q=" + b"x" * 2040 + b"\na diff", inner=b"/a.x text", deep=b"[attr]m q\n* m")
def test_what_git_says_of_a_path_is_said_here(folder: Path, root: bytes, inner: bytes, deep: bytes) -> None:
    files = {b".gitattributes": root, b"d/.gitattributes": inner, b"d/e/.gitattributes": deep}
    assert by_us(files) == by_git(folder, files)


def test_a_byte_order_mark_is_no_part_of_the_first_pattern_as_in_a_work_tree() -> None:
    assert Attributes({b".gitattributes": b"\xef\xbb\xbf*.x text\n"}).of(b"a.x") == {b"text": True}


def test_a_pattern_made_to_cost_time_costs_none() -> None:
    stars = b"*a" * 60 + b"b text\n" + b"**/a/" * 60 + b"b text\n" + b"[" * 2000 + b" text\n"
    attributes = Attributes({b".gitattributes": stars})
    assert attributes.of(b"a" * 250 + b"c") == {}
    assert attributes.of(b"/".join([b"a"] * 500) + b"/c") == {}
