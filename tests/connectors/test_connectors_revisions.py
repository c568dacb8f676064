"""Which commit and which paths of a repository are meant, and what is said where there are none."""

import pickle
from pathlib import Path

import pytest
from git_plumbing import (
    commit_files,
    content_segments,
    new_repository,
    read,
    run_git,
)

from connectors.repository import open_repository
from longdoc.errors import SourceError
from longdoc.records import Selection


def test_a_linked_work_tree_has_its_own_head_and_the_same_address(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    first = commit_files(folder, {"a": b"1\n"})
    commit_files(folder, {"a": b"2\n"})
    run_git(folder, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"), first)
    main, linked = (open_repository(str(path), Selection()) for path in (folder, tmp_path / "linked"))
    assert linked.ref.version == first != main.ref.version
    assert linked.ref.doc_id == main.ref.doc_id == "git:" + folder.as_uri()
    assert b"File: a\n1\n" in linked.ref.read().text


def test_a_folder_inside_means_what_the_commit_has_there(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    commit_files(folder, {"deep/a": b"1\n", "deep/er/c": b"3\n", "deeper": b"4\n", "b": b"2\n"})
    (folder / "deep").mkdir()
    ref = open_repository(str(folder / "deep"), Selection()).ref
    assert (ref.doc_id, ref.title) == (f"git:{folder.as_uri()}?path=deep", "repo/deep")
    document = ref.read()
    assert document.text == b"Repository: repo\n\nFile: deep/a\n1\nFile: deep/er/c\n3\n"
    assert document.num_bytes_source == ref.num_bytes_source == 4
    assert read(folder / ".git").text == read(folder).text


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


def test_globs_start_at_the_root_wherever_the_source_starts(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    commit_files(folder, {"src/a.py": b"a\n", "src/src/a.py": b"b\n", "src/b.txt": b"c\n", "a.py": b"d\n"})
    (folder / "src").mkdir()
    text = open_repository(str(folder / "src"), Selection(include=("src/*.py",))).ref.read().text
    assert text == b"Repository: repo\n\nFile: src/a.py\na\n"


def test_a_shallow_clone_says_that_its_history_was_cut_off(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    first = commit_files(folder, {"a": b"1\n"})
    commit_files(folder, {"a": b"2\n"}, parents=[first])
    run_git(tmp_path, "clone", "-q", "--depth=1", folder.as_uri(), "shallow")
    for revision in (first, "HEAD~1"):
        with pytest.raises(SourceError, match="history was cut off when it was cloned: `git fetch --unshallow` there"):
            read(tmp_path / "shallow", revision=revision)
        assert b"File: a\n1\n" in read(folder, revision=revision).text


def test_a_repository_whose_name_looks_like_an_option_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit_files(new_repository(tmp_path / "--version"), {"-a": b"1\n"})
    monkeypatch.chdir(tmp_path)
    assert read(Path("--version"), include=("-a",)).text == b"Repository: --version\n\nFile: -a\n1\n"


def test_an_include_that_matches_nothing_is_refused(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    commit = commit_files(folder, {"a.py": b"1\n"})
    with pytest.raises(SourceError) as caught:
        read(folder, include=("*.py", "lib/**"))
    assert str(caught.value) == (
        f"{folder}: --include 'lib/**' matches no path of commit {commit[:12]}. "
        "Globs are over paths from the repository's root; `git ls-tree -r` lists them."
    )


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
