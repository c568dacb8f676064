"""The archive of a job: what is in it, that it is the same for the same files, and what is refused by name."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from longdoc.errors import StartError
from longdoc.submission import package
from longdoc.submission.cargo import CargoFile
from longdoc.submission.package import build


def in_memory(name: str, content: bytes) -> CargoFile:
    return CargoFile(name=name, label=f"label of {name}", content=content)


def test_every_file_is_in_it_whatever_ignore_rules_say(tmp_path: Path) -> None:
    for name in (".gitignore", ".rayignore", "book.txt"):
        (tmp_path / name).write_text("*\n")
    files = [CargoFile(name=f"sources/0001/{path.name}", label=path.name, path=path) for path in tmp_path.iterdir()]
    files += [in_memory("sources/0001/repo/.git/HEAD", b"ref: x")]
    built = build(files, tmp_path / "package.zip")
    with zipfile.ZipFile(built.path) as archive:
        assert set(archive.namelist()) == {file.name for file in files}
        assert archive.read("sources/0001/book.txt") == b"*\n"


def test_the_same_files_make_the_same_archive_in_any_order_and_at_any_time(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_bytes(b"once upon a time\n" * 1000)
    files = [in_memory("b", b"2"), CargoFile(name="a", label="a", path=book)]
    first = build(files, tmp_path / "1.zip")
    book.touch()
    second = build(files[::-1], tmp_path / "2.zip")
    assert first.path.read_bytes() == second.path.read_bytes()
    assert first.name == second.name == f"_ray_pkg_{hashlib.sha256(first.path.read_bytes()).hexdigest()[:32]}.zip"
    assert build([in_memory("b", b"3"), files[1]], tmp_path / "3.zip").name != first.name


def test_what_is_listed_is_the_largest_upload_first(tmp_path: Path) -> None:
    noise = hashlib.shake_256(b"noise").digest(5000)
    built = build(
        [in_memory("small", b"x"), in_memory("flat", b"\0" * 90_000), in_memory("noise", noise)], tmp_path / "p"
    )
    assert [file.name for file in built.files] == ["noise", "flat", "small"]
    assert [file.num_bytes for file in built.files] == [5000, 90_000, 1]
    assert built.num_bytes == (tmp_path / "p").stat().st_size


def test_over_the_cap_the_largest_are_named_and_the_rest_is_counted(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(package, "MOST_BYTES", 4096)
    noise = tmp_path / "noise"
    noise.write_bytes(hashlib.shake_256(b"noise").digest(100_000))
    files = [in_memory(f"small{n}", b"x" * n) for n in range(10)]
    files.append(CargoFile(name="large", label="/home/me/large.epub", path=noise))
    with pytest.raises(StartError) as refused:
        build(files, tmp_path / "p")
    first, *lines = str(refused.value).split("\n")
    assert first == (
        "what the job needs is 97.7 KiB, and Ray takes 4.0 KiB once it is compressed. Put it where the cluster's nodes "
        "see it and name that with --remote-path, or name a repository's URL. The largest:"
    )
    assert lines[0].split() == ["97.7", "KiB", "/home/me/large.epub"]
    assert lines[-1] == "  and 6 more files"


def test_many_small_files_over_the_cap_are_refused_too(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(package, "MOST_BYTES", 4096)
    with pytest.raises(StartError, match=r"Ray takes 4.0 KiB"):
        build([in_memory(f"{n:04d}", b"") for n in range(100)], tmp_path / "p")


def test_a_book_that_changed_since_it_was_listed_is_not_sent(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("new")
    with pytest.raises(StartError, match=r"my book changed while it was packed"):
        build(
            [CargoFile(name="b", label="my book", path=book, sha256=hashlib.sha256(b"old").hexdigest())], tmp_path / "p"
        )


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"my book cannot be read: No such file or directory"):
        build([CargoFile(name="b", label="my book", path=tmp_path / "none")], tmp_path / "p")
