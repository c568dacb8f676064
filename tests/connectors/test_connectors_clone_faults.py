"""Clones that are damaged, half-fetched or cannot be written, and repositories that are not what they were."""

import errno
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from clones_of_tests import Make, maker, open_ref, own_cache, place
from git_plumbing import commit_files, new_repository, run_git
from git_servers import serve

from connectors import clones, git_cache
from longdoc.errors import DocumentError, InfrastructureError, SourceError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return own_cache(tmp_path, monkeypatch)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return maker(tmp_path)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "an object is not what its id says": lambda git: flip(pack(git, large=True), 0.5),
    "the files are cut short": lambda git: cut(pack(git, large=True)),
    "the trees are unreadable": lambda git: flip(pack(git, large=False), 0.95),
    "the trees are cut short": lambda git: cut(pack(git, large=False)),
    "an index is cut short": lambda git: cut(pack(git, large=False).with_suffix(".idx")),
    "a ref is empty": lambda git: next((git / "refs/longdoc/commits").iterdir()).write_bytes(b""),
    "HEAD is empty": lambda git: (git / "HEAD").write_bytes(b""),
    "the configuration is no text": lambda git: (git / "config").write_bytes(b"\0\1x"),
    "the list of cuts is no list": lambda git: (git / "shallow").write_bytes(b"nonsense\n"),
}


def pack(git_dir: Path, *, large: bool) -> Path:
    packs = sorted((git_dir / "objects" / "pack").glob("*.pack"), key=lambda path: path.stat().st_size)
    return packs[-1 if large else 0]


def flip(path: Path, at: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(len(content) * at)] ^= 0xFF
    path.chmod(0o644)
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("when", "damage"),
    [
        *(("before it is found", damage) for damage in DAMAGE),
        *(("before it is read", damage) for damage in list(DAMAGE)[:3]),
    ],
)
def test_a_damaged_clone_is_fetched_again_once(
    make: Make, capfd: pytest.CaptureFixture[str], damage: str, when: str
) -> None:
    uri = make("one", 3000)
    ref = open_ref(uri)
    before = ref.read()
    DAMAGE[damage](place(uri) / "objects")
    if when == "before it is found":
        ref = open_ref(uri)
    assert list(ref.stream()) == [(s, before.segment_text(s)) for s in before.segments]
    assert capfd.readouterr().err.count("what was fetched into it is damaged; it is removed, and fetched again\n") == 1
    capfd.readouterr()
    assert open_ref(uri).read() == before
    assert capfd.readouterr().err == ""


def test_damage_in_the_middle_of_a_document_does_not_repeat_what_was_given(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = make("one", 3000)
    ref = open_ref(uri)
    before = ref.read()
    assert [s.kind for s in before.segments[:3]] == ["repository_header", "file_header", "file"]
    pieces = ref.stream()
    given = [next(pieces) for _ in range(3)]
    shutil.rmtree(place(uri) / "objects" / "objects")
    monkeypatch.setattr("connectors.laying._object_id", once_wrong("connectors.laying._object_id"))
    given += list(pieces)
    assert given == [(s, before.segment_text(s)) for s in before.segments]


def once_wrong(name: str) -> Callable[..., str]:
    """The function, which answers wrong the first time."""
    module, _, attribute = name.rpartition(".")
    real, calls = getattr(sys.modules[module], attribute), []

    def wrong(*arguments: object, **named: object) -> str:
        calls.append(1)
        return "0" * 40 if len(calls) == 1 else str(real(*arguments, **named))

    return wrong


def test_a_clone_that_is_damaged_again_is_an_error_of_the_document(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = open_ref(make("one", 3000))
    monkeypatch.setattr("connectors.laying._object_id", lambda content, like: "0" * 40)
    with pytest.raises(DocumentError, match="is damaged: its content has another id") as caught:
        ref.read()
    assert (caught.value.stage, caught.value.reason) == ("read", "unreadable")


def test_a_damaged_repository_of_the_user_is_never_touched(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "own.git", bare=True)
    commit_files(folder, {"a": b"a\n" * 2000})
    run_git(folder, "repack", "-adq")
    ref = open_ref(str(folder))
    cut(pack(folder, large=True))
    files = sorted(path for path in folder.rglob("*"))
    with pytest.raises(DocumentError, match="git fsck"):
        ref.read()
    assert sorted(path for path in folder.rglob("*")) == files


def test_what_a_killed_git_left_is_cleared_and_a_fresh_lock_is_waited_for(
    make: Make, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    uri = make("one")
    open_ref(uri)
    git_dir = place(uri) / "objects"
    left = [git_dir / "shallow.lock", git_dir / "objects" / "pack" / "tmp_pack_x", place(uri) / ".history.x" / "HEAD"]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    os.utime(left[1], (1, 1))
    soon = time.time() + 600  # young however long this test takes
    os.utime(left[0], (soon, soon))
    monkeypatch.setattr(git_cache, "_STALE_SECONDS", 0.3)
    monkeypatch.setattr(git_cache, "_LOOK_SECONDS", 0.05)
    commit_files(Path(uri.removeprefix("file://")), {"new": b"new\n"})
    assert b"File: new\nnew\n" in open_ref(uri, revision="HEAD~0").read().text
    assert not any(path.exists() for path in left)
    said = capfd.readouterr().err
    assert said == f"{uri}: a git that was stopped may still be fetching from it; waiting up to a minute\n"


def test_a_full_disk_is_told_wherever_the_cache_is_written(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    uri = make("one")
    for module, name in (
        (git_cache, "make_folder"),
        (git_cache.tempfile, "mkdtemp"),
        (git_cache, "_make_bare"),
        (git_cache, "run"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, full)
            with pytest.raises(InfrastructureError, match=r"No space left on device.*LONGDOC_CACHE"):
                open_ref(uri)
    with monkeypatch.context() as patch:
        patch.setattr(clones, "replace_file", full)
        assert open_ref(uri).read().num_bytes_source == 200_002  # sizes are not kept, and found again
    shutil.rmtree(place(uri))


def test_a_fetch_that_fails_leaves_nothing_half_fetched(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """git leaves what it could not finish, which on a full disk is all there was."""
    uri = make("one")

    def fail(git_dir: str, *_: object, **__: object) -> None:
        left = Path(git_dir) / "objects" / "pack" / "tmp_pack_x"
        left.parent.mkdir(exist_ok=True)
        left.write_bytes(bytes(1000))
        raise InfrastructureError("No space left on device")

    monkeypatch.setattr(git_cache, "fetch", fail)
    with pytest.raises(InfrastructureError, match="No space left on device"):
        open_ref(uri)
    assert list(place(uri).rglob("tmp_pack_*")) == []


def test_a_cache_that_may_only_be_read_serves_what_it_has(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = make("one")
    before = open_ref(uri).read()

    def read_only(*_: object, **__: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(clones, "_hold", read_only)
    assert open_ref(f"{uri}@{before.commit_id}").read().text == before.text


def test_a_repository_that_moved_is_read_from_where_it_is(
    tmp_path: Path, make: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    make("new", 100)
    with serve(tmp_path / "served") as server:
        server.moved["/old.git"] = f"{server.url}/new.git"
        ref = open_ref(f"{server.url}/old.git")
        assert (ref.doc_id, ref.title) == (f"git:{server.url}/old.git", "old")
        assert b"File: b\nb\n" in ref.read().text
    said = capfd.readouterr().err
    assert said == (
        f"{server.url}/old.git has moved to {server.url}/new.git/; it is read from there, under the address that was "
        "given\n"
    )


def test_a_password_does_not_follow_a_repository_to_another_host(tmp_path: Path, make: Make) -> None:
    make("new", 100)
    with serve(tmp_path / "served") as old, serve(tmp_path / "served", login="me:s3cr3t") as new:
        old.moved["/old.git"] = f"http://localhost:{new.port}/new.git"
        with pytest.raises(SourceError, match="it does not let this user in") as caught:
            open_ref(f"http://me:s3cr3t@127.0.0.1:{old.port}/old.git")
        assert new.passwords == []
        assert "s3cr3t" not in str(caught.value)


def test_a_default_branch_that_was_renamed(tmp_path: Path, make: Make) -> None:
    uri = make("one", 100)
    folder = tmp_path / "served" / "one.git"
    before = open_ref(uri)
    run_git(folder, "branch", "-m", "main", "trunk")
    assert open_ref(uri) == before  # git moves HEAD along
    run_git(folder, "symbolic-ref", "HEAD", "refs/heads/main")  # as a server does that is told of the branch alone
    for revision, message in (
        (None, f"{uri}: its HEAD names a branch that is not there. Choose another with --revision: trunk."),
        ("main", f"{uri} has no commit that 'main' names: no branch, tag or commit has that name. It has trunk. "),
    ):
        with pytest.raises(SourceError) as caught:
            open_ref(uri, revision=revision)
        assert str(caught.value).startswith(message)
    assert open_ref(uri, revision="trunk").version == before.version


def test_a_commit_that_a_rewritten_history_took_away_is_told_as_that(tmp_path: Path, make: Make) -> None:
    uri = make("one", 100)
    folder = tmp_path / "served" / "one.git"
    ref = open_ref(uri)
    before = ref.read()
    commit_files(folder, {"other": b"x\n"})
    run_git(folder, "gc", "-q", "--prune=now")
    assert ref.read() == before  # it is in the cache, and needs no server
    shutil.rmtree(place(uri))
    with pytest.raises(DocumentError) as caught:
        ref.read()
    assert (caught.value.stage, caught.value.reason) == ("read", "unreadable")
    assert str(caught.value).startswith(
        f"{uri} no longer has commit {ref.version}, or one that it needs: its history was rewritten since. Run again"
    )
    assert b"File: other\n" in open_ref(uri).read().text
