"""File names that are not UTF-8: whatever a connector says of them can be printed, written and read back."""

import dataclasses
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from git_plumbing import commit_files, new_repository

from connectors.books import BookRef, list_book, read_book
from connectors.folder import open_book, open_folder
from connectors.repository import open_repository
from longdoc.errors import DocumentError, InfrastructureError, SourceError
from longdoc.records import Selection, Unreadable
from pipelines.sources import open_sources

CAFE = os.fsdecode(b"caf\xe9")


def strings(value: object) -> Iterator[str]:
    """Every text inside a record."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from strings(inner)


def assert_utf8(record: object) -> None:
    for text in strings(dataclasses.asdict(record) if dataclasses.is_dataclass(record) else record):  # type: ignore[arg-type]
        text.encode("utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose own name is not UTF-8."""
    try:
        (tmp_path / CAFE).mkdir()
    except OSError:
        pytest.skip("this file system has only names in UTF-8")
    return tmp_path / CAFE


def test_a_book_is_read_and_titled(folder: Path) -> None:
    (folder / f"{CAFE}.txt").write_text("words")
    ref = list_book(folder / f"{CAFE}.txt")
    assert isinstance(ref, BookRef)
    document = ref.read()
    assert document.title == "caf\\xe9"
    assert document.source_uri.endswith("/caf%E9/caf%E9.txt")
    assert_utf8(document)


def test_a_repository_is_read_and_titled(folder: Path) -> None:
    commit_files(new_repository(folder / CAFE), {b"caf\xe9": b"x\n"}, branch="main")
    (source,) = open_sources([str(folder / CAFE)], Selection(exclude=(CAFE,)))
    (ref,) = source.documents()
    assert not isinstance(ref, Unreadable)
    document = ref.read()
    assert document.title == "caf\\xe9"
    assert_utf8([ref.doc_id, ref.source_uri, source.source_uri])
    assert_utf8(document)


def test_what_is_passed_over_is_shown(folder: Path) -> None:
    (folder / "a.txt").write_text("words")
    (folder / f"b.{CAFE}").write_text("words")
    (folder / f"{CAFE}.txt").symlink_to("a.txt")
    source = open_folder(folder)
    assert [(path.rpartition("/")[2], reason) for path, reason in source.skipped] == [
        ("b.caf\\xe9", "not a known book: .caf\\xe9"),
        ("caf\\xe9.txt", "a symbolic link, not followed"),
    ]
    assert_utf8(source.skipped)


def test_faults_are_told(folder: Path) -> None:
    path = folder / f"{CAFE}.txt"
    with pytest.raises(DocumentError) as empty:
        read_book(b"", path=path)
    path.write_text("before")
    ref = list_book(path)
    path.write_text("after")
    assert isinstance(ref, BookRef)
    with pytest.raises(DocumentError) as changed:
        ref.read()
    path.unlink()
    with pytest.raises(DocumentError) as gone:
        ref.read()
    for caught in (empty, changed, gone):
        assert "/caf\\xe9/caf\\xe9.txt " in str(caught.value)
        assert_utf8([str(caught.value)])
    listed = list_book(path)
    assert isinstance(listed, Unreadable)
    assert_utf8(listed)


def test_refusals_are_told(folder: Path) -> None:
    commit_files(new_repository(folder / "repo"), {"a": b"x\n"})
    new_repository(folder / "empty")
    (folder / "x.xyz").touch()
    refused = [
        lambda: open_folder(folder),
        lambda: open_book(folder / CAFE),
        lambda: open_book(folder / "x.xyz"),
        lambda: open_repository(str(folder), Selection()),
        lambda: open_repository(str(folder / "empty"), Selection()),
        lambda: open_repository(str(folder / "repo"), Selection(revision=CAFE)),
        lambda: open_repository(str(folder / "repo"), Selection(include=(CAFE,))),
        lambda: open_sources([str(folder / "gone")], Selection()),
        lambda: open_sources([f"{folder}@{CAFE}"], Selection()),
    ]
    for refuse in refused:
        with pytest.raises(SourceError) as caught:
            refuse()
        assert "caf\\xe9" in str(caught.value)
        assert_utf8([str(caught.value)])


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EMFILE])
def test_a_bad_disk_is_no_fault_of_the_book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    path = tmp_path / "b.txt"
    path.write_text("words")
    ref = list_book(path)
    assert isinstance(ref, BookRef)

    def fail(*_: object) -> bytes:
        raise OSError(number, os.strerror(number))

    message = f"{path} cannot be read: {os.strerror(number)}. Check the disk or network mount that holds it"
    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(InfrastructureError, match=message):
        ref.read()
    monkeypatch.setattr("connectors.books.sha256_file", fail)
    with pytest.raises(InfrastructureError, match=message):
        list_book(path)
    monkeypatch.setattr("connectors.folder.os.scandir", fail)
    with pytest.raises(InfrastructureError, match=f"{tmp_path} cannot be listed: "):
        open_folder(tmp_path)
