"""`longdoc inspect`: the ledger that people and machines see."""

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from longdoc.cli.inspect import inspect
from longdoc.errors import SourceError


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(inspect, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.py").write_bytes(b"x = 1")
    (folder / "logo.png").write_bytes(b"\x89PNG\0\0\0")
    (folder / "old.txt").write_bytes("Ein ganz normaler Satz über Bücher und Wörter.\n".encode("latin-1") * 5)
    for command in (
        ["init", "-q", "-b", "main"],
        ["add", "."],
        ["-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "-q", "-m", "x"],
    ):
        subprocess.run(["git", "-C", str(folder), *command], check=True)
    return folder


def test_a_repository_is_a_tree_of_bytes(repository: Path) -> None:
    result = run(repository, "--exclude", "old.txt")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].startswith("repository · repo · ")
    assert lines[1:] == [
        "  repository_header  0 bytes",
        "  logo.png  7 bytes · not text: binary",
        "  old.txt  235 bytes · not text: excluded",
        "  src/",
        "    a.py  5 bytes · utf-8",
        "247 source bytes = 5 in text segments + 242 with a reason",
        "39 bytes of text in UTF-8, 34 of them headers and padding that no file holds",
        "",
    ]


def test_folders_beyond_a_depth_are_one_flat_path(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main", str(tmp_path)], check=True)
    commit = ["commit refs/heads/main", "committer A <a@b.c> 0 +0000", "data 1", "x"]
    for path, text in (("d/" * 1200 + "deep", "1\n"), ("d/" * 1200 + "too", "2\n"), ("d/" * 20 + "shown", "3\n")):
        commit += [f"M 100644 inline {path}", f"data {len(text)}", text]
    subprocess.run(
        ["git", "-C", str(tmp_path), "fast-import", "--quiet"], input="\n".join(commit).encode() + b"\n", check=True
    )
    lines = run(tmp_path).output.splitlines()
    indented = [(len(line) - len(line.lstrip()), line.lstrip()) for line in lines[2:-3]]
    assert indented == [
        *[(2 + 2 * depth, "d/") for depth in range(20)],
        (42, "/".join("d" * 1180) + "/"),
        (44, "deep  2 bytes · utf-8"),
        (44, "too  2 bytes · utf-8"),
        (42, "shown  2 bytes · utf-8"),
    ]


def test_how_an_encoding_was_found_is_shown(repository: Path) -> None:
    (line,) = [line for line in run(repository).output.splitlines() if "old.txt" in line]
    assert line.endswith(("(guess)", "(latin-1)"))


def test_a_folder_shows_its_books_and_what_was_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("CHAPTER I\n\nOne \x1b[31m.\n\nCHAPTER II\n\nTwo.\n")
    (tmp_path / "b\x1b.bin").write_bytes(b"x")
    result = run(tmp_path)
    assert result.output.splitlines() == [
        "book · a",
        "  chapter  CHAPTER I  23 bytes · utf-8",
        "  chapter  CHAPTER II  17 bytes · utf-8",
        "40 source bytes = 40 in text segments + 0 with a reason",
        "40 bytes of text in UTF-8",
        "",
        f"skipped {tmp_path}/b\\x1b.bin: not a known book: .bin",
    ]


def test_a_document_at_fault_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")
    (tmp_path / "b.txt").write_text("words")
    result = run(tmp_path)
    assert result.exit_code == 3
    assert f"{(tmp_path / 'a.txt').as_uri()}: empty: {tmp_path / 'a.txt'} is empty" in result.output
    assert "5 source bytes = 5 in text segments + 0 with a reason" in result.output


def test_json_holds_every_segment(repository: Path) -> None:
    result = run(repository, "--json")
    (document,) = json.loads(result.output)["documents"]
    assert document["kind"] == "repository"
    assert (
        document["num_bytes_source"] == document["num_bytes_source_text"] + document["num_bytes_source_reason"] == 247
    )
    assert sum(segment["num_bytes_source"] for segment in document["segments"]) == 247
    (code,) = [
        segment for segment in document["segments"] if segment["display_path"] == "src/a.py" and segment["is_content"]
    ]
    assert bytes.fromhex(code["path"]) == b"src/a.py"
    assert (code["text_byte_stop"] - code["text_byte_start"], code["num_lines"]) == (5, 1)


def test_json_names_failures(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")
    result = run(tmp_path, "--json")
    assert result.exit_code == 3
    ledger = json.loads(result.output)
    assert [(failure["reason"], ledger["documents"]) for failure in ledger["failed"]] == [("empty", [])]


def test_a_source_that_is_not_there_is_refused() -> None:
    with pytest.raises(SourceError, match="No such file or folder: 'nope'"):
        run("nope")
