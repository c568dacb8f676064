"""Repositories as documents: what git holds is what is read, path by path and byte by byte."""

import codecs
import hashlib
import shutil
from pathlib import Path

import pytest
from git_plumbing import (
    EXECUTABLE,
    REGULAR,
    SUBMODULE,
    SYMLINK,
    commit_entries,
    commit_files,
    content_segments,
    git_blob_id,
    new_repository,
    read,
    run_git,
    write_blob,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.repository import open_repository
from longdoc.encodings import encode_text
from longdoc.records import Selection

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d" * 32 + b"\nsize 12345\n"
ELSEWHERE = "1234567890123456789012345678901234567890"


NAMES = st.one_of(
    st.sampled_from(
        [
            *(b"a.txt", b"A.TXT", b"dir/b.py", b"dir/sub/c", b"-x", b"--help", b"two words", b"new\nline", b"q\"'\\"),
            *(b"vendor/a.c", b"a.min.js", b"dir/yarn.lock", b"caf\xc3\xa9", b"cafe\xcc\x81", b"caf\xe9"),
        ]
    ),
    st.binary(min_size=1, max_size=12).filter(
        lambda raw: not {b"", b".", b".."} & set(raw.split(b"/")) and b"\0" not in raw
    ),
).filter(lambda raw: b".git" not in raw.lower() and not {b"", b".", b".."} & set(raw.split(b"/")))
AWKWARD = [
    b"",
    b"\n",
    b"no newline",
    b"File: a.txt\nfake\n",
    b"a\r\nb\r",
    codecs.BOM_UTF8,
    POINTER,
    b"\0\1\2",
    b"caf\xe9",
]
CONTENTS = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=60).map(str.encode),
    st.text(max_size=20).map(lambda text: text.encode("utf-16", errors="ignore")),
    st.sampled_from(AWKWARD),
)
RULES = st.lists(
    st.tuples(
        st.sampled_from([b"*", b"*.txt", b"dir/**", b"[a-z]*", b"vendor/a.c"]),
        st.sampled_from(
            [
                *(b"binary", b"-text", b"text", b"-diff", b"-binary", b"linguist-generated", b"-linguist-vendored"),
                *(b"working-tree-encoding=" + name for name in (b"UTF-16LE", b"latin-1", b"\xff")),
            ]
        ),
    ),
    max_size=3,
).map(lambda rules: b"".join(b" ".join(rule) + b"\n" for rule in rules))
MODES = st.sampled_from([REGULAR, REGULAR, EXECUTABLE, SYMLINK, SUBMODULE])


@settings(deadline=None, max_examples=25)
@given(entries=st.dictionaries(NAMES, st.tuples(MODES, CONTENTS), max_size=7), rules=RULES)
def test_every_path_and_byte_of_a_commit_is_in_the_ledger(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[bytes, tuple[str, bytes]], rules: bytes
) -> None:
    folder = new_repository(tmp_path_factory.mktemp("property") / "repo")
    entries = {**entries, b".gitattributes": (REGULAR, rules)}
    # A path cannot be a file and a folder.
    entries = {p: e for p, e in entries.items() if not any(other.startswith(p + b"/") for other in entries)}
    ids = {p: ELSEWHERE if mode == SUBMODULE else write_blob(folder, c) for p, (mode, c) in entries.items()}
    commit = commit_entries(folder, {path: (mode, ids[path]) for path, (mode, _) in entries.items()})
    document = read(folder)
    assert document.commit_id == commit
    found = content_segments(document)
    assert list(found) == sorted(entries)
    expected = b"Repository: repo\n\n"
    for path in sorted(entries):
        (mode, content), segment = entries[path], found[path]
        if mode == SUBMODULE:
            assert (segment.kind, segment.reason, segment.num_bytes_source) == ("submodule", "submodule", 0)
            continue
        assert segment.kind in (["symlink"] if mode == SYMLINK else ["file", "vendored_file", "generated_file"])
        assert segment.num_bytes_source == len(content)
        assert segment.source_sha256 == hashlib.sha256(content).hexdigest()
        assert segment.blob_id == ids[path] == git_blob_id(content)
        if segment.encoding is None:
            assert segment.reason in ("binary", "binary_by_attribute", "lfs_pointer")
            continue
        text = document.segment_text(segment).decode()
        assert encode_text(text, segment.encoding, str(segment.encoding_source)) == content
        assert segment.display_path is not None
        padding = "\n" if text and text[-1] != "\n" else ""
        expected += f"File: {segment.display_path}\n{text}{padding}".encode()
    assert document.text == expected
    assert document.num_bytes_source == sum(len(c) for mode, c in entries.values() if mode != SUBMODULE)
    streamed = list(open_repository(str(folder), Selection()).ref.stream())
    assert streamed == [(segment, document.segment_text(segment)) for segment in document.segments]
    shutil.rmtree(folder)


def test_there_is_no_limit_of_size_and_no_first_block_decides(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    content = b"x" * 8191 + "é".encode() + b"y" * (12 << 20)
    commit_files(folder, {"a": content})
    document = read(folder)
    assert document.segment_text(content_segments(document)[b"a"]) == content


def test_header_content_and_padding_share_a_unit(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    commit_files(folder, {"a": b"x", "b": b"y\n", "c": b""})
    assert [(s.kind, s.unit, s.is_content, s.num_bytes_source) for s in read(folder).segments] == [
        ("repository_header", 0, True, 0),
        ("file_header", 1, False, 0),
        ("file", 1, True, 1),
        ("padding", 1, False, 0),
        ("file_header", 2, False, 0),
        ("file", 2, True, 2),
        ("file_header", 3, False, 0),
        ("file", 3, True, 0),
    ]


def test_what_is_not_text_is_one_segment_with_a_reason(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    missing = git_blob_id(b"never stored")
    entries = {
        b"binary": (REGULAR, write_blob(folder, b"\x7fELF\0\0")),
        b"late NUL": (REGULAR, write_blob(folder, b"a" * 100_000 + b"\0")),
        b"model.bin": (REGULAR, write_blob(folder, POINTER)),
        b"gone": (REGULAR, missing),
        b"sub": (SUBMODULE, ELSEWHERE),
        b"secret.key": (REGULAR, write_blob(folder, b"hush\n")),
        b"mark": (REGULAR, write_blob(folder, codecs.BOM_UTF8)),
    }
    commit_entries(folder, entries)
    document = read(folder, exclude=("*.key",))
    facts = {
        path: (s.reason, s.title, s.num_bytes_source, s.blob_id, s.text_byte_start == s.text_byte_stop)
        for path, s in content_segments(document).items()
    }
    assert facts == {
        b"binary": ("binary", None, 6, entries[b"binary"][1], True),
        b"late NUL": ("binary", None, 100_001, entries[b"late NUL"][1], True),
        b"model.bin": (
            "lfs_pointer",
            f"oid sha256:{'4d' * 32}, size 12345",
            len(POINTER),
            entries[b"model.bin"][1],
            True,
        ),
        b"gone": ("object_missing", None, 0, missing, True),
        b"sub": ("submodule", f"commit {ELSEWHERE}", 0, ELSEWHERE, True),
        b"secret.key": ("excluded", None, 5, entries[b"secret.key"][1], True),
        b"mark": ("empty", None, 3, entries[b"mark"][1], True),
    }
    assert content_segments(document)[b"secret.key"].source_sha256 is None
    assert [s.path for s in document.segments if s.kind == "file_header"] == [b"mark"]


@pytest.mark.parametrize(
    "content",
    [POINTER + b"x" * 1024, POINTER.replace(b"sha256", b"md5xxx"), b"# " + POINTER, POINTER.replace(b"size", b"sire")],
)
def test_what_only_resembles_an_lfs_pointer_is_text(tmp_path: Path, content: bytes) -> None:
    folder = new_repository(tmp_path / "repo")
    commit_files(folder, {"a": content})
    segment = content_segments(read(folder))[b"a"]
    assert (segment.reason, segment.encoding) == (None, "utf-8")


def test_a_symlink_is_its_own_text_and_is_never_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret of the host")
    folder = new_repository(tmp_path / "repo")
    commit_entries(folder, {b"link": (SYMLINK, write_blob(folder, b"../outside"))})
    run_git(folder, "reset", "-q", "--hard")
    document = read(folder)
    assert document.text == b"Repository: repo\n\nFile: link\n../outside\n"
    assert content_segments(document)[b"link"].kind == "symlink"


def test_the_work_tree_the_index_and_ignore_rules_do_not_matter(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    commit_files(
        folder, {".gitignore": b"*\n", ".gitattributes": b"* text eol=crlf\n", "a.txt": b"one\n", "A.TXT": b"two\n"}
    )
    before = read(folder)
    (folder / "a.txt").write_text("changed")
    (folder / "new.txt").write_text("untracked")
    run_git(folder, "add", "-f", "new.txt")
    assert read(folder) == before
    assert b"File: A.TXT\ntwo\nFile: a.txt\none\n" in before.text


def test_equal_trees_give_equal_texts_wherever_the_clone_is(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "here" / "repo")
    commit_files(folder, {"a": b"x\n"})
    (tmp_path / "there").mkdir()
    run_git(tmp_path, "clone", "-q", "--bare", str(folder), str(tmp_path / "there" / "repo.git"))
    run_git(folder, "read-tree", "HEAD")
    run_git(folder, "commit", "-q", "--allow-empty", "-m", "same tree")
    first, second = read(folder), read(tmp_path / "there" / "repo.git")
    assert first.commit_id != second.commit_id
    assert first.text == second.text == b"Repository: repo\n\nFile: a\nx\n"
    assert first.title == second.title == "repo"


def test_control_characters_of_a_path_are_escaped_in_the_text(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    commit_entries(folder, {b"a\n\x1b[2J\xff": (REGULAR, write_blob(folder, b"x\n"))})
    document = read(folder)
    assert document.text == b"Repository: repo\n\nFile: a\\n\\x1b[2J\\xff\nx\n"
    assert document.segments[1].path == b"a\n\x1b[2J\xff"
