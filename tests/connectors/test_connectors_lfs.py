"""Git LFS on request: content in the place of pointers, checked against them, and a reason where there is none."""

import hashlib
import json
import os
import shutil
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
from git_servers import Server, pointer_to, serve

from connectors.address import parse_address
from connectors.lfs import server_url
from connectors.lfs_pointers import parse_pointer
from connectors.repository import RepositoryRef, open_remote
from longdoc.errors import DocumentError, InfrastructureError, SourceError
from longdoc.records import Document, Selection

SECRET = "s3cr3t"
TEXT, BINARY = b"a book in LFS\nwithout an end", b"\x89PNG\0\0" * 100


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder = new_repository(tmp_path / "served" / "repo.git", bare=True)
    with serve(tmp_path / "served", login=f"me:{SECRET}") as found:
        files = {"book.txt": found.add_lfs(TEXT), "picture.png": found.add_lfs(BINARY), "small": b"x\n"}
        commit_files(folder, {**files, "gone.txt": pointer_to(b"nowhere")})
        yield found


def open_repo(server: Server, **selection: object) -> RepositoryRef:
    address = parse_address(f"http://me:{SECRET}@127.0.0.1:{server.port}/repo.git")
    return open_remote(address, Selection(lfs=True, **selection)).ref  # type: ignore[arg-type]  # a test's shorthand


def facts(document: Document) -> dict[tuple[bytes, str], tuple[str | None, int]]:
    return {
        (s.path, s.kind): (s.reason, s.num_bytes_source)
        for s in document.segments
        if s.path is not None and s.num_bytes_source
    }


def test_content_stands_in_the_place_of_its_pointer_and_both_are_accounted_for(server: Server) -> None:
    ref = open_repo(server)
    assert ref.doc_id == f"git:{server.url}/repo.git?lfs=1"
    document = ref.read()
    book, picture, gone = (pointer_to(content) for content in (TEXT, BINARY, b"nowhere"))
    assert facts(document) == {
        (b"book.txt", "file"): (None, len(TEXT)),
        (b"book.txt", "lfs_pointer"): ("lfs_pointer", len(book)),
        (b"gone.txt", "file"): ("lfs_missing", len(gone)),
        (b"picture.png", "file"): ("binary", len(BINARY)),
        (b"picture.png", "lfs_pointer"): ("lfs_pointer", len(picture)),
        (b"small", "file"): (None, 2),
    }
    assert document.num_bytes_source == sum(map(len, (TEXT, BINARY, book, picture, gone))) + 2
    assert document.text == b"Repository: repo\n\nFile: book.txt\n" + TEXT + b"\nFile: small\nx\n"
    segment = content_segments(document)[b"book.txt"]
    assert (segment.encoding, segment.blob_id) == ("utf-8", git_blob_id(TEXT))
    assert segment.source_sha256 == hashlib.sha256(TEXT).hexdigest()
    assert list(ref.stream()) == [(s, document.segment_text(s)) for s in document.segments]


def test_what_was_downloaded_is_kept_and_no_secret_with_it(server: Server, cache: Path) -> None:
    before = open_repo(server).read()
    server.requests.clear()
    assert open_repo(server, exclude=("gone.txt",)).read().text == before.text
    assert not [request for request in server.requests if "lfs" in request]
    assert not [path for path in cache.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def test_content_of_a_submodule_comes_from_its_own_server(server: Server, tmp_path: Path) -> None:
    parent = new_repository(tmp_path / "served" / "parent.git", bare=True)
    child = run_git(tmp_path / "served" / "repo.git", "rev-parse", "main").decode().strip()
    modules = write_blob(parent, b'[submodule "m"]\n\tpath = m\n\turl = ../repo.git\n')
    commit_entries(parent, {b".gitmodules": (REGULAR, modules), b"m": (SUBMODULE, child)})
    address = parse_address(f"http://me:{SECRET}@127.0.0.1:{server.port}/parent.git")
    document = open_remote(address, Selection(submodules=True, lfs=True)).ref.read()
    assert facts(document)[(b"m/book.txt", "file")] == (None, len(TEXT))
    assert facts(document)[(b"m/book.txt", "lfs_pointer")] == ("lfs_pointer", len(pointer_to(TEXT)))
    assert "POST /repo.git/info/lfs/objects/batch" in server.requests


def test_pointers_stay_pointers_unless_asked_for(server: Server) -> None:
    document = open_remote(
        parse_address(f"http://me:{SECRET}@127.0.0.1:{server.port}/repo.git"), Selection()
    ).ref.read()
    assert facts(document)[(b"book.txt", "file")] == ("lfs_pointer", len(pointer_to(TEXT)))
    assert not [request for request in server.requests if "lfs" in request]


@pytest.mark.parametrize("content", [TEXT[:-1], TEXT + b"x", TEXT[:-1] + b"x"])
def test_content_that_is_not_what_the_pointer_says_is_refused(server: Server, cache: Path, content: bytes) -> None:
    server.lfs[hashlib.sha256(TEXT).hexdigest()] = content
    with pytest.raises(DocumentError) as caught:
        open_repo(server).read()
    assert (caught.value.stage, caught.value.reason) == ("read", "unreadable")
    assert hashlib.sha256(TEXT).hexdigest() in str(caught.value)
    assert not [
        path
        for path in cache.rglob("*")
        if path.is_file() and "lfs" in path.parts and path.read_bytes()[:6] == TEXT[:6]
    ]


def test_files_of_this_machine_are_no_content(server: Server, tmp_path: Path) -> None:
    (tmp_path / hashlib.sha256(TEXT).hexdigest()).write_bytes(TEXT)
    server.lfs_href = tmp_path.as_uri()
    with pytest.raises(DocumentError, match="it names an address of the protocol 'file', which is not allowed"):
        open_repo(server).read()


def test_a_password_is_not_sent_to_where_the_content_is(server: Server, tmp_path: Path) -> None:
    with serve(tmp_path / "served", login="other:one") as other:
        other.lfs = server.lfs
        server.lfs_href = f"http://localhost:{other.port}/lfs"
        with pytest.raises(DocumentError, match="it answers 401") as caught:
            open_repo(server).read()
    assert SECRET not in str(caught.value)


def test_a_password_is_not_sent_on_to_where_a_server_redirects(server: Server, tmp_path: Path) -> None:
    with serve(tmp_path / "served") as other:
        other.lfs = server.lfs
        server.lfs_redirect = f"http://localhost:{other.port}"
        assert TEXT in open_repo(server).read().text
        assert server.passwords
        assert (len(other.requests), other.passwords) == (2, [])


def test_a_server_that_is_down_is_no_fault_of_the_document(server: Server, tmp_path: Path) -> None:
    server.lfs_href = "http://127.0.0.1:1"
    with pytest.raises(InfrastructureError, match=r"LFS objects cannot be fetched: .*refused\. Run again"):
        open_repo(server).read()


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"code": 500, "message": f"no https://me:{SECRET}@h/x \x1b[2J"}},
        {"actions": {"download": {"href": f"http://me:{SECRET}@127.0.0.1:1/x?token={SECRET}"}}},
        {"actions": {"download": {"href": "{url}/lfs/x", "header": {"Authorization": f"Bearer {SECRET}\n"}}}},
        {"actions": {"download": {"href": f"file:///{SECRET}"}}},
    ],
    ids=["message", "address", "header", "protocol"],
)
def test_what_a_server_says_of_itself_is_told_without_its_secrets(server: Server, answer: dict[str, object]) -> None:
    server.lfs_more = json.loads(json.dumps(answer).replace("{url}", server.url))
    with pytest.raises((DocumentError, InfrastructureError), match="LFS objects cannot be fetched: ") as caught:
        open_repo(server).read()
    assert SECRET not in str(caught.value)
    assert str(caught.value).isprintable()


def test_the_server_that_the_commit_names(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "served" / "repo.git"
    with serve(tmp_path / "served") as other:
        pointer = other.add_lfs(b"elsewhere\n")
        commit_files(folder, {".lfsconfig": f"[lfs]\n\turl = {other.url}/any/info/lfs\n".encode(), "a": pointer})
        assert b"File: a\nelsewhere\n" in open_repo(server).read().text
    commit_files(folder, {".lfsconfig": b"[lfs]\n\turl = ssh://git@h/x\n", "a": pointer})
    with pytest.raises(SourceError, match=r"ssh://git@h/x, which \.lfsconfig names, is not https"):
        open_repo(server)


def test_content_beside_a_local_repository_needs_no_server(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    commit_files(folder, {"a": pointer_to(TEXT), "b": pointer_to(b"not here")})
    oid = hashlib.sha256(TEXT).hexdigest()
    place = folder / ".git" / "lfs" / "objects" / oid[:2] / oid[2:4] / oid
    place.parent.mkdir(parents=True)
    place.write_bytes(TEXT)
    document = read(folder, lfs=True)
    assert document.segment_text(content_segments(document)[b"a"]) == TEXT
    assert content_segments(document)[b"b"].reason == "lfs_missing"
    clone = tmp_path / "clone"
    run_git(tmp_path, "clone", "-q", folder.as_uri(), str(clone))
    assert read(clone, lfs=True).text == document.text.replace(b"repo", b"clone", 1)
    shutil.rmtree(folder / ".git" / "lfs")
    assert content_segments(read(folder, lfs=True))[b"a"].reason == "lfs_missing"


@pytest.mark.parametrize(
    ("content", "is_pointer"),
    [
        (pointer_to(b"x"), True),
        (pointer_to(b"x").replace(b"\noid", b"\next-0-a sha256:00\noid"), True),
        (pointer_to(b"x").replace(b"git-lfs", b"hawser"), True),
        (pointer_to(b"x") + b"\n", False),
        (pointer_to(b"x").replace(b"sha256", b"sha1"), False),
        (pointer_to(b"x").replace(b"\n", b"\r\n"), False),
        (pointer_to(b"x").replace(b"size 1\n", b"size 1"), False),
        (b"", False),
    ],
)
def test_pointers_are_told_by_their_whole_text(content: bytes, is_pointer: bool) -> None:
    assert (parse_pointer(content) is not None) == is_pointer


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("https://h/o/r", "https://h/o/r.git/info/lfs"),
        ("https://h/o/r.git", "https://h/o/r.git/info/lfs"),
        ("git@h:o/r.git", "https://h/o/r.git/info/lfs"),
        ("ssh://git@h:22/o/r", "https://h/o/r.git/info/lfs"),
        ("file:///o/r", None),
    ],
)
def test_servers_are_guessed_as_git_lfs_does(address: str, url: str | None) -> None:
    assert server_url(parse_address(address)) == url
