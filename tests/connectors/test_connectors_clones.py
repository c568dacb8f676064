"""The cache of clones: its bound, what leaves first, and that what is in use never does."""

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from clones_of_tests import Make, cached, maker, open_ref, own_cache, place, used_ago
from git_plumbing import commit_files, new_repository, run_git
from git_servers import pointer_to, serve

from connectors import clones
from connectors.address import parse_address
from connectors.clones import Uses, grown
from connectors.repository import RepositoryRef
from longdoc.errors import StartError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return own_cache(tmp_path, monkeypatch)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return maker(tmp_path)


def test_what_was_used_longest_ago_leaves_when_there_is_no_room(
    make: Make, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
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


def test_a_use_without_a_fetch_counts_as_one(make: Make) -> None:
    uri = make("one")
    ref = open_ref(uri)
    for use in (lambda: open_ref(uri), ref.read, lambda: list(ref.stream())):
        used_ago(uri, 1000)
        use()
        assert time.time() - (place(uri) / "use").stat().st_mtime < 500


@pytest.mark.parametrize("is_read_in", ["this process", "another process"])
def test_what_is_in_use_stays_whatever_its_size(make: Make, monkeypatch: pytest.MonkeyPatch, is_read_in: str) -> None:
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
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = open_ref(make("first"))
    before = ref.read()
    monkeypatch.setenv("LONGDOC_CLONE_CACHE_SIZE", "0")
    open_ref(make("second"))
    assert cached() == {"second"}
    assert list(ref.stream()) == [(s, before.segment_text(s)) for s in before.segments]


def test_one_repository_that_is_larger_than_the_bound_is_read_and_that_is_said_once(
    make: Make, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LONGDOC_CLONE_CACHE_SIZE", "50kB")
    uri = make("large")
    assert open_ref(uri).read().num_bytes_source == 200_002
    said = capfd.readouterr().err
    assert said.startswith(f"{uri} alone takes 1")
    assert "KiB in the cache of clones, more than its 48.8 KiB (LONGDOC_CLONE_CACHE_SIZE); it stays until" in said
    assert said.count("\n") == 1
    assert cached() == {"large"}


def test_only_what_was_fetched_into_is_measured(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_what_a_killed_process_fetched_counts(make: Make) -> None:
    first, second = make("first"), make("second")
    open_ref(first)
    dies = (
        "import os, sys; from connectors.git_cache import _locked; from connectors.address import parse_address\n"
        "with _locked(parse_address(sys.argv[1])):\n"
        "    open(sys.argv[2], 'wb').write(bytes(700_000)); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", dies, first, place(first) / "objects" / "part"], check=False)
    open_ref(second)
    assert clones._known_size(place(first)) > 700_000


def test_folders_from_before_uses_were_noted_have_a_time_and_a_size(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make("first")
    open_ref(first)
    for name in ("use", "size"):
        (place(first) / name).unlink()
    os.utime(place(first), (1, 1))
    monkeypatch.setenv("LONGDOC_CLONE_CACHE_SIZE", "150kB")
    open_ref(make("second"))
    assert cached() == {"second"}


def test_what_a_process_that_died_while_it_evicted_left_is_swept(make: Make, cache: Path) -> None:
    left = cache / "git" / ".leaving.x-0.abc"
    (left / "objects").mkdir(parents=True)
    open_ref(make("first"))
    assert not left.exists()


def test_an_eviction_that_cannot_be_finished_harms_nobody(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a kill between the two steps: the folder is away under its name, whole or not at all."""
    first = open_ref(make("first"))
    before = first.read()
    monkeypatch.setattr(clones, "_delete", lambda aside: None)
    monkeypatch.setenv("LONGDOC_CLONE_CACHE_SIZE", "0")
    open_ref(make("second"))
    assert cached() == {"second"}
    assert first.read() == before


def test_who_waits_for_a_folder_that_is_evicted_meanwhile_gets_the_new_one(make: Make) -> None:
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


@pytest.mark.parametrize("text", ["much", "-1", "5XB", "1e9", "5 iB", "GB"])
def test_what_is_no_size_is_refused_before_anything_is_fetched(
    make: Make, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("LONGDOC_CLONE_CACHE_SIZE", text)
    with pytest.raises(StartError) as caught:
        open_ref(make("one", 10))
    assert str(caught.value) == (
        f"LONGDOC_CLONE_CACHE_SIZE={text!r} is not a size. Write it as 500MB, 20GiB or a number of bytes."
    )


def test_downloads_of_lfs_count_and_stay_while_they_are_read(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
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
