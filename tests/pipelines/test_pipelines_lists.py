"""Lists of sources and standard input: what a line may be, what a mistake costs, how a book without a name is named."""

import gzip
import hashlib
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors import stdin
from connectors.folder import BookSource
from connectors.stdin import open_stdin
from longdoc.cli.main import call
from longdoc.errors import DocumentError, SourceError
from longdoc.records import Selection, Source, Unreadable
from pipelines.sources import open_sources


def open_list(folder: Path, content: bytes, **selection: object) -> list[Source]:
    (folder / "list.txt").write_bytes(content)
    return open_sources([f"@{folder / 'list.txt'}"], Selection(**selection))  # type: ignore[arg-type]  # shorthand


def uris(sources: list[Source]) -> list[str]:
    return [source.source_uri for source in sources]


def failures(sources: list[Source]) -> list[Unreadable]:
    return [found for source in sources for found in source.documents() if isinstance(found, Unreadable)]


def refused(*arguments: str) -> str:
    with pytest.raises(SourceError) as caught:
        open_sources(arguments, Selection())
    return str(caught.value)


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    for name in ("a.txt", "b ö.txt", "#c.txt", "@d.txt", "-"):
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    def pipe(raw: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(raw), isatty=lambda: False))

    return pipe


def test_every_line_of_a_list_is_a_source_in_its_order(shelf: Path) -> None:
    content = "\ufeffb ö.txt\r\n\n  # not this\n\ta.txt \n./#c.txt\n./@d.txt\n./-".encode()
    found = uris(open_list(shelf, content))
    assert found == [(shelf / name).as_uri() for name in ("b ö.txt", "a.txt", "#c.txt", "@d.txt", "-")]


def test_relative_paths_start_at_the_folder_of_the_list(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    (shelf / "lists").mkdir()
    assert uris(open_list(shelf / "lists", b"../a.txt\n")) == [(shelf / "a.txt").as_uri()]
    monkeypatch.setenv("HOME", str(shelf))
    assert uris(open_list(shelf / "lists", b"~/a.txt\n")) == [(shelf / "a.txt").as_uri()]


def test_a_name_that_is_not_utf8_is_reached_by_its_bytes(shelf: Path) -> None:
    path = os.fsencode(shelf) + b"/\xff.txt"
    Path(os.fsdecode(path)).write_text("x")
    assert uris(open_list(shelf, b"\xff.txt")) == [Path(os.fsdecode(path)).as_uri()]


def test_lists_hold_books_folders_and_repositories(shelf: Path) -> None:
    repository = shelf / "r"
    subprocess.run(["git", "init", "-q", "-b", "main", str(repository)], check=True)
    who = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
    subprocess.run(["git", "-C", str(repository), *who, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    (shelf / "more").mkdir()
    (shelf / "more" / "e.txt").write_text("e")
    sources = open_list(shelf, b"r\nmore\na.txt\n", revision="main")
    assert uris(sources) == [repository.as_uri(), (shelf / "more").as_uri(), (shelf / "a.txt").as_uri()]


def test_a_line_that_opens_nothing_costs_only_itself(shelf: Path) -> None:
    (shelf / "b.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    lines = b"gone.txt\na.txt\n@d.txt\n-\nb.png\nx\x7f\n"
    sources = open_list(shelf, lines)
    assert [type(source).__name__ for source in sources] == ["FailedSource", "BookSource"] + ["FailedSource"] * 4
    found = failures(sources)
    listed = shelf / "list.txt"
    assert [each.error.partition(": ")[0] for each in found] == [f"{listed}, line {n}" for n in (1, 3, 4, 5, 6)]
    assert found[0].error.startswith(f"{listed}, line 1: No such file or folder: '{shelf}/gone.txt'.")
    assert "a list inside a list is not read" in found[1].error
    assert "standard input is no line of a list" in found[2].error
    assert {(each.stage, each.reason, each.kind) for each in found} == {("read", "not_opened", "book")}
    # The document's own name: when the file is there, a run that commits it ends its quarantine.
    assert found[0].doc_id == (shelf / "gone.txt").as_uri()


def test_a_repository_of_a_list_that_is_not_there_keeps_its_secrets(shelf: Path) -> None:
    (found,) = failures(open_list(shelf, b"https://me:s3cret@localhost:1/x.git\n"))
    assert (found.kind, found.doc_id, found.source_uri) == (
        "repository", "git:https://localhost:1/x.git", "https://localhost:1/x.git",
    )  # fmt: skip
    assert "s3cret" not in found.error


def test_a_list_of_one_repository_that_is_gone_says_that_it_is_gone(shelf: Path) -> None:
    # Not that --include is of no use, because no source is a repository.
    (gone,) = failures(open_list(shelf, b"gone\n", include=("src/**",)))
    assert gone.error.startswith(f"{shelf}/list.txt, line 1: No such file or folder: '{shelf}/gone'.")


def test_a_typo_on_the_command_line_stops_everything(shelf: Path) -> None:
    (shelf / "list.txt").write_bytes(b"gone.txt\n")
    assert refused(f"@{shelf / 'list.txt'}", "nope").startswith("No such file or folder: 'nope'.")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "The list {} names no source. Write one a line, or leave the list out."),
        (b"# nothing\n\n", "The list {} names no source."),
        (b"a.txt\nPK\x03\x04\0\0\n", "{}, line 2 holds a NUL byte, so this is no list of sources."),
        (b"x" * 70_000, "{}, line 1 has more than 65,536 bytes, so this is no list of sources."),
    ],
)
def test_what_is_no_list_is_refused(shelf: Path, content: bytes, message: str) -> None:
    (shelf / "list.txt").write_bytes(content)
    assert refused(f"@{shelf / 'list.txt'}").startswith(message.format(shelf / "list.txt"))


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.lists(st.one_of(st.binary(max_size=12), st.text(max_size=12).map(str.encode)), max_size=8))
def test_any_bytes_are_a_list_or_are_refused_in_words(shelf: Path, content: list[bytes]) -> None:
    raw = b"\n".join(content)
    lines = [os.fsdecode(line).strip() for line in raw.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
    wanted = [line for line in lines if line and not line.startswith("#")]
    nothing = BookSource(source_uri="", paths=())
    with pytest.MonkeyPatch.context() as patch:
        # Nothing is opened: a line may well name the root of this machine's files.
        patch.setattr("pipelines.sources._open_argument", lambda argument, selection: nothing)
        if not wanted or b"\0" in raw:
            with pytest.raises(SourceError, match=r"no source|NUL byte"):
                open_list(shelf, raw)
            return
        sources = open_list(shelf, raw)
    assert len(sources) == len(wanted)
    for found in failures(sources):
        assert f"{shelf / 'list.txt'}, line " in found.error


def test_a_list_that_is_not_there(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shelf)
    assert refused("@nope") == "No such list of sources: nope. @ stands before the name of a list."
    assert refused("@d.txt").endswith("before the name of a list. For the file @d.txt itself, write ./@d.txt.")
    assert refused("@a\0b") == "No list of sources can be called a\\x00b."
    assert refused(f"@{shelf}").startswith(f"The list of sources {shelf} cannot be read: Is a directory.")
    assert uris(open_sources(["./@d.txt"], Selection())) == [(shelf / "@d.txt").as_uri()]


def test_a_list_comes_from_standard_input(
    shelf: Path, piped: Callable[[bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shelf)
    piped(b"a.txt\ngone\n")
    sources = open_sources(["@-"], Selection())
    assert uris(sources) == [(shelf / "a.txt").as_uri(), (shelf / "gone").as_uri()]
    assert failures(sources)[0].error.startswith("standard input, line 2: No such file or folder")


def test_a_book_from_standard_input_is_named_by_its_content(piped: Callable[[bytes], None]) -> None:
    raw = b"CHAPTER I\n\nOne.\n\nCHAPTER II\n\nTwo.\n"
    digest = hashlib.sha256(raw).hexdigest()
    piped(raw)
    (source,) = open_sources(["-"], Selection())
    (ref,) = source.documents()
    assert not isinstance(ref, Unreadable)
    assert (ref.doc_id, ref.version, ref.num_bytes_source) == (f"stdin:{digest[:16]}", digest, len(raw))
    document = pickle.loads(pickle.dumps(ref)).read()
    document.check()
    assert (document.text, document.source_uri, document.title) == (raw, f"stdin:{digest[:16]}", "stdin")
    assert [segment.title for segment in document.segments] == ["CHAPTER I", "CHAPTER II"]


def test_any_format_comes_by_its_content() -> None:
    page = b"<!DOCTYPE html><html><head><title>T</title></head><body><p>Words.</p></body></html>"
    source = open_stdin(io.BytesIO(page))
    (ref,) = source.documents()
    assert ref.read().text == b"Words."
    assert ref.connector_version.startswith("html-")
    source = open_stdin(io.BytesIO(gzip.compress(b"Packed words.")))
    (ref,) = source.documents()
    assert ref.read().text == b"Packed words."


def test_what_is_no_book_says_so_when_it_is_read() -> None:
    for raw, reason in ((b"", "empty"), (b"\x89PNG\r\n\x1a\n", "unknown_format")):
        source = open_stdin(io.BytesIO(raw))
        (ref,) = source.documents()
        with pytest.raises(DocumentError) as caught:
            ref.read()
        assert caught.value.reason == reason
        assert str(caught.value).startswith("stdin is ")


def test_the_copy_goes_with_its_source() -> None:
    source = open_stdin(io.BytesIO(b"x"))
    path = Path(source.ref.path)
    assert path.read_bytes() == b"x"
    del source
    assert not path.exists()


def test_standard_input_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdin, "MOST_BYTES", 3)
    open_stdin(io.BytesIO(b"xxx"))
    with pytest.raises(SourceError, match="holds more than 3 bytes"):
        open_stdin(io.BytesIO(b"xxxx"))


def test_a_terminal_and_no_input_at_all_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.BytesIO):
        def isatty(self) -> bool:
            return True

    with pytest.raises(SourceError, match="which is a terminal"):
        open_stdin(Terminal())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Terminal(), isatty=lambda: True))
    assert "nothing is piped" in refused("@-")
    monkeypatch.setattr(sys, "stdin", None)
    assert "there is none" in refused("-")
    assert "nothing is piped" in refused("@-")


def test_standard_input_is_read_once(shelf: Path) -> None:
    assert refused("-", "-").startswith("- and - are the same standard input, which can be read once.")
    assert refused("@-", "-").startswith("@- and - are the same standard input")


def test_standard_input_is_no_repository(piped: Callable[[bytes], None]) -> None:
    piped(b"x")
    with pytest.raises(SourceError, match="holds no git repository"):
        open_sources(["-"], Selection(kind="repository"))


def test_inspect_shows_what_a_list_opens_and_what_it_does_not(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shelf / "list.txt").write_bytes(b"a.txt\ngone.txt\n")
    assert call(["inspect", f"@{shelf / 'list.txt'}"]) == 3
    out = capsys.readouterr().out
    assert "5 source bytes = 5 in text segments" in out
    assert f"{(shelf / 'gone.txt').as_uri()}: not_opened: {shelf / 'list.txt'}, line 2: No such file" in out
