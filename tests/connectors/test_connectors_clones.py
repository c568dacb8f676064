"""The cache of clones: its bound, what is in use, what killed processes and bad disks leave in it."""

import contextlib
import errno
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from git_plumbing import commit_files, new_repository, run_git
from git_servers import pointer_to, serve

from connectors import clones, git_cache, remote
from connectors.address import parse_address
from connectors.clones import Uses, cache_place, clones_folder, grown
from connectors.repository import RepositoryRef, RepositorySource
from longdoc.errors import DocumentError, InfrastructureError, SourceError, StartError
from longdoc.files import cache_size, shown_size
from longdoc.records import Selection
from pipelines.sources import open_sources


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and none of the user's settings."""
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("no_proxy", "*")
    for said in (remote._note_once, clones._say_too_large):
        said.cache_clear()
    return tmp_path / "cache"


@pytest.fixture
def make(tmp_path: Path) -> Callable[[str, int], str]:
    """Make a repository with a file of so many bytes that nothing compresses; its address."""

    def make(name: str, num_bytes: int = 100_000) -> str:
        folder = new_repository(tmp_path / "served" / f"{name}.git", bare=True)
        run_git(folder, "config", "uploadpack.allowFilter", "true")
        commit_files(folder, {"a": os.urandom(num_bytes).hex().encode(), "b": b"b\n"})
        return folder.as_uri()

    return make


def open_ref(argument: str, **selection: object) -> RepositoryRef:
    (source,) = open_sources([argument], Selection(**selection))  # type: ignore[arg-type]  # a test's shorthand
    assert isinstance(source, RepositorySource)
    return source.ref


def place(uri: str) -> Path:
    return cache_place(parse_address(uri))


def cached() -> set[str]:
    return {folder.name.rpartition("-")[0] for folder in clones_folder().iterdir() if not folder.name.startswith(".")}


def used_ago(uri: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(place(uri) / "use", (then, then))


def test_what_was_used_longest_ago_leaves_when_there_is_no_room(
    make: Callable[..., str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LONGDOC_CLONE_CACHE_SIZE", "300kB")
    first, second = make("first"), make("second")
    before = open_ref(first).read()
    open_ref(second)
    used_ago(first, 100)
    used_ago(second, 200)
    open_ref(first)  # no fetch, and yet a use
    used_ago(second, 50)
    used_ago(first, 60)
    capfd.readouterr()
    open_ref(make("third"))
    assert cached() == {"second", "third"}
    said = capfd.readouterr().err
    assert said.endswith("to keep it below 293.0 KiB (LONGDOC_CLONE_CACHE_SIZE): first\n")
    assert said.count("\n") == 1
    assert open_ref(first).read() == before  # it is fetched again
    assert "third" in cached()


def test_a_use_without_a_fetch_counts_as_one(make: Callable[..., str]) -> None:
    uri = make("one")
    ref = open_ref(uri)
    for use in (lambda: open_ref(uri), ref.read, lambda: list(ref.stream())):
        used_ago(uri, 1000)
        use()
        assert time.time() - (place(uri) / "use").stat().st_mtime < 500


@pytest.mark.parametrize("is_read_in", ["this process", "another process"])
def test_what_is_in_use_stays_whatever_its_size(
    make: Callable[..., str], monkeypatch: pytest.MonkeyPatch, is_read_in: str
) -> None:
    first, second = make("first"), make("second")
    ref = open_ref(first)
    used_ago(first, 1000)
    monkeypatch.setenv("LONGDOC_CLONE_CACHE_SIZE", "1")
    with reading(first, ref, in_process=is_read_in == "this process"):
        used_ago(first, 1000)
        open_ref(second)
        assert cached() == {"first", "second"}
    used_ago(first, 1000)
    open_ref(make("third"))
    assert cached() == {"third"}


@contextlib.contextmanager
def reading(uri: str, ref: RepositoryRef, *, in_process: bool) -> Iterator[None]:
    """Somebody is in the middle of a document."""
    if in_process:
        pieces = ref.stream()
        next(pieces)
        next(pieces)
        yield
        pieces.close()  # type: ignore[attr-defined]  # a generator
        return
    program = "import sys, fcntl; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_SH); print(flush=True); input()"
    command = [sys.executable, "-c", program, str(place(uri) / "use")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.communicate(b"\n")


def test_a_document_whose_clone_was_evicted_since_it_was_found_is_fetched_again(
    make: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = open_ref(make("first"))
    before = ref.read()
    monkeypatch.setenv("LONGDOC_CLONE_CACHE_SIZE", "0")
    open_ref(make("second"))
    assert cached() == {"second"}
    assert list(ref.stream()) == [(s, before.segment_text(s)) for s in before.segments]


def test_one_repository_that_is_larger_than_the_bound_is_read_and_that_is_said_once(
    make: Callable[..., str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LONGDOC_CLONE_CACHE_SIZE", "50kB")
    uri = make("large")
    assert open_ref(uri).read().num_bytes_source == 200_002
    said = capfd.readouterr().err
    assert said.startswith(f"{uri} alone takes 1")
    assert "KiB in the cache of clones, more than its 48.8 KiB (LONGDOC_CLONE_CACHE_SIZE); it stays until" in said
    assert said.count("\n") == 1
    assert cached() == {"large"}


def test_only_what_was_fetched_into_is_measured(make: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    first = make("first")
    open_ref(first)
    measured: list[str] = []
    real = clones._measured
    monkeypatch.setattr(clones, "_measured", lambda folder: measured.append(folder.name) or real(folder))
    open_ref(first)
    assert measured == []
    second = make("second")
    open_ref(second)
    assert set(measured) == {place(second).name}
    (place(first) / "size").write_text("a power cut")
    grown(parse_address(second))
    assert place(first).name in measured
    assert int((place(first) / "size").read_text()) > 50_000


def test_folders_from_before_uses_were_noted_have_a_time_and_a_size(
    make: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make("first")
    open_ref(first)
    for name in ("use", "size"):
        (place(first) / name).unlink()
    os.utime(place(first), (1, 1))
    monkeypatch.setenv("LONGDOC_CLONE_CACHE_SIZE", "150kB")
    open_ref(make("second"))
    assert cached() == {"second"}


def test_what_a_process_that_died_while_it_evicted_left_is_swept(make: Callable[..., str], cache: Path) -> None:
    left = cache / "git" / ".leaving.x-0.abc"
    (left / "objects").mkdir(parents=True)
    open_ref(make("first"))
    assert not left.exists()


def test_an_eviction_that_cannot_be_finished_harms_nobody(
    make: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill between the two steps: the folder is away under its name, whole or not at all."""
    first = open_ref(make("first"))
    before = first.read()
    monkeypatch.setattr(clones, "_delete", lambda aside: None)
    monkeypatch.setenv("LONGDOC_CLONE_CACHE_SIZE", "0")
    open_ref(make("second"))
    assert cached() == {"second"}
    assert first.read() == before


def test_who_waits_for_a_folder_that_is_evicted_meanwhile_gets_the_new_one(make: Callable[..., str]) -> None:
    uri = make("first")
    before = open_ref(uri).read()
    old = place(uri)
    real = fcntl.flock

    def evicted_first(descriptor: int, operation: int) -> None:
        if old.exists():
            old.rename(old.with_name(".leaving.now"))
        real(descriptor, operation)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clones.fcntl, "flock", evicted_first)
        with Uses() as uses:
            uses.hold(parse_address(uri))
            assert old.is_dir()
    assert open_ref(uri).read() == before


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
    make: Callable[..., str], capfd: pytest.CaptureFixture[str], damage: str, when: str
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
    make: Callable[..., str], monkeypatch: pytest.MonkeyPatch
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


def test_a_clone_that_is_damaged_again_is_an_error_of_the_document(
    make: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_repository_of_the_user_that_is_gone_before_it_is_read_is_told_as_that(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "own.git", bare=True)
    commit_files(folder, {"a": b"a\n"})
    ref = open_ref(str(folder))
    folder.rename(tmp_path / "elsewhere.git")
    with pytest.raises(DocumentError, match=f"{folder} is no git repository any more: it was moved or removed") as gone:
        ref.read()
    assert (gone.value.stage, gone.value.reason) == ("read", "unreadable")


def test_what_a_killed_git_left_is_cleared_and_a_fresh_lock_is_waited_for(
    make: Callable[..., str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    uri = make("one")
    open_ref(uri)
    git_dir = place(uri) / "objects"
    left = [git_dir / "shallow.lock", git_dir / "objects" / "pack" / "tmp_pack_x", place(uri) / ".history.x" / "HEAD"]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    os.utime(left[1], (1, 1))
    monkeypatch.setattr(git_cache, "_STALE_SECONDS", 0.3)
    monkeypatch.setattr(git_cache, "_LOOK_SECONDS", 0.05)
    commit_files(Path(uri.removeprefix("file://")), {"new": b"new\n"})
    assert b"File: new\nnew\n" in open_ref(uri, revision="HEAD~0").read().text
    assert not any(path.exists() for path in left)
    said = capfd.readouterr().err
    assert said == f"{uri}: a git that was stopped may still be fetching from it; waiting up to a minute\n"


def test_a_full_disk_is_told_wherever_the_cache_is_written(
    make: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_fetch_that_fails_leaves_nothing_half_fetched(
    make: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_cache_that_may_only_be_read_serves_what_it_has(
    make: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = make("one")
    before = open_ref(uri).read()

    def read_only(*_: object, **__: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(clones, "_hold", read_only)
    assert open_ref(f"{uri}@{before.commit_id}").read().text == before.text


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("500MB", 500_000_000),
        ("20GiB", 20 << 30),
        ("1.5 kB", 1500),
        ("12", 12),
        ("0", 0),
        ("7B", 7),
        ("2t", 2 * 10**12),
        ("", 20 << 30),
    ],
)
def test_sizes(monkeypatch: pytest.MonkeyPatch, text: str, num_bytes: int) -> None:
    monkeypatch.setenv("LONGDOC_CLONE_CACHE_SIZE", text)
    assert cache_size("LONGDOC_CLONE_CACHE_SIZE") == num_bytes


@pytest.mark.parametrize("text", ["much", "-1", "5XB", "1e9", "5 iB", "GB"])
def test_what_is_no_size_is_refused_before_anything_is_fetched(
    make: Callable[..., str], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("LONGDOC_CLONE_CACHE_SIZE", text)
    with pytest.raises(StartError) as caught:
        open_ref(make("one", 10))
    assert str(caught.value) == (
        f"LONGDOC_CLONE_CACHE_SIZE={text!r} is not a size. Write it as 500MB, 20GiB or a number of bytes."
    )


def test_sizes_are_shown_as_they_are_written() -> None:
    assert [shown_size(n) for n in (5, 1536, 20 << 30, 3 << 40)] == ["5 B", "1.5 KiB", "20.0 GiB", "3.0 TiB"]


def test_downloads_of_lfs_count_and_stay_while_they_are_read(
    tmp_path: Path, make: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a clone that the user made: nothing else of its address is in use."""
    content = os.urandom(60_000).hex().encode()
    folder = new_repository(tmp_path / "served" / "lfs.git", bare=True)
    commit_files(folder, {"big": pointer_to(content)})
    with serve(folder.parent) as server:
        uri = f"{server.url}/lfs.git"
        server.add_lfs(content)
        run_git(tmp_path, "clone", "-q", uri, str(tmp_path / "mine"))
        monkeypatch.setenv("LONGDOC_CLONE_CACHE_SIZE", "1")
        pieces = open_ref(str(tmp_path / "mine"), lfs=True).stream()
        given = [next(pieces), next(pieces)]
        used_ago(uri, 1000)
        open_ref(make("other"))
        assert content in [text for _, text in [*given, *pieces]]
    assert int((place(uri) / "size").read_text()) >= 120_000


def test_a_repository_that_moved_is_read_from_where_it_is(
    tmp_path: Path, make: Callable[..., str], capfd: pytest.CaptureFixture[str]
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


def test_a_password_does_not_follow_a_repository_to_another_host(tmp_path: Path, make: Callable[..., str]) -> None:
    make("new", 100)
    with serve(tmp_path / "served") as old, serve(tmp_path / "served", login="me:s3cr3t") as new:
        old.moved["/old.git"] = f"http://localhost:{new.port}/new.git"
        with pytest.raises(SourceError, match="it does not let this user in") as caught:
            open_ref(f"http://me:s3cr3t@127.0.0.1:{old.port}/old.git")
        assert new.passwords == []
        assert "s3cr3t" not in str(caught.value)


def test_a_default_branch_that_was_renamed(tmp_path: Path, make: Callable[..., str]) -> None:
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


def test_a_commit_that_a_rewritten_history_took_away_is_told_as_that(tmp_path: Path, make: Callable[..., str]) -> None:
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
