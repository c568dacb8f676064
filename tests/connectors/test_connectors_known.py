"""A commit that an output holds already costs its resolution: no path is listed, no object read, nothing fetched."""

import shutil
from pathlib import Path

import pytest
from git_plumbing import commit_files, new_repository, run_git
from git_servers import serve

from connectors.repository import RepositoryRef, RepositorySource
from longdoc.errors import SourceError
from longdoc.records import Selection
from pipelines.sources import open_sources


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache"


def opened(argument: object, known=None, **selection) -> RepositoryRef:
    if known is not None:
        selection["known"] = lambda doc_id, commit_id: known.get((doc_id, commit_id))
    (source,) = open_sources([str(argument)], Selection(**selection))
    assert isinstance(source, RepositorySource)
    return source.ref


def lose_contents(repository: Path) -> None:
    """Remove every object but the commits."""
    for path in repository.glob("**/objects/??/*"):
        object_id = path.parent.name + path.name
        if run_git(repository, "cat-file", "-t", object_id).strip() != b"commit":
            path.chmod(0o600)
            path.unlink()


def test_a_local_commit_that_is_known_is_opened_without_its_contents(tmp_path):
    repository = new_repository(tmp_path / "a")
    commit_files(repository, {b"a.py": b"a = 1\n", b".gitattributes": b"*.py text\n"})
    first = opened(repository)
    lose_contents(repository)
    with pytest.raises(SourceError):
        opened(repository)
    again = opened(repository, {(first.doc_id, first.version): 17})
    assert (again.doc_id, again.version, again.num_bytes_source) == (first.doc_id, first.version, 17)


def test_another_choice_of_the_same_commit_is_not_known(tmp_path):
    repository = new_repository(tmp_path / "a")
    commit_files(repository, {b"a.py": b"a = 1\n", b"b.py": b"b\n"})
    first = opened(repository)
    known = {(first.doc_id, first.version): 17}
    assert opened(repository, known, include=("b.py",)).num_bytes_source == len(b"a = 1\nb\n")
    with pytest.raises(SourceError, match="matches no path"):
        opened(repository, known, include=("c.py",))


def test_a_remote_commit_that_is_known_costs_one_listing_of_refs(tmp_path, cache):
    repository = new_repository(tmp_path / "served" / "a")
    commit_files(repository, {b"a.py": b"a = 1\n"})
    with serve(tmp_path / "served") as server:
        first = opened(f"{server.url}/a")
        shutil.rmtree(cache)
        server.requests.clear()
        opened(f"{server.url}/a", {(first.doc_id, first.version): 6})
        # Protocol 2: what the server can do, and its refs. Fetching anything would be a second POST.
        assert [request.split("?")[0] for request in server.requests] == [
            "GET /a/info/refs",
            "POST /a/git-upload-pack",
        ]
    assert not list(cache.glob("git/*/objects/objects"))
