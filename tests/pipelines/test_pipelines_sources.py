"""From arguments to sources: what each argument is taken for, and the message for what cannot be opened."""

import shutil
import subprocess
from pathlib import Path

import pytest

from connectors.folder import BookSource
from connectors.repository import RepositorySource
from longdoc.errors import SourceError
from longdoc.records import Selection, Unreadable
from pipelines.sources import open_sources


def refused(argument: str | Path, **selection: object) -> str:
    with pytest.raises(SourceError) as caught:
        open_sources([str(argument)], Selection(**selection))  # type: ignore[arg-type]  # a test's shorthand
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    for command in (
        ["init", "-q", "-b", "main", str(folder)],
        ["-C", str(folder), "-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", *command], check=True)
    return folder


@pytest.fixture
def library(tmp_path: Path) -> Path:
    folder = tmp_path / "library"
    (folder / "sub").mkdir(parents=True)
    for name in ("b.txt", "a.md", "sub/c.TEXT", "sub/d.markdown"):
        (folder / name).write_text(name)
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / "noext").write_text("x")
    (folder / "sub" / "link.txt").symlink_to(folder / "b.txt")
    (folder / "loop").symlink_to(folder)
    return folder


def test_a_folder_of_books_is_read_in_the_order_of_its_paths(library: Path) -> None:
    (source,) = open_sources([str(library)], Selection())
    assert isinstance(source, BookSource)
    found = [ref.doc_id for ref in source.documents()]
    assert found == [(library / name).as_uri() for name in ("a.md", "b.txt", "sub/c.TEXT", "sub/d.markdown")]


def test_what_a_folder_holds_beside_books_is_reported(library: Path) -> None:
    subprocess.run(["git", "init", "-q", str(library / "nested")], check=True)
    (source,) = open_sources([str(library)], Selection())
    assert isinstance(source, BookSource)
    assert dict(source.skipped) == {
        str(library / "loop"): "a symbolic link, not followed",
        str(library / "nested"): "a git repository: name it as a source of its own",
        str(library / "noext"): "not a known book: no extension",
        str(library / "picture.png"): "not a known book: .png",
        str(library / "sub" / "link.txt"): "a symbolic link, not followed",
    }


def test_a_folder_inside_that_cannot_be_listed_is_unreadable(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not by chmod: a superuser lists everything.
    import os

    real = os.scandir

    def scandir(path: str) -> object:
        if path.endswith("sub"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr("connectors.folder.os.scandir", scandir)
    (source,) = open_sources([str(library)], Selection())
    *_, last = source.documents()
    assert isinstance(last, Unreadable)
    assert (
        last.error == f"{library / 'sub'} cannot be listed: Permission denied. Give read access to it, or leave it out."
    )


def test_folders_with_git_in_them_are_repositories(repository: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "clone", "-q", "--bare", str(repository), str(tmp_path / "bare")], check=True)
    for path in (repository, tmp_path / "bare"):
        (source,) = open_sources([str(path)], Selection())
        assert isinstance(source, RepositorySource)


def commit(repository: Path, *files: str) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
    for command in (["add", "--", *files], [*identity, "commit", "-q", "-m", "files"]):
        subprocess.run(["git", "-C", str(repository), *command], check=True)


def test_a_folder_of_books_inside_a_repository_is_books_unless_said_otherwise(repository: Path) -> None:
    (repository / "books").mkdir()
    (repository / "books" / "a.txt").write_text("a")
    commit(repository, "books/a.txt")
    (source,) = open_sources([str(repository / "books")], Selection())
    assert isinstance(source, BookSource)
    for path in ("books", "books/a.txt"):
        (source,) = open_sources([str(repository / path)], Selection(kind="repository"))
        assert isinstance(source, RepositorySource)
        assert source.ref.doc_id == f"git:{repository.as_uri()}?path={path}"


def test_a_path_that_only_a_commit_has(repository: Path, tmp_path: Path) -> None:
    (repository / "gone").mkdir()
    (repository / "gone" / "a.txt").write_text("a")
    commit(repository, "gone/a.txt")
    subprocess.run(["git", "clone", "-q", "--bare", str(repository), str(tmp_path / "bare.git")], check=True)
    shutil.rmtree(repository / "gone")
    (source,) = open_sources([str(tmp_path / "bare.git" / "gone")], Selection())
    (other,) = open_sources([str(repository / "gone")], Selection(kind="repository"))
    assert isinstance(source, RepositorySource)
    assert isinstance(other, RepositorySource)
    assert b"File: gone/a.txt\na\n" in source.ref.read().text
    assert b"File: gone/a.txt\na\n" in other.ref.read().text
    assert refused(repository / "gone").startswith(f"No such file or folder: '{repository}/gone'.")
    assert refused(tmp_path / "bare.git" / "nope").endswith(
        "has no path nope. Choose another with --revision, or check the spelling; `git ls-tree -r` lists its paths."
    )


def test_the_books_of_a_repository_are_books_when_the_user_says_so(repository: Path) -> None:
    (repository / "a.txt").write_text("a")
    (source,) = open_sources([str(repository)], Selection(kind="book"))
    assert [ref.doc_id for ref in source.documents()] == [(repository / "a.txt").as_uri()]


def test_any_file_is_a_book_when_the_user_says_so(tmp_path: Path) -> None:
    (tmp_path / "notes.xyz").write_text("words")
    (source,) = open_sources([str(tmp_path / "notes.xyz")], Selection(kind="book"))
    (ref,) = source.documents()
    assert not isinstance(ref, Unreadable)
    assert ref.read().text == b"words"


def test_no_such_file() -> None:
    assert refused("nope.txt").startswith(
        "No such file or folder: 'nope.txt'. Check the spelling; relative paths start at "
    )
    assert refused("").startswith("No such file or folder: ''.")
    assert refused("a\0b").startswith("No such file or folder: 'a\\x00b'.")


def test_no_credentials_are_repeated(repository: Path) -> None:
    for argument in ("x https://u:s3cret@h/y", f"{repository}@https://u:s3cret@h/y", "https://u:s3/cret@h/y"):
        assert "cret" not in refused(argument)


def test_a_folder_without_a_readable_book(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    message = refused(tmp_path)
    assert message.startswith(f"{tmp_path} holds no book that can be read: looked for .txt, .text, .md, .markdown")
    assert message.endswith(
        "in it and in the folders below. Name a file, or use --kind book with one to read it as text."
    )


def test_a_file_of_another_format(tmp_path: Path) -> None:
    (tmp_path / "a.xyz").write_bytes(b"PK")
    message = refused(tmp_path / "a.xyz")
    assert message.startswith(f"{tmp_path / 'a.xyz'}: cannot read .xyz yet; known: .txt, .text, .md, .markdown")
    assert message.endswith(". --kind book reads any file as text.")


def test_a_book_is_known_by_its_content_under_any_name(tmp_path: Path) -> None:
    (tmp_path / "a.xyz").write_text("<!DOCTYPE html><title>T</title><p>Words")
    (source,) = open_sources([str(tmp_path / "a.xyz")], Selection())
    (ref,) = source.documents()
    assert not isinstance(ref, Unreadable)
    assert ref.read().text == b"Words"


def test_a_folder_that_is_no_repository(tmp_path: Path) -> None:
    assert f"{tmp_path} is not a git repository" in refused(tmp_path, kind="repository")


def test_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "a.txt").symlink_to(tmp_path / "gone")
    assert "is neither a file nor a folder" in refused(tmp_path / "a.txt")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("git://example.org/x", "git://example.org/x uses the protocol git, which is not allowed. Use one of https://"),
        ("ext::sh -c touch% /tmp/x", "ext::sh -c touch% /tmp/x holds white space"),
        ("ext::sh", "ext::sh would make git run another program."),
        ("https://u:p/ss@example.org/x", "https://example.org/x names no host and repository."),
        ("https://example.org/x?private_token=s3cret", "https://example.org/x has a query or a fragment."),
        ("http://me:s3cret@example.org/x", "http://example.org/x would send a password that everybody on the way can"),
        ("https://example.org/x@", "https://example.org/x ends in @, and no revision follows."),
        ("ssh://me:s3cret@example.org/x", "ssh://example.org/x holds a password, and ssh takes none."),
    ],
)
def test_addresses_that_are_not_allowed(url: str, message: str) -> None:
    assert refused(url).startswith(message)


def test_an_address_is_no_book_and_carries_one_revision() -> None:
    assert "is the address of a git repository, and --kind book says it is none" in refused("https://h/x", kind="book")
    assert refused("https://u:s3cret@h/x@v1", revision="v2") == (
        "https://h/x carries a revision, and --revision is another. Leave one of them out."
    )


def test_a_path_with_a_revision_behind_it_is_told_how(repository: Path) -> None:
    assert refused(f"{repository}@main") == (
        f"No such file or folder: {repository}@main. For a revision of {repository}, use --revision main."
    )


@pytest.mark.parametrize(
    ("option", "selection"),
    [
        ("--include", Selection(include=("*.txt",))),
        ("--exclude", Selection(exclude=("*.txt",))),
        ("--revision", Selection(revision="main")),
        ("--submodules", Selection(submodules=True)),
        ("--lfs", Selection(lfs=True)),
    ],
)
def test_choices_within_a_repository_need_one(library: Path, option: str, selection: Selection) -> None:
    with pytest.raises(SourceError, match=f"{option} chooses within a git repository, but no source is one"):
        open_sources([str(library)], selection)


def test_books_and_repositories_go_together(library: Path, repository: Path) -> None:
    sources = open_sources([str(library / "b.txt"), str(repository)], Selection(exclude=("*.txt",)))
    assert [source.source_uri for source in sources] == [(library / "b.txt").as_uri(), repository.as_uri()]


def test_no_source_at_all() -> None:
    with pytest.raises(SourceError, match="No source was named"):
        open_sources([], Selection())
