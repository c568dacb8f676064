"""Repositories as documents: what git holds is what is read, path by path and byte by byte."""

import codecs
import hashlib
import os
import pickle
import shutil
import zlib
from pathlib import Path

import pytest
from git_plumbing import (
    EXECUTABLE,
    REGULAR,
    SUBMODULE,
    SYMLINK,
    commit_entries,
    commit_files,
    new_repository,
    run_git,
    write_blob,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.git import without_credentials
from connectors.repository import open_repository
from longdoc.encodings import encode_text
from longdoc.errors import DocumentError, SourceError
from longdoc.records import Document, Segment, Selection

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d" * 32 + b"\nsize 12345\n"
ELSEWHERE = "1234567890123456789012345678901234567890"


def read(path: Path, **selection: object) -> Document:
    return open_repository(str(path), Selection(**selection)).ref.read()  # type: ignore[arg-type]  # a test's shorthand


def content_segments(document: Document) -> dict[bytes, Segment]:
    return {s.path: s for s in document.segments if s.is_content and s.path is not None}


def git_blob_id(content: bytes) -> str:
    # https://git-scm.com/book/en/v2/Git-Internals-Git-Objects
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


NAMES = st.one_of(
    st.sampled_from(
        [b"a.txt", b"A.TXT", b"dir/b.py", b"dir/sub/c", b"-x", b"--help", b"two words", b"new\nline", b"q\"'\\"]
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
MODES = st.sampled_from([REGULAR, REGULAR, EXECUTABLE, SYMLINK, SUBMODULE])


@settings(deadline=None, max_examples=25)
@given(entries=st.dictionaries(NAMES, st.tuples(MODES, CONTENTS), max_size=7))
def test_every_path_and_byte_of_a_commit_is_in_the_ledger(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[bytes, tuple[str, bytes]]
) -> None:
    folder = new_repository(tmp_path_factory.mktemp("property") / "repo")
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
        assert segment.kind == ("symlink" if mode == SYMLINK else "file")
        assert segment.num_bytes_source == len(content)
        assert segment.source_sha256 == hashlib.sha256(content).hexdigest()
        assert segment.blob_id == ids[path] == git_blob_id(content)
        if segment.encoding is None:
            assert segment.reason in ("binary", "lfs_pointer")
            continue
        text = document.segment_text(segment).decode()
        assert encode_text(text, segment.encoding, str(segment.encoding_source)) == content
        assert segment.display_path is not None
        padding = "\n" if text and text[-1] != "\n" else ""
        expected += f"File: {segment.display_path}\n{text}{padding}".encode()
    assert document.text == expected
    assert document.num_bytes_source == sum(len(c) for mode, c in entries.values() if mode != SUBMODULE)
    shutil.rmtree(folder)


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


def test_a_linked_work_tree_has_its_own_head_and_the_same_address(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    first = commit_files(folder, {"a": b"1\n"})
    commit_files(folder, {"a": b"2\n"})
    run_git(folder, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"), first)
    main, linked = (open_repository(str(path), Selection()) for path in (folder, tmp_path / "linked"))
    assert linked.ref.version == first != main.ref.version
    assert linked.ref.doc_id == main.ref.doc_id == "git:" + folder.as_uri()
    assert b"File: a\n1\n" in linked.ref.read().text


def test_a_folder_inside_means_the_whole_repository(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    commit_files(folder, {"deep/a": b"1\n", "b": b"2\n"})
    (folder / "deep").mkdir()
    assert read(folder / "deep") == read(folder)


def test_a_revision_is_resolved_once(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    first = commit_files(folder, {"a": b"1\n"})
    run_git(folder, "tag", "-a", "v1", "-m", "annotated", first)
    ref = open_repository(str(folder), Selection(revision="v1")).ref
    assert (ref.version, ref.revision) == (first, "v1")
    commit_files(folder, {"a": b"2\n"})
    document = pickle.loads(pickle.dumps(ref)).read()
    assert (document.commit_id, document.revision) == (first, "v1")
    assert b"File: a\n1\n" in document.text


def test_globs_choose_the_text_and_are_part_of_the_identity(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    commit_files(folder, {"src/a.py": b"a\n", "src/b.txt": b"b\n", "c.py": b"c\n"})
    ref = open_repository(str(folder), Selection(include=("src/**", "c*"), exclude=("*.txt",))).ref
    again = open_repository(str(folder), Selection(include=("c*", "src/**", "c*"), exclude=("*.txt",))).ref
    assert ref.doc_id == again.doc_id == f"git:{folder.as_uri()}?include=c*&include=src/**&exclude=*.txt"
    document = ref.read()
    assert document.text == b"Repository: repo\n\nFile: c.py\nc\nFile: src/a.py\na\n"
    assert document.num_bytes_source == ref.num_bytes_source == 6
    assert {p: s.reason for p, s in content_segments(document).items()} == {
        b"c.py": None,
        b"src/a.py": None,
        b"src/b.txt": "excluded",
    }


def test_an_include_that_matches_nothing_is_refused(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    commit = commit_files(folder, {"a.py": b"1\n"})
    with pytest.raises(SourceError) as caught:
        read(folder, include=("*.py", "lib/**"))
    assert str(caught.value) == (
        f"{folder}: --include 'lib/**' matches no path of commit {commit[:12]}. "
        "Globs are over paths from the repository's root; `git ls-tree -r` lists them."
    )


def test_replacement_objects_and_git_variables_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, other = new_repository(tmp_path / "repo"), new_repository(tmp_path / "other")
    first = commit_files(folder, {"a": b"1\n"})
    run_git(folder, "replace", first, commit_files(folder, {"a": b"2\n"}, branch="fake"))
    commit_files(other, {"o": b"other\n"})
    before = read(folder)
    assert b"File: a\n1\n" in before.text
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(other / ".git" / "objects"))
    assert read(folder) == before


def test_a_repository_that_speaks_sha256_is_read(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    run_git(tmp_path / "repo", "init", "-q", "-b", "main", "--object-format=sha256")
    commit = commit_files(tmp_path / "repo", {"a": b"1\n"})
    assert len(commit) == 64
    assert read(tmp_path / "repo").text == b"Repository: repo\n\nFile: a\n1\n"


def test_objects_left_at_the_remote_are_missing_and_are_not_fetched(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    commit_files(folder, {"a": b"1\n"})
    run_git(folder, "config", "uploadpack.allowFilter", "true")
    run_git(tmp_path, "clone", "-q", "--no-checkout", "--filter=blob:none", folder.as_uri(), "partial")
    document = read(tmp_path / "partial")
    assert [(s.path, s.reason) for s in document.segments if s.path] == [(b"a", "object_missing")]
    assert run_git(tmp_path / "partial", "cat-file", "--batch-all-objects", "--batch-check").count(b"blob") == 0


def test_many_files_are_read_in_order(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    big = os.urandom(200_000).hex().encode()
    one, two = write_blob(folder, big), write_blob(folder, b"small\n")
    commit_entries(folder, {b"%04d" % n: (REGULAR, one if n % 100 == 0 else two) for n in range(1000)})
    document = read(folder)
    found = content_segments(document)
    assert [found[b"%04d" % n].blob_id for n in range(1000)] == [one if n % 100 == 0 else two for n in range(1000)]
    assert document.segment_text(found[b"0900"]) == big


@pytest.mark.parametrize(
    "content", [zlib.compress(b"blob 16\0was not damaged\n"), zlib.compress(b"blob 16\0will be damaged\n")[:12]]
)
def test_a_damaged_object_is_the_documents_fault(tmp_path: Path, content: bytes) -> None:
    folder = new_repository(tmp_path / "repo")
    name = write_blob(folder, b"will be damaged\n")
    commit_entries(folder, {b"a": (REGULAR, name)})
    ref = open_repository(str(folder), Selection()).ref
    path = folder / ".git" / "objects" / name[:2] / name[2:]
    path.chmod(0o644)
    path.write_bytes(content)
    with pytest.raises(DocumentError) as caught:
        ref.read()
    assert (caught.value.stage, caught.value.reason) == ("read", "unreadable")
    assert name in str(caught.value)


def test_a_repository_that_is_gone_is_the_documents_fault(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    commit_files(folder, {"a": b"1\n"})
    ref = open_repository(str(folder), Selection()).ref
    shutil.rmtree(folder)
    with pytest.raises(DocumentError, match="not a git repository"):
        ref.read()


def test_a_folder_that_is_no_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        SourceError, match=f"{tmp_path} is not a git repository: git says .*Name a folder that git clone"
    ):
        read(tmp_path)


def test_a_repository_without_commits_is_refused(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    with pytest.raises(SourceError) as caught:
        read(folder)
    assert str(caught.value) == f"{folder} has no commits yet. Commit something, then run again."


def test_a_head_that_names_no_commit_offers_a_branch(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    commit_files(folder, {"a": b"1\n"}, branch="trunk")
    with pytest.raises(SourceError) as caught:
        read(folder)
    assert str(caught.value) == f"{folder}: HEAD names no commit. Choose one with --revision, for example 'trunk'."


@pytest.mark.parametrize(
    "revision", ["mian", "--all", "-h", "--output=x", "HEAD:a", "", "main..main", "HEAD~5", "a\0b"]
)
def test_an_unknown_revision_is_refused_and_never_taken_for_an_option(tmp_path: Path, revision: str) -> None:
    folder = new_repository(tmp_path / "repo")
    commit_files(folder, {"a": b"1\n"})
    with pytest.raises(SourceError, match=f"{folder} has no commit that .* names"):
        read(folder, revision=revision)
    assert not (folder / "x").exists()


def test_revisions_of_similar_names_are_offered(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    commit_files(folder, {"a": b"1\n"})
    with pytest.raises(SourceError) as caught:
        read(folder, revision="mian")
    assert str(caught.value) == (
        f"{folder} has no commit that 'mian' names: git says 'fatal: Needed a single revision'. Near it: main. "
        "`git branch -a`, `git tag` and `git log` list what it has."
    )


def test_a_repository_of_another_user_shows_what_git_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = new_repository(tmp_path / "repo")
    commit_files(folder, {"a": b"1\n"})
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(SourceError) as caught:
        read(folder)
    assert "belongs to another user, so git does not trust it" in str(caught.value)
    assert f"git config --global --add safe.directory {folder}" in str(caught.value)


def test_control_characters_of_a_path_are_escaped_in_the_text(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    commit_entries(folder, {b"a\n\x1b[2J\xff": (REGULAR, write_blob(folder, b"x\n"))})
    document = read(folder)
    assert document.text == b"Repository: repo\n\nFile: a\\n\\x1b[2J\\xff\nx\n"
    assert document.segments[1].path == b"a\n\x1b[2J\xff"


def test_credentials_are_taken_out_of_messages() -> None:
    assert without_credentials("fatal: https://me:s3cret@example.org/x") == "fatal: https://example.org/x"
