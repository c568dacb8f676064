"""git as it is found: other settings, other formats, damage, and whose fault a failure is."""

import os
import pickle
import shutil
import zlib
from pathlib import Path

import pytest
from git_plumbing import (
    REGULAR,
    commit_entries,
    commit_files,
    content_segments,
    new_repository,
    read,
    run_git,
    write_blob,
)

from connectors.repository import RepositoryRef, open_repository
from longdoc.errors import DocumentError, InfrastructureError, SourceError
from longdoc.records import Selection, without_credentials
from pipelines.sources import open_sources


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
    with pytest.raises(
        DocumentError, match="is no git repository any more: it was moved or removed since it was found"
    ):
        ref.read()


def test_a_repository_of_another_user_shows_what_git_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = new_repository(tmp_path / "repo")
    commit_files(folder, {"a": b"1\n"})
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(SourceError) as caught:
        read(folder)
    assert "belongs to another user, so git does not trust it" in str(caught.value)
    assert f"\ngit config --global --add safe.directory {folder}" in str(caught.value)


@pytest.mark.parametrize("form", ["bare", "inside", "linked", "address"])
def test_every_form_of_another_users_repository_says_how_to_trust_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    folder = new_repository(tmp_path / "repo")
    commit = commit_files(folder, {"in/a": b"1\n"})
    (folder / "in").mkdir()
    run_git(tmp_path, "clone", "-q", "--bare", folder.as_uri(), "bare.git")
    run_git(folder, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"), commit)
    for name, value in (("GIT_CONFIG_GLOBAL", os.devnull), ("GIT_CONFIG_NOSYSTEM", "1"), ("LONGDOC_CACHE", "cache")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    places = {"bare": tmp_path / "bare.git", "inside": folder / "in", "linked": tmp_path / "linked"}
    with pytest.raises(SourceError, match="belongs to another user, so git does not trust it") as caught:
        open_sources([folder.as_uri() if form == "address" else str(places[form])], Selection(kind="repository"))
    assert "git config --global --add safe.directory" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("fatal: https://me:s3cret@example.org/x", "fatal: https://example.org/x"),
        ("'https://u:p@ss@h/x' denied", "'https://h/x' denied"),
        ("https://u:p/ss@h/x", "https://h/x"),
        ("https://u:p'ss\"w@h/x and ssh://git@h:22/y", "https://h/x and ssh://h:22/y"),
        ("https://h/x says me@example.org", "https://h/x says me@example.org"),
    ],
)
def test_credentials_are_taken_out_of_messages(text: str, clean: str) -> None:
    assert without_credentials(text) == clean


@pytest.fixture
def ref(tmp_path: Path) -> RepositoryRef:
    """A repository that was found while all was well."""
    folder = new_repository(tmp_path / "repo")
    commit_files(folder, {"a": b"1\n"})
    return open_repository(str(folder), Selection()).ref


def use_git(monkeypatch: pytest.MonkeyPatch, folder: Path, *, command: str, instead: str) -> None:
    """Put a git first on PATH that does something else `instead` of one command."""
    real = shutil.which("git")
    (folder / "bin").mkdir()
    script = folder / "bin" / "git"
    script.write_text(
        f'#!/bin/sh\nfor word; do if [ "$word" = {command} ]; then {instead}; fi; done\nexec {real} "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")


@pytest.mark.parametrize("command", ["ls-tree", "cat-file"])
@pytest.mark.parametrize("cause", ["Input/output error", "Stale file handle", "Cannot allocate memory"])
def test_a_bad_disk_is_no_fault_of_the_document(
    ref: RepositoryRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, cause: str
) -> None:
    use_git(monkeypatch, tmp_path, command=command, instead=f"echo 'fatal: cannot map pack: {cause}' >&2; exit 128")
    with pytest.raises(InfrastructureError) as caught:
        ref.read()
    assert caught.value.exit_code == 4
    assert str(caught.value) == (
        f"git says 'fatal: cannot map pack: {cause}'. Check the disk, mount or memory that it means, then run again."
    )


def test_what_git_says_of_a_commit_is_the_documents_fault(
    ref: RepositoryRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_git(monkeypatch, tmp_path, command="ls-tree", instead="echo 'fatal: not a tree object' >&2; exit 128")
    with pytest.raises(DocumentError, match="cannot be listed: git says 'fatal: not a tree object'"):
        ref.read()


def test_a_git_that_is_killed_is_run_again(ref: RepositoryRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_git(monkeypatch, tmp_path, command="ls-tree", instead="kill -9 $$")
    with pytest.raises(InfrastructureError, match="git was killed by signal 9"):
        ref.read()


@pytest.mark.parametrize("variable", ["HOME", "GIT_DIR"])  # with the second, git is started by `env`
def test_without_git_no_repository_can_be_opened_and_none_is_at_fault(
    ref: RepositoryRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, str(tmp_path))
    (tmp_path / "only-env").mkdir()
    (tmp_path / "only-env" / "env").symlink_to(str(shutil.which("env")))
    monkeypatch.setenv("PATH", str(tmp_path / "only-env"))
    with pytest.raises(InfrastructureError, match="git is not installed, or not on PATH"):
        ref.read()
    with pytest.raises(SourceError, match="git is not installed, or not on PATH") as caught:
        open_repository(str(tmp_path / "repo"), Selection())
    assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args
