"""Submodules on request: their files below their path, from their own repository, and a reason where that cannot be."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from git_plumbing import (
    REGULAR,
    SUBMODULE,
    commit_entries,
    commit_files,
    content_segments,
    git_blob_id,
    new_repository,
    read,
    run_git,
    write_blob,
)
from git_servers import Server, serve

from connectors import listing
from connectors.address import parse_address
from connectors.repository import RepositoryRef, open_remote
from longdoc.errors import SourceError
from longdoc.records import Document, Selection

SECRET = "s3cr3t"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("no_proxy", "*")


def modules(**urls: str) -> bytes:
    return "".join(f'[submodule "{n}"]\n\tpath = lib/{n}\n\turl = {url}\n' for n, url in urls.items()).encode()


def commit_parent(folder: Path, gitmodules: bytes, **commits: str) -> str:
    """A commit with the submodules lib/NAME."""
    entries = {b".gitmodules": (REGULAR, write_blob(folder, gitmodules)), b"z": (REGULAR, write_blob(folder, b"z\n"))}
    entries |= {f"lib/{name}".encode(): (SUBMODULE, commit) for name, commit in commits.items()}
    return commit_entries(folder, entries)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A parent with a submodule, which has another; all want a password."""
    (tmp_path / "served").mkdir()
    folders = {
        n: new_repository(tmp_path / "served" / f"{n}.git", bare=True) for n in ("parent", "child", "grandchild")
    }
    inner = commit_files(folders["grandchild"], {"deep.py": b"deep\n"})
    child = commit_parent(folders["child"], modules(inner="../grandchild.git"), inner=inner)
    commit_files(folders["child"], {"later": b"x"}, parents=[child])  # main has moved on
    commit_parent(folders["parent"], modules(child="../child.git/"), child=child)
    with serve(tmp_path / "served", login=f"me:{SECRET}") as found:
        yield found


def open_parent(server: Server, **selection: object) -> RepositoryRef:
    address = parse_address(f"http://me:{SECRET}@127.0.0.1:{server.port}/parent.git")
    return open_remote(address, Selection(**selection)).ref  # type: ignore[arg-type]  # a test's shorthand


def reasons(document: Document) -> dict[bytes, str | None]:
    return {path: segment.reason for path, segment in content_segments(document).items()}


def test_files_of_submodules_stand_below_their_path(server: Server) -> None:
    ref = open_parent(server, submodules=True)
    assert ref.doc_id == f"git:{server.url}/parent.git?submodules=1"
    document = ref.read()
    assert list(reasons(document)) == [
        *(b".gitmodules", b"lib/child", b"lib/child/.gitmodules", b"lib/child/lib/inner"),
        *(b"lib/child/lib/inner/deep.py", b"lib/child/z", b"z"),
    ]
    assert set(reasons(document).values()) == {None}
    deep = content_segments(document)[b"lib/child/lib/inner/deep.py"]
    assert (deep.kind, deep.blob_id, document.segment_text(deep)) == ("file", git_blob_id(b"deep\n"), b"deep\n")
    assert b"File: lib/child/lib/inner/deep.py\ndeep\nFile: lib/child/z\nz\nFile: z\n" in document.text
    assert document.num_bytes_source == ref.num_bytes_source
    assert SECRET not in repr(document)


def test_submodules_that_are_not_asked_for_are_a_reason(server: Server) -> None:
    document = open_parent(server).read()
    assert reasons(document) == {b".gitmodules": None, b"lib/child": "submodule", b"z": None}
    assert not [request for request in server.requests if "child" in request]


def test_globs_reach_into_submodules_and_keep_them_from_being_fetched(server: Server) -> None:
    document = open_parent(server, submodules=True, include=("*.py",)).read()
    assert document.text == b"Repository: parent\n\nFile: lib/child/lib/inner/deep.py\ndeep\n"
    server.requests.clear()
    for exclude in ("lib/", "lib/child", "lib/child/**", "child"):
        assert reasons(open_parent(server, submodules=True, exclude=(exclude,)).read())[b"lib/child"] == "excluded"
    assert not [request for request in server.requests if "child" in request]


def test_what_cannot_be_read_has_a_reason(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "served" / "parent.git", bare=True)
    child = commit_files(new_repository(tmp_path / "served" / "child.git", bare=True), {"a": b"1\n"})
    urls = {
        "file": (tmp_path / "served" / "child.git").as_uri(),
        "path": str(tmp_path / "served" / "child.git"),
        "helper": "ext::sh -c true",
        "option": "--upload-pack=true",
        "up": "../../../../../x",
        "none": "",
        "gone": "../child.git",
    }
    commit_parent(folder, modules(**urls), **(dict.fromkeys(urls, child) | {"gone": "1" * 40, "unlisted": child}))
    with serve(tmp_path / "served") as server:
        address = parse_address(f"{server.url}/parent.git")
        document = open_remote(address, Selection(submodules=True, exclude=("up",))).ref.read()
    found = {path: (s.reason, s.title) for path, s in content_segments(document).items() if s.reason != None}  # noqa: E711
    assert {path.removeprefix(b"lib/").decode(): reason for path, (reason, _) in found.items()} == {
        **dict.fromkeys(("file", "path", "helper", "option", "none", "unlisted"), "submodule_refused"),
        "up": "excluded",
        "gone": "submodule_missing",
    }
    assert found[b"lib/file"][1] == f"commit {child}: its address is a file of this machine"
    assert found[b"lib/gone"][1] == f"commit {'1' * 40}: {address.uri.replace('parent', 'child')} does not have it"


@pytest.mark.parametrize(
    "url",
    [
        f"http://me:{SECRET}@example.org/x.git",
        f"ssh://me:{SECRET}@example.org/x.git",
        f"https://example.org/x.git?token={SECRET}",
        f"me:{SECRET}@example.org:x.git",
        f"file:///{SECRET}",
        f"ext::sh https://me:{SECRET}@h/x",
    ],
)
def test_no_secret_of_an_address_is_in_a_title(tmp_path: Path, url: str) -> None:
    folder = new_repository(tmp_path / "parent")
    commit_parent(folder, modules(m=url), m="1" * 40)
    segment = content_segments(read(folder, submodules=True))[b"lib/m"]
    assert segment.reason == "submodule_refused"
    assert SECRET not in str(segment.title)


def test_no_secret_of_an_address_is_in_an_error(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "parent")
    commit_parent(folder, modules(m=f"https://me:{SECRET}@127.0.0.1:1/x.git"), m="1" * 40)
    with pytest.raises(SourceError, match=r"submodule lib/m: https://127\.0\.0\.1:1/x\.git: ") as caught:
        read(folder, submodules=True)
    assert SECRET not in str(caught.value)


def test_a_submodules_work_tree_is_a_repository_like_any_other(tmp_path: Path) -> None:
    folder, child = new_repository(tmp_path / "parent"), new_repository(tmp_path / "child")
    commit = commit_files(child, {"a": b"1\n"})
    commit_parent(folder, modules(child="../child"), child=commit)
    run_git(folder, "clone", "-q", "--bare", str(child), ".git/modules/child")
    (folder / "lib" / "child").mkdir(parents=True)
    (folder / "lib" / "child" / ".git").write_text("gitdir: ../../.git/modules/child\n")
    document = read(folder / "lib" / "child")
    assert (document.commit_id, document.text) == (commit, b"Repository: child\n\nFile: a\n1\n")


def test_a_repository_that_is_not_there_stops_the_parent_and_says_how_to_go_on(server: Server, tmp_path: Path) -> None:
    (tmp_path / "served" / "child.git").rename(tmp_path / "served" / "moved.git")
    with pytest.raises(SourceError) as caught:
        open_parent(server, submodules=True)
    assert str(caught.value).startswith(f"submodule lib/child: {server.url}/child.git: fetching a commit: ")
    assert str(caught.value).endswith("Or leave it out with --exclude lib/child.")


def test_a_password_is_for_its_own_host(server: Server, tmp_path: Path) -> None:
    with serve(tmp_path / "served") as other:
        child = read(tmp_path / "served" / "child.git").commit_id
        parent = tmp_path / "served" / "parent.git"
        commit_parent(parent, modules(child=f"{other.url}/child.git"), child=str(child))
        document = open_parent(server, submodules=True).read()
        assert reasons(document)[b"lib/child/later"] is None
        assert other.requests
    # Asked for a password, the other host gets none.
    commit_parent(parent, modules(child=f"http://localhost:{server.port}/child.git"), child=str(child))
    with pytest.raises(SourceError, match="it does not let this user in"):
        open_parent(server, submodules=True)


def test_submodules_of_a_clone_are_where_git_put_them(tmp_path: Path) -> None:
    folder, child = new_repository(tmp_path / "parent"), new_repository(tmp_path / "child")
    commit = commit_files(child, {"a": b"1\n"})
    commit_parent(folder, modules(child=str(child), **{"../../../../child/": str(child)}), child=commit)
    assert reasons(read(folder, submodules=True))[b"lib/child"] == "submodule_refused"
    run_git(folder, "clone", "-q", "--bare", str(child), ".git/modules/child")
    document = read(folder, submodules=True)
    assert (reasons(document)[b"lib/child"], reasons(document)[b"lib/child/a"]) == (None, None)
    assert b"File: lib/child/a\n1\n" in document.text
    escaping = modules(child="x").replace(b'"child"', b'"../../../child/.git"')
    commit_parent(folder, escaping, child=commit)
    assert reasons(read(folder, submodules=True))[b"lib/child"] == "submodule_refused"


def test_chains_and_numbers_of_submodules_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = new_repository(tmp_path / "served" / "parent.git", bare=True)
    commit = commit_files(folder, {"a": b"1\n"})
    for _ in range(12):
        commit = commit_parent(folder, modules(m="../parent.git"), m=commit)
    with serve(tmp_path / "served") as server:
        address = parse_address(f"{server.url}/parent.git")
        document = open_remote(address, Selection(submodules=True)).ref.read()
        deepest = b"/".join([b"lib/m"] * (listing.DEEPEST_SUBMODULE + 1))
        assert reasons(document)[deepest] == "submodule_refused"
        monkeypatch.setattr(listing, "MOST_SUBMODULES", 2)
        document = open_remote(address, Selection(submodules=True)).ref.read()
        assert reasons(document)[b"lib/m/lib/m/lib/m"] == "submodule_refused"


def test_a_gitmodules_that_is_none_is_told(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "parent")
    commit_parent(folder, b"[submodule\n", m="1" * 40)
    assert reasons(read(folder))[b"lib/m"] == "submodule"
    with pytest.raises(SourceError, match=r"\.gitmodules cannot be read: git says .* Leave out --submodules"):
        read(folder, submodules=True)
