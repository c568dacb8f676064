"""Repositories at an address: the same document as from a clone, with little fetched, once, and no secret told."""

import fcntl
import os
import pickle
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
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
from git_servers import Server, serve, write_ssh

from connectors import git_cache, remote
from connectors.address import parse_address
from connectors.clones import cache_place
from connectors.repository import RepositoryRef, RepositorySource
from longdoc.errors import DocumentError, InfrastructureError, SourceError
from longdoc.records import Selection
from pipelines.sources import open_sources

SECRET = "s3cr3t"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and none of the user's settings."""
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("no_proxy", "*")
    (tmp_path / "gitconfig").touch()
    remote._note_once.cache_clear()
    return tmp_path / "cache"


def open_ref(argument: str, **selection: object) -> RepositoryRef:
    (source,) = open_sources([argument], Selection(**selection))  # type: ignore[arg-type]  # a test's shorthand
    assert isinstance(source, RepositorySource)
    return source.ref


def refused(argument: str, **selection: object) -> str:
    with pytest.raises(SourceError) as caught:
        open_ref(argument, **selection)
    return str(caught.value)


def history(folder: Path, num_commits: int = 5) -> list[str]:
    """Commits 0, 1, ... of the branch main, each with its number in the file n."""
    commits: list[str] = []
    for number in range(num_commits):
        files: dict[str | bytes, bytes] = {"n": b"%d\n" % number, "same": b"same\n"}
        commits.append(commit_files(folder, files, parents=commits[-1:]))
    return commits


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = new_repository(tmp_path / "served" / "repo.git", bare=True)
    run_git(folder, "config", "uploadpack.allowFilter", "true")
    return folder


def cached_blobs(url: str) -> int:
    listed = run_git(cache_place(parse_address(url)) / "objects", "cat-file", "--batch-all-objects", "--batch-check")
    return listed.count(b" blob ")


def test_an_address_gives_the_document_of_a_clone(repository: Path) -> None:
    commit = history(repository)[-1]
    ref = open_ref(repository.as_uri())
    assert (ref.doc_id, ref.version, ref.title) == (f"git:{repository.as_uri()}", commit, "repo")
    document = ref.read()
    assert document.text == read(repository).text == b"Repository: repo\n\nFile: n\n4\nFile: same\nsame\n"
    assert document.num_bytes_source == ref.num_bytes_source == 7
    assert list(ref.stream()) == [(s, document.segment_text(s)) for s in document.segments]


def test_a_second_run_lists_the_refs_and_fetches_nothing(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = history(repository)
    before = open_ref(repository.as_uri()).read()

    def fetch(*_: object, **__: object) -> None:
        raise AssertionError("fetched again")

    monkeypatch.setattr(git_cache, "fetch", fetch)
    assert open_ref(repository.as_uri()).read() == before
    monkeypatch.setattr("connectors.revisions.list_refs", fetch)
    assert open_ref(f"{repository.as_uri()}@{commits[-1]}").read().text == before.text  # a whole id needs no network


def test_what_is_new_is_fetched_beside_what_is_old(repository: Path) -> None:
    commits = history(repository, 2)
    first = open_ref(repository.as_uri())
    commits.append(commit_files(repository, {"n": b"new\n", "same": b"same\n"}, parents=commits[-1:]))
    second = open_ref(repository.as_uri())
    assert (first.version, second.version) == tuple(commits[1:])
    assert b"File: n\nnew\n" in second.read().text
    assert b"File: n\n1\n" in first.read().text
    assert cached_blobs(repository.as_uri()) == 3


def test_a_branch_that_was_rewritten_is_another_commit(repository: Path) -> None:
    history(repository, 2)
    open_ref(repository.as_uri())
    rewritten = commit_files(repository, {"other": b"x\n"})
    assert open_ref(repository.as_uri()).version == rewritten


def test_revisions(repository: Path) -> None:
    commits = history(repository)
    run_git(repository, "tag", "-a", "v1", "-m", "annotated", commits[1])
    run_git(repository, "tag", "light", commits[2])
    run_git(repository, "branch", "dir/a", commits[3])
    expected = {
        **dict.fromkeys((None, "HEAD", "@", "main", "refs/heads/main", "heads/main"), 4),
        "v1": 1,
        "light": 2,
        "HEAD~3": 1,
        "main^": 3,
        "v1~1": 0,
        "v1^{commit}": 1,
        "@~1^": 2,
        "dir/a": 3,
    }
    found = {revision: open_ref(repository.as_uri(), revision=revision).version for revision in expected}
    assert {revision: commits.index(commit) for revision, commit in found.items()} == expected
    assert b"File: n\n1\n" in open_ref(f"{repository.as_uri()}@HEAD~3").read().text


def test_commits_by_their_ids(repository: Path) -> None:
    commits = history(repository)
    lost = commit_files(repository, {"lost": b"x\n"}, branch="gone")
    run_git(repository, "update-ref", "-d", "refs/heads/gone")
    open_ref(repository.as_uri())  # a shallow clone, in which none of the others is
    for revision, commit in ((commits[2], commits[2]), (commits[1][:10], commits[1]), (lost, lost)):
        assert open_ref(f"{repository.as_uri()}@{revision}").version == commit


def test_a_tag_by_its_own_id_is_the_commit_and_what_is_no_commit_is_refused(repository: Path) -> None:
    commits = history(repository)
    run_git(repository, "tag", "-a", "v1", "-m", "annotated", commits[1])
    tag = run_git(repository, "rev-parse", "v1").decode().strip()
    tree = run_git(repository, "rev-parse", "main^{tree}").decode().strip()
    run_git(repository, "tag", "no-commit", write_blob(repository, b"a key\n"))
    for _ in range(2):
        assert open_ref(repository.as_uri(), revision=tag).version == commits[1]
        for revision in (tree, "no-commit"):
            assert "it names an object that is no commit" in refused(repository.as_uri(), revision=revision)


def test_branches_that_were_rewritten_and_renamed_since(repository: Path) -> None:
    first = history(repository, 3)
    run_git(repository, "branch", "topic", first[1])
    assert open_ref(repository.as_uri(), revision=first[0][:10]).version == first[0]
    run_git(repository, "update-ref", "-d", "refs/heads/topic")
    run_git(repository, "branch", "topic/deeper", first[2])
    other = commit_files(repository, {"n": b"other\n"})
    assert open_ref(repository.as_uri(), revision=other[:10]).version == other
    assert open_ref(repository.as_uri(), revision="topic/deeper~1").version == first[1]


def test_unknown_revisions_are_refused_and_none_is_an_option(repository: Path) -> None:
    history(repository)
    uri = repository.as_uri()
    assert refused(uri, revision="mian") == (
        f"{uri} has no commit that 'mian' names: no branch, tag or commit has that name. Near it: main. "
        "`git ls-remote` with this address lists what it has."
    )
    for revision in (
        "0" * 40,
        "abcdef0",
        "HEAD~9",
        "HEAD:n",
        "main..main",
        "main@{1}",
        ":/x",
        "--upload-pack=x",
        "-h",
        "a b",
        "a\nb",
        "",
    ):
        assert f"{uri} has no commit that " in refused(uri, revision=revision)


def test_a_repository_without_commits(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "empty.git", bare=True)
    assert refused(folder.as_uri()) == (f"{folder.as_uri()} has no commits yet. Push something to it, then run again.")


def test_only_what_is_wanted_is_fetched_and_the_document_does_not_depend_on_what_was_before(repository: Path) -> None:
    commit_files(
        repository, {"src/a.py": b"a\n", "src/b.txt": b"bb\n", "c.py": b"ccc\n", ".gitattributes": b"# none\n"}
    )
    chosen = {"include": ("*.py",), "exclude": ("c*",)}
    first = open_ref(repository.as_uri(), **chosen).read()
    assert cached_blobs(repository.as_uri()) == 2  # a.py, and the attributes
    assert {path: (s.reason, s.num_bytes_source) for path, s in content_segments(first).items()} == {
        b".gitattributes": ("excluded", 0),
        b"c.py": ("excluded", 0),
        b"src/a.py": (None, 2),
        b"src/b.txt": ("excluded", 0),
    }
    assert len(open_ref(repository.as_uri()).read().text) > len(first.text)
    assert open_ref(repository.as_uri(), **chosen).read() == first


def test_a_server_that_cannot_leave_files_out_sends_them_all_and_that_is_said_once(
    repository: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    history(repository)
    run_git(repository, "config", "uploadpack.allowFilter", "false")
    assert b"File: n\n0\n" in open_ref(f"{repository.as_uri()}@HEAD~4").read().text
    said = f"{repository.as_uri()}: the server cannot leave files out, so all files of a commit are fetched\n"
    assert capfd.readouterr().err == said


def test_an_old_protocol_that_gives_nothing_by_its_id(
    repository: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gitconfig").write_text("[protocol]\n\tversion = 0\n")
    commits = history(repository)
    run_git(repository, "tag", "-a", "v1", "-m", "annotated", commits[1])
    assert open_ref(repository.as_uri()).read().commit_id == commits[4]
    assert b"File: n\n1\n" in open_ref(f"{repository.as_uri()}@v1").read().text
    assert b"File: n\n2\n" in open_ref(f"{repository.as_uri()}@{commits[2]}").read().text
    assert "the server gives no commit by its id, so more is fetched than is needed" in capfd.readouterr().err
    assert "no branch or tag leads to it" in refused(f"{repository.as_uri()}@{'1' * 40}")


def test_a_clone_that_was_cut_short_is_completed(repository: Path, cache: Path) -> None:
    history(repository)
    place = cache_place(parse_address(repository.as_uri()))
    open_ref(repository.as_uri())
    git_dir = place / "objects"
    for pack in (git_dir / "objects" / "pack").iterdir():
        pack.unlink()  # what was fetched is gone; that it was fetched stands in a ref
    (git_dir / "refs" / "longdoc" / "commits" / read(repository).commit_id).unlink()  # type: ignore[operator]
    (git_dir / "shallow.lock").touch()
    os.utime(git_dir / "shallow.lock", (time.time() - 3600,) * 2)
    (place / ".history.left").mkdir()
    assert b"File: n\n4\n" in open_ref(repository.as_uri()).read().text
    assert not (cache / "git" / "nowhere").exists()


def test_two_processes_that_fetch_the_same_take_turns(repository: Path) -> None:
    history(repository)
    program = (
        "import sys; from pipelines.sources import open_sources; from longdoc.records import Selection;"
        "sys.stdout.buffer.write(open_sources([sys.argv[1]], Selection())[0].ref.read().text)"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", program, repository.as_uri()], stdout=subprocess.PIPE) for _ in range(2)
    ]
    assert [process.communicate()[0] for process in started] == [read(repository).text] * 2


def test_a_process_that_comes_second_waits_and_says_so(repository: Path, capfd: pytest.CaptureFixture[str]) -> None:
    history(repository)
    place = cache_place(parse_address(repository.as_uri()))
    place.mkdir(parents=True)
    with (place / "lock").open("wb") as lock, ThreadPoolExecutor() as second:
        fcntl.flock(lock.fileno(), fcntl.LOCK_EX)
        opened = second.submit(open_ref, repository.as_uri())
        said = ""
        while "another process is fetching from it; waiting" not in said:
            assert not opened.done()
            said += capfd.readouterr().err
        fcntl.flock(lock.fileno(), fcntl.LOCK_UN)
        assert opened.result().read().commit_id == read(repository).commit_id


def test_another_machine_fetches_for_itself(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history(repository)
    ref = open_ref(repository.as_uri())
    sent = pickle.dumps(ref)
    before = ref.read()
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "elsewhere"))
    assert pickle.loads(sent).read() == before
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "third"))
    repository.rename(tmp_path / "moved.git")
    with pytest.raises(DocumentError, match="there is no git repository that this user can see") as caught:
        pickle.loads(sent).read()
    assert (caught.value.stage, caught.value.reason) == ("read", "unreadable")


@pytest.fixture
def server(repository: Path) -> object:
    history(repository)
    with serve(repository.parent, login=f"me:{SECRET}@/%") as found:
        yield found


def log_git(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Put a git first on PATH that notes its command line."""
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    (folder / "bin").mkdir()
    script, log = folder / "bin" / "git", folder / "bin" / "log"
    script.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec {real} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
    return log


def test_a_password_opens_a_repository_and_is_told_nobody(
    server: Server, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    log = log_git(monkeypatch, tmp_path)
    url = f"http://me:{SECRET}%40%2F%25@127.0.0.1:{server.port}/repo.git"
    ref = open_ref(f"{url}@HEAD~1")
    assert (ref.doc_id, ref.source_uri) == (f"git:{server.url}/repo.git", f"{server.url}/repo.git")
    document = pickle.loads(pickle.dumps(ref)).read()
    assert b"File: n\n3\n" in document.text
    assert SECRET not in repr(ref) + repr(document) + log.read_text() + "".join(capfd.readouterr())
    files = [path for path in cache.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if SECRET.encode() in path.read_bytes() or SECRET in str(path)]


def test_a_wrong_or_missing_password_is_told_without_it(server: Server) -> None:
    for login in ("", "me:wr0ng@", "wr0ng@"):
        message = refused(f"http://{login}127.0.0.1:{server.port}/repo.git")
        assert message.startswith(
            f"{server.url}/repo.git: listing its branches and tags: it does not let this user in:"
        )
        assert "wr0ng" not in message
        assert message.endswith(
            "Put a name and password (or token) in the address, set up a credential helper of git, or an ssh key."
        )


def test_a_token_in_the_place_of_a_name(repository: Path) -> None:
    history(repository)
    with serve(repository.parent, login=f"{SECRET}:") as server:
        assert b"File: n\n4\n" in open_ref(f"http://{SECRET}@127.0.0.1:{server.port}/repo.git").read().text


def test_the_users_own_credential_helper_is_asked(server: Server, tmp_path: Path) -> None:
    helper = f"!f() {{ test $1 = get && echo username=me && echo 'password={SECRET}@/%'; }}; f"
    run_git(tmp_path, "config", "--file", str(tmp_path / "gitconfig"), "credential.helper", helper)
    assert b"File: n\n4\n" in open_ref(f"{server.url}/repo.git").read().text


def test_ssh_in_both_forms(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history(repository)
    script, log = write_ssh(tmp_path / "ssh")
    monkeypatch.setenv("GIT_SSH_COMMAND", str(script))
    short = open_ref(f"git@host.example:{repository}@HEAD~1")
    assert (short.source_uri, short.title) == (f"git@host.example:{repository}", "repo")
    assert b"File: n\n3\n" in short.read().text
    long = open_ref(f"ssh://git@host.example:2222{repository}")
    assert long.doc_id == f"git:ssh://git@host.example:2222{repository}"
    assert b"File: n\n4\n" in long.read().text
    assert "git@host.example git-upload-pack" in log.read_text()


def test_ssh_asks_nobody(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history(repository)
    script, log = write_ssh(tmp_path / "ssh")
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    open_ref(f"ssh://host.example{repository}")
    assert all("-o BatchMode=yes" in line for line in log.read_text().splitlines())


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("http://127.0.0.1:{port}/none.git", "there is no git repository that this user can see"),
        ("https://host.invalid/x.git", "its host is not known"),
        ("http://127.0.0.1:1/x.git", "the connection failed"),
        ("file:///nowhere/x.git", "there is no git repository that this user can see"),
    ],
)
def test_what_stands_in_the_way_is_told(repository: Path, url: str, cause: str) -> None:
    with serve(repository.parent) as server:
        assert f": listing its branches and tags: {cause}: git says " in refused(url.format(port=server.port))


def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "SILENCE_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        message = refused(f"http://127.0.0.1:{silent.getsockname()[1]}/x.git")
    assert message.endswith(
        "nothing came for 0 seconds. Check the network and whether the server is up, then run again."
    )


def test_a_network_that_fails_while_reading_is_no_fault_of_the_document(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history(repository)
    with serve(repository.parent) as server:
        ref = open_ref(f"{server.url}/repo.git")
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "elsewhere"))
    with pytest.raises(InfrastructureError, match="the connection failed"):
        ref.read()


def test_a_full_disk_is_no_fault_of_the_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history(repository)
    log_git(monkeypatch, tmp_path)
    script = tmp_path / "bin" / "git"
    cause = "fatal: write error: No space left on device"
    full = f'for word; do if [ "$word" = fetch ]; then echo "{cause}" >&2; exit 128; fi; done\n'
    script.write_text(script.read_text().replace("exec ", full + "exec "))
    with pytest.raises(InfrastructureError, match="Make room in the cache folder"):
        open_ref(repository.as_uri())


def test_progress_of_a_long_fetch_is_shown(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    names = {b"%03d" % n: (REGULAR, write_blob(repository, b"%d" % n)) for n in range(100)}
    commit_entries(repository, names)
    monkeypatch.setattr(remote, "_FIRST_NOTE_SECONDS", 0.0)
    monkeypatch.setattr(remote, "_NOTE_SECONDS", 0.0)
    open_ref(repository.as_uri())
    shown = capfd.readouterr().err
    assert f"{repository.as_uri()}: fetching 100 files: Receiving objects: 100% (100/100)" in shown


def test_progress_is_not_shown_of_a_short_one(repository: Path, capfd: pytest.CaptureFixture[str]) -> None:
    history(repository)
    open_ref(repository.as_uri())
    assert capfd.readouterr().err == ""
