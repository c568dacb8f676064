"""What a person sees of a run, on a terminal and in a log."""

import io
from dataclasses import dataclass

import pytest
from rich.console import Console

from longdoc.cli.progress import PlainReporter, make_reporter, print_summary
from longdoc.reporting import Fault, Progress
from longdoc.runs.record import RunRecord, SetAside


@dataclass(frozen=True)
class Ref:
    source_uri: str
    num_bytes_source: int = 2048


BOOK = Ref("file:///books/a%20lamp.txt")
HALF = Progress(layer=14, num_layers=30, hop=1, num_hops=2, fraction=0.5)


def tell_a_story(reporter) -> None:
    reporter.note("a ring of 2")
    reporter.planned(todo=[BOOK, BOOK], num_committed=1, num_quarantined=0)
    reporter.reading(BOOK)
    reporter.started(BOOK, num_tokens=46_121)
    reporter.progressed(BOOK, HALF)
    reporter.committed(BOOK, num_tokens=46_121, seconds=12.34)
    reporter.quarantined("file:///books/\x1b[31mred.txt", Fault(stage="read", reason="empty", error="nothing in it"))


def test_a_log_gets_plain_lines_and_no_control_characters(capsys):
    tell_a_story(PlainReporter())
    assert capsys.readouterr().err.splitlines() == [
        "a ring of 2",
        "2 documents to do, 1 already committed",
        "a%20lamp.txt: reading 2.0 KiB",
        "a%20lamp.txt: 46,121 tokens, computing",
        "a%20lamp.txt: committed, 46,121 tokens in 12.3 s",
        "file:///books/\\x1b[31mred.txt: quarantined at read, empty: nothing in it",
    ]


def test_a_long_document_says_where_it_is_now_and_then(capsys, monkeypatch):
    clock = iter([0.0, 5.0, 11.0, 11.0, 12.0])
    monkeypatch.setattr("longdoc.cli.progress.time.monotonic", lambda: next(clock))
    reporter = PlainReporter()
    reporter.started(BOOK, num_tokens=46_121)
    for _ in range(3):
        reporter.progressed(BOOK, HALF)
    assert capsys.readouterr().err.splitlines()[1:] == ["a%20lamp.txt: 50%, layer 15/30 hop 2/2"]


def test_a_terminal_gets_a_bar_with_tokens_layer_hop_and_estimate():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, legacy_windows=False)
    with make_reporter(console) as reporter:
        reporter.started(BOOK, num_tokens=46_121)
        reporter._bars.refresh()
        assert "46,121 tokens" in screen.getvalue()
        reporter.progressed(BOOK, HALF)
        reporter._bars.refresh()
        assert "layer 15/30 hop 2/2" in screen.getvalue()
        assert "50%" in screen.getvalue()
        reporter.committed(BOOK, num_tokens=46_121, seconds=12.34)
    assert "a%20lamp.txt: committed, 46,121 tokens in 12.3 s" in screen.getvalue()


def test_what_is_no_terminal_gets_no_bar():
    with make_reporter(Console(file=io.StringIO())) as reporter:
        assert type(reporter) is PlainReporter


@pytest.mark.parametrize(
    ("num_committed", "num_quarantined", "line"),
    [
        (2, 0, "Nothing to do: 2 already committed."),
        (0, 1, "Nothing to do: 1 in quarantine (--retry-quarantine tries again)."),
        (0, 0, "Nothing to do: no document can be read."),
    ],
)
def test_nothing_to_do_is_said(capsys, num_committed, num_quarantined, line):
    PlainReporter().planned(todo=[], num_committed=num_committed, num_quarantined=num_quarantined)
    assert capsys.readouterr().err == line + "\n"


def test_the_summary_is_a_table_for_people(capsys):
    record = RunRecord(num_committed=3, num_tokens=1000, peak_rss_bytes=(5 << 20, 7 << 20))
    print_summary(
        record.summary(
            num_planned=5,
            num_committed_before=1,
            quarantined=[SetAside(source_uri="a", stage="read", reason="gone", error="no")],
        ),
        "out",
        as_json=False,
    )
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert {"planned 5", "committed before 1", "committed now 3", "quarantined 1"} <= set(lines)
    assert "peak memory of a rank 7.0 MiB" in lines
    assert "tables in out; check them with: longdoc verify out" in lines
