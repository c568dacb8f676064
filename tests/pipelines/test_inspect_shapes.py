"""`longdoc inspect` of what has an inner structure, of what is read a segment at a time, and with tokens counted."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tokenizers import Tokenizer

from longdoc.cli import ledger_reading
from longdoc.cli.inspect import inspect
from longdoc.cli.ledger_json import json_pieces
from longdoc.cli.ledger_reading import read_documents
from longdoc.cli.ledger_tree import SegmentLines
from longdoc.errors import DocumentError
from longdoc.model.local import LocalModel
from longdoc.records import DocumentKind, Segment, StreamingRef

PAGE = (
    "<!DOCTYPE html><html lang='de'><head><title>Öre</title></head>"
    "<body><h1>Eins</h1><p>Wörter\nund mehr.</p><!-- nichts --></body></html>"
)


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(inspect, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "page.html").write_text(PAGE, encoding="utf-8")
    return tmp_path / "page.html"


def segment(index: int, text: bytes, start: int, **fields: object) -> Segment:
    facts: dict[str, object] = {"unit": index, "kind": "file", "is_content": True, "num_bytes_source": len(text)}
    stops = {"text_byte_stop": start + len(text), "char_stop": start + len(text), "num_lines": 1}
    return Segment(segment_index=index, text_byte_start=start, char_start=start, **stops, **facts | fields)  # type: ignore[arg-type]  # shorthand


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A repository of files that exist only while they are looked at."""

    num_files: int
    fails_at: int = -1
    asked: list[int]
    doc_id: str = "git:file:///r"
    version: str = "c" * 40
    connector_version: str = "1"
    kind: DocumentKind = "repository"
    source_uri: str = "file:///r"
    num_bytes_source: int = 10
    title: str | None = "r\x1b"
    revision: str | None = "HEAD"

    def read(self) -> None:
        raise AssertionError("read whole")

    def stream(self) -> Iterator[tuple[Segment, bytes]]:
        for index in range(self.num_files):
            if index == self.fails_at:
                raise DocumentError("object 9 is damaged", stage="read", reason="unreadable")
            self.asked.append(index)
            yield segment(index, b"ab\n", 3 * index, path=b"d/%d\xff" % index), b"ab\n"

    def documents(self) -> Iterator["Stream"]:
        yield self


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch):
    def show(source: Stream, *arguments: str) -> Result:
        monkeypatch.setattr("longdoc.cli.inspect.open_sources", lambda names, selection: [source])
        return run("r", *arguments)

    return show


def test_the_parts_of_a_file_stand_below_it(page: Path) -> None:
    lines = run(page).output.splitlines()
    num_bytes, words = len(PAGE.encode()), "Eins" + "Wörter\nund mehr."
    comment = len("<!-- nichts -->")
    text = len(words.encode())
    metadata = len("Öre".encode())
    assert lines == [
        "book · Öre",
        "  de",
        "text",
        "  chapter  Eins  23 bytes of text · html; charset=utf-8 · /html/body/h1[1]",
        "bytes",
        f"  file  {num_bytes} bytes · utf-8",
        f"    text  {text} bytes",
        f"    markup  {num_bytes - text - comment - metadata} bytes",
        f"    unread  {comment} bytes · not text: comment",
        f"    unread  {metadata} bytes · not text: metadata",
        f"{num_bytes} source bytes = {num_bytes} in text segments + 0 with a reason",
        "23 bytes of text in UTF-8",
        "",
    ]


def test_the_map_leads_from_the_text_to_its_elements(page: Path) -> None:
    lines = run(page, "--map").output.splitlines()
    start = lines.index("map")
    assert lines[start + 1 : start + 3] == [
        "  0-4  /html/body/h1[1]  Eins",
        "  6-23  /html/body/p[1]  Wörter und mehr.",
    ]
    document = json.loads(run(page, "--map", "--json").output)["documents"][0]
    assert [each["place"] for each in document["source_map"]] == ["/html/body/h1[1]", "/html/body/p[1]"]
    assert "source_map" not in json.loads(run(page, "--json").output)["documents"][0]


def test_a_long_stretch_of_the_map_is_cut_between_characters(tmp_path: Path) -> None:
    (tmp_path / "p.html").write_text(f"<!DOCTYPE html><p>{'🕯' * 39}ab", encoding="utf-8")
    (line,) = [line for line in run(tmp_path / "p.html", "--map").output.splitlines() if line.startswith("  0-")]
    assert line.endswith("  " + "🕯" * 39 + "a…")


def test_the_ledger_in_json_adds_up_level_by_level(page: Path) -> None:
    document = json.loads(run(page, "--json").output)["documents"][0]
    inside: dict[int | None, int] = {}
    for entry in document["ledger"]:
        inside[entry["parent"]] = inside.get(entry["parent"], 0) + entry["num_bytes"]
    assert inside == {None: len(PAGE.encode()), 0: len(PAGE.encode())}
    assert (document["language"], document["warnings"], document["is_whole"]) == ("de", [], True)


def test_a_member_that_is_no_text_stands_in_the_tree_of_bytes_only(books: Path) -> None:
    lines = run(books / "alice.epub").output.splitlines()
    assert [line for line in lines if "mimetype" in line] == ["  member  mimetype  58 bytes · not text: metadata"]
    assert lines.index("bytes") < lines.index("  member  mimetype  58 bytes · not text: metadata")
    assert f"{(books / 'alice.epub').stat().st_size:,} source bytes = " in lines[-3]


def test_a_stream_is_a_reference_that_can_be_read_piece_by_piece() -> None:
    assert isinstance(Stream(num_files=1, asked=[]), StreamingRef)


def test_a_stream_is_shown_as_it_comes(shown) -> None:
    lines = shown(Stream(num_files=2, asked=[])).output.splitlines()
    assert lines[:-1] == [
        "repository · r\\x1b · " + "c" * 40,
        "  d/",
        "    0\\xff  3 bytes",
        "    1\\xff  3 bytes",
        "6 source bytes = 6 in text segments + 0 with a reason",
        "6 bytes of text in UTF-8",
    ]


def test_a_folder_has_a_line_where_its_files_begin() -> None:
    shown = SegmentLines(in_folders=True)
    paths = (b"a/x/1", b"a/x/2", b"b/x/3", b"b/y/4", b"b/5", b"6", b"b/x/7")
    segments = [segment(at, b"ab\n", 3 * at, path=path) for at, path in enumerate(paths)]
    lines = [line for each in segments for line in shown.lines(each, None, with_tokens=False)]
    assert [line.replace("  3 bytes", "") for line in lines] == [
        *("  a/", "    x/", "      1", "      2", "  b/", "    x/", "      3", "    y/", "      4", "    5", "  6"),
        *("  b/", "    x/", "      7"),
    ]


def test_json_is_written_before_the_rest_is_read() -> None:
    asked: list[int] = []
    pieces = json_pieces(
        read_documents([Stream(num_files=5, asked=asked)]),
        [],
        [],
        count=None,
        with_map=False,  # type: ignore[list-item]  # a test's source
    )
    while '"segment_index": 1' not in next(pieces):
        assert len(asked) < 2
    assert asked == [0, 1]


def test_a_stream_that_breaks_off_is_no_whole_document(shown) -> None:
    result = shown(Stream(num_files=5, fails_at=2, asked=[]), "--json")
    ledger = json.loads(result.output)
    assert result.exit_code == 3
    (document,) = ledger["documents"]
    assert (document["is_whole"], len(document["segments"]), document["num_bytes_source"]) == (False, 2, 6)
    assert ledger["failed"] == [{"source_uri": "file:///r", "reason": "unreadable", "error": "object 9 is damaged"}]
    result = shown(Stream(num_files=5, fails_at=2, asked=[]))
    assert result.exit_code == 3
    assert "source bytes" not in result.output
    assert result.output.endswith("    1\\xff  3 bytes\nfile:///r: unreadable: object 9 is damaged\n\n")


def test_a_stream_that_does_not_tile_is_a_fault(monkeypatch: pytest.MonkeyPatch, shown) -> None:
    def stream(self: Stream) -> Iterator[tuple[Segment, bytes]]:
        yield segment(0, b"ab\n", 1), b"ab\n"

    monkeypatch.setattr(Stream, "stream", stream)
    with pytest.raises(AssertionError, match="segment 0 lies at"):
        shown(Stream(num_files=1, asked=[]))


def test_what_takes_long_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch, shown) -> None:
    monkeypatch.setattr(ledger_reading, "_FIRST_NOTE_SECONDS", 0.0)
    result = shown(Stream(num_files=2, asked=[]))
    assert result.stderr == "r: 3 B of 10 B, 1 segment\n"


def test_tokens_are_counted_segment_by_segment(page: Path, default_model: LocalModel) -> None:
    oracle = Tokenizer.from_file(str(default_model.folder / "tokenizer.json"))
    expected = len(oracle.encode("Eins\n\nWörter und mehr.", add_special_tokens=False).ids)
    lines = run(page, "--tokens").output.splitlines()
    assert lines[3].endswith(f"/html/body/h1[1] · {expected} tokens")
    assert lines[-2] == f"{expected} tokens of smollm2-135m-instruct"
    document = json.loads(run(page, "--tokens", "--json").output)["documents"][0]
    assert (document["num_tokens"], [each["num_tokens"] for each in document["segments"]]) == (expected, [expected])


def test_a_byte_without_a_token_is_told(tmp_path: Path, default_model: LocalModel) -> None:
    # The default model's vocabulary has no token for the byte 0x04.
    (tmp_path / "a.txt").write_text("CHAPTER I\n\nOne.\n\nCHAPTER II\n\nTwo \x04.\n")
    lines = run(tmp_path / "a.txt", "--tokens").output.splitlines()
    assert "no tokens: a byte without one" in lines[2]
    assert lines[-2].endswith("; 1 segment not counted, with a byte that has none")
