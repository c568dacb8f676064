"""What is sent and what arrives: the same documents under the same addresses, and no secret."""

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from longdoc.errors import InfrastructureError, SourceError
from longdoc.records import Selection, Unreadable
from pipelines.shipping import pack_sources
from pipelines.sources import open_sources

SECRET = "s3cr3t"


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    done = subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Books and a repository of two commits, with ignore rules that name everything."""
    folder = tmp_path_factory.mktemp("pattern")
    (folder / "novels" / "old").mkdir(parents=True)
    (folder / "alice.txt").write_bytes(b"CHAPTER I.\r\n\r\nDown the hole\r\n")
    (folder / "novels" / "old" / "ship.md").write_text("# Ship\n\nA ship.\n")
    (folder / "novels" / "notes.xyz").write_bytes(b"\0\1")
    for name in (".gitignore", ".rayignore"):
        (folder / "novels" / name).write_text("*\n")
    project = folder / "project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "a.py").write_text("x = 1\n")
    (project / "b.bin").write_bytes(bytes(range(256)))
    git(project, "init", "-q", "-b", "main")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "one")
    (project / "src" / "a.py").write_text("x = 2\n")
    git(project, "commit", "-qam", "two")
    return folder


@pytest.fixture
def home(pattern: Path, tmp_path: Path) -> Path:
    return shutil.copytree(pattern, tmp_path / "home")


@pytest.fixture
def ship(tmp_path: Path, monkeypatch):
    """Pack arguments, lay the files out elsewhere as a cluster does, go there, and give the arguments of the run."""

    def ship(*arguments: object, selection: Selection | None = None, remote: tuple[str, ...] = ()):
        packing, there = tmp_path / "packing", tmp_path / "there"
        packing.mkdir()
        cargo = pack_sources([str(each) for each in arguments], remote, selection or Selection(), packing)
        for file in cargo.files:
            target = there / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.content if file.path is None else file.path.read_bytes())
        shutil.rmtree(packing)
        there.mkdir(exist_ok=True)
        monkeypatch.chdir(there)
        return cargo

    return ship


def documents(arguments, selection: Selection):
    return [ref for source in open_sources([str(each) for each in arguments], selection) for ref in source.documents()]


def identity(ref):
    return ref.doc_id, ref.version, ref.connector_version, ref.kind, ref.source_uri, ref.num_bytes_source


def test_a_repository_that_speaks_sha256_arrives(tmp_path: Path, ship) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.py").write_text("x = 1\n")
    git(project, "init", "-q", "-b", "main", "--object-format=sha256")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "one")
    (at_home,) = documents([project], Selection())
    text = at_home.read().text
    (there,) = documents(ship(project).arguments, Selection())
    assert identity(there) == identity(at_home)
    assert there.read().text == text


@pytest.mark.parametrize(
    ("names", "selection"),
    [
        (["alice.txt"], Selection()),
        (["novels", "alice.txt"], Selection()),
        (["novels/notes.xyz"], Selection(kind="book")),
        (["project"], Selection()),
        (["project"], Selection(revision="main~1", include=("src/**",), exclude=("*.bin",))),
        (["project/src"], Selection(kind="repository")),
        (["project", "alice.txt"], Selection(include=("src/*",))),
    ],
)
def test_documents_arrive_with_the_identity_and_the_content_that_they_have_at_home(
    home, ship, names, selection
) -> None:
    expected = documents([home / name for name in names], selection)
    cargo = ship(*(home / name for name in names), selection=selection)
    contents = [ref.read() for ref in expected]
    home.rename(home.with_name("gone"))
    arrived = documents(cargo.arguments, selection)
    assert [identity(ref) for ref in arrived] == [identity(ref) for ref in expected]
    assert [ref.read() for ref in arrived] == contents
    assert cargo.num_sources == len(names)


def test_a_repository_travels_without_its_history(home, ship) -> None:
    first = git(home / "project", "rev-parse", "main~1")
    cargo = ship(home / "project")
    (folder,) = cargo.arguments
    assert git(Path(folder) / "project", "rev-parse", "HEAD") == git(home / "project", "rev-parse", "main")
    with pytest.raises(subprocess.CalledProcessError):
        git(Path(folder) / "project", "cat-file", "-e", first)


def test_what_is_passed_over_is_told(home, ship) -> None:
    skipped = {Path(path).name: reason for path, reason in ship(home / "novels").skipped}
    assert skipped == {
        ".gitignore": "not a known book: no extension",
        ".rayignore": "not a known book: no extension",
        "notes.xyz": "not a known book: .xyz",
    }


def test_two_submissions_of_one_source_are_the_same_files(home, tmp_path) -> None:
    packed = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        cargo = pack_sources([str(home / "novels"), str(home / "project")], [], Selection(), tmp_path / name)
        packed.append(
            [(file.name, file.content if file.path is None else file.path.read_bytes()) for file in cargo.files]
        )
    assert packed[0] == packed[1]
    assert str(tmp_path / "one").encode() not in b"".join(content for _, content in packed[0])


def test_standard_input_is_shipped_under_its_digest(ship, monkeypatch) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b"a book\n"))
    monkeypatch.setattr(sys, "stdin", stdin)
    (ref,) = documents(ship("-").arguments, Selection())
    assert ref.doc_id == ref.source_uri == f"stdin:{ref.version[:16]}"
    assert ref.read().text == b"a book\n"
    assert ref.read().source_uri == ref.doc_id


def test_a_list_keeps_its_line_numbers_and_sets_aside_what_cannot_be_opened(home, ship) -> None:
    url = "https://example.org/a/b.git@v1"
    listing = home / "all.txt"
    listing.write_text(f"# books\nalice.txt\n\nmissing.txt\n{url}\nproject\n")
    cargo = ship(f"@{listing}")
    (argument,) = cargo.arguments
    lines = Path(argument.removeprefix("@")).read_text().split("\n")
    assert (lines[0], lines[2], lines[4]) == ("", "", url)
    assert (cargo.num_sources, cargo.named) == (4, ())
    listing.write_text("alice.txt\nmissing.txt\nproject\n")
    refs = documents([line.replace("../", "sources/") for line in lines if line and line != url], Selection())
    book, missing, repository = refs
    assert book.source_uri == (home / "alice.txt").as_uri()
    assert repository.doc_id == f"git:{(home / 'project').as_uri()}"
    assert isinstance(missing, Unreadable)
    assert missing.source_uri == (home / "missing.txt").as_uri()
    assert missing.error.startswith(f"{listing}, line 4: No such file or folder")


def test_addresses_and_paths_of_the_cluster_go_by_name(ship) -> None:
    cargo = ship("https://example.org/a/b@v1", "git@example.org:a/b.git", remote=("/shared/books",))
    assert cargo.arguments == cargo.named == ("https://example.org/a/b@v1", "git@example.org:a/b.git", "/shared/books")
    assert cargo.files == ()


@pytest.mark.parametrize("form", ["argument", "list"])
@pytest.mark.parametrize(
    "url",
    [
        f"https://me:{SECRET}@example.org/a/b.git",
        f"https://{SECRET}@example.org/a/b.git",
        f"ssh://me:{SECRET}@example.org/a/b.git",
        f"https://example.org/a/b.git?token={SECRET}",
        f"http://me:{SECRET}@example.org/a/b.git",
    ],
)
def test_a_secret_in_an_address_is_refused_and_not_shown(form, url, tmp_path, ship) -> None:
    argument = url
    if form == "list":
        (tmp_path / "list.txt").write_text(f"{url}\n")
        argument = f"@{tmp_path}/list.txt"
    with pytest.raises(SourceError) as refused:
        ship(argument)
    assert SECRET not in str(refused.value)


def test_the_way_out_of_a_secret_is_named(ship) -> None:
    with pytest.raises(SourceError) as refused:
        ship(f"https://me:{SECRET}@example.org/a/b.git")
    assert str(refused.value) == (
        "https://example.org/a/b.git carries a name or a password, which would be readable to all who use the cluster. "
        "Leave it out, and let a credential helper or a key on the cluster's nodes give it to git."
    )


@pytest.mark.parametrize(
    ("arguments", "selection", "remote", "said"),
    [
        (["file:///home/me/project"], Selection(), (), "is a repository of this machine, and the cluster is another"),
        (["missing.txt"], Selection(), (), "No such file or folder: 'missing.txt'"),
        (["alice.txt"], Selection(revision="v1"), (), "--revision chooses within a git repository"),
        (["project"], Selection(submodules=True), (), "with --submodules it needs more than its own objects"),
        (["project"], Selection(lfs=True), (), "with --lfs it needs more than its own objects"),
        (["project"], Selection(revision="none"), (), "has no commit that 'none' names"),
        ([], Selection(), ("books",), "--remote-path books is no absolute path"),
        ([], Selection(), ("/b\udcff",), r"--remote-path /b\\xff is not UTF-8"),
        (["-", "@-"], Selection(), (), "Name them by a file"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_the_reason(
    home, ship, monkeypatch, arguments, selection, remote, said
) -> None:
    monkeypatch.chdir(home)
    if arguments == ["-", "@-"]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"alice.txt\n")))
        said = "are the same standard input"
    with pytest.raises(SourceError, match=said):
        ship(*arguments, selection=selection, remote=remote)


def test_globs_may_be_meant_for_what_only_the_cluster_sees(ship) -> None:
    assert ship(selection=Selection(include=("src/**",)), remote=("/shared/project",)).named == ("/shared/project",)


def test_a_repository_whose_name_no_archive_holds_is_refused(home, ship) -> None:
    (home / "project").rename(home / "pro\\ject")
    with pytest.raises(SourceError, match="its name, which is part of its text, cannot be a folder's everywhere"):
        ship(home / "pro\\ject")


def test_blobs_that_a_partial_clone_lacks_are_lacking_there_too(home, ship, tmp_path) -> None:
    git(home / "project", "config", "uploadpack.allowFilter", "true")
    partial = home / "partial"
    git(home, "clone", "-q", "--no-checkout", "--filter=blob:none", (home / "project").as_uri(), str(partial))
    expected = documents([partial], Selection())[0].read()
    assert "object_missing" in {segment.reason for segment in expected.segments}
    assert documents(ship(partial).arguments, Selection())[0].read() == expected


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_book_that_did_not_arrive_whole_is_nobodys_document(home, ship, damage) -> None:
    (folder,) = ship(home / "alice.txt").arguments
    copy = next(path for path in Path(folder).iterdir() if path.suffix != ".json")
    copy.unlink()
    if damage == "changed":
        copy.write_text("another book")
    with pytest.raises(InfrastructureError, match=r"alice.txt did not arrive as it was sent"):
        documents([folder], Selection())


BOOK = {"path": "/a.txt", "uri": "file:///a.txt", "sha256": "0"}
COMMIT = {"uri": "file:///a", "commit": "0" * 40, "below": ""}


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ({"version": 99}, "version 99, and this longdoc reads 1"),
        ({"kind": "book", "documents": [BOOK | {"file": "../../etc/passwd"}]}, "leads out of the folder"),
        ({"kind": "book", "documents": [BOOK | {"file": "/etc/passwd"}]}, "leads out of the folder"),
        ({"kind": "repository", "documents": [COMMIT | {"git_dir": "a/../../b/.git"}]}, "leads out of the folder"),
        ({"kind": "repository", "documents": []}, "not enough values"),
        ({"kind": "book", "documents": [{"unreadable": {}}]}, "missing 6 required"),
        ({"kind": "book", "documents": [{"file": "1", "path": 1, "uri": "", "sha256": ""}]}, "path is 1"),
    ],
)
def test_a_folder_that_is_not_whole_is_refused(tmp_path, mark, said) -> None:
    (tmp_path / "longdoc-shipped.json").write_text(json.dumps({"version": 1, "source_uri": "file:///a"} | mark))
    with pytest.raises(SourceError, match=rf"is a shipped source that is not whole: .*{said}.* Submit it again"):
        open_sources([str(tmp_path)], Selection())


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
def test_a_list_of_a_shipped_source_that_is_none_is_refused(tmp_path, content) -> None:
    (tmp_path / "longdoc-shipped.json").write_bytes(content)
    with pytest.raises(SourceError, match=r"is a shipped source that is not whole: .* Submit it again"):
        open_sources([str(tmp_path)], Selection())


def test_books_are_shipped_without_git(home, ship, monkeypatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    assert len(documents(ship(home / "alice.txt").arguments, Selection())) == 1
