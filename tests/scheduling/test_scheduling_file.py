"""The file of a schedule: what it may say, and that every mistake is told at once."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from longdoc.errors import StartError
from longdoc.scheduling.schedule_file import read_schedule

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
ENTRY = 'cron = "30 2 * * *"\nsources = ["a"]\noutput = "out"\n'


def read(folder: Path, text: str):
    path = folder / "s.toml"
    path.write_text(text)
    return read_schedule(path, NOW)


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(StartError) as refused:
        read(folder, text)
    return [line.removeprefix(f"schedule {folder / 's.toml'}: ") for line in str(refused.value).splitlines()]


def test_an_entry_has_the_options_of_a_run_and_those_at_the_top(tmp_path):
    found = read(
        tmp_path,
        'timezone = "Europe/Berlin"\nmodel = "tiny-random"\noutput = "out"\nruns-at-once = 2\n'
        '[entries.a]\ncron = "0 1 * * *"\nsources = "x"\ninclude = ["src/**"]\nring-size = 1\n'
        '[entries.b]\ncron = "0 2 * * *"\nsources = ["y"]\ntimezone = "UTC"\nenabled = false\ntakeover-after = 60\n'
        "deadline = 3600\n",
    )
    a, b = found.entries
    assert (a.name, a.sources, a.output, a.root) == ("a", ("x",), "out", tmp_path / "out")
    assert a.options == {"model": "tiny-random", "include": ["src/**"], "ring_size": 1}
    assert (a.cron.zone.key, a.enabled, a.takeover_after, a.deadline) == ("Europe/Berlin", True, 300, None)
    assert (b.cron.zone.key, b.enabled, b.takeover_after, b.deadline) == ("UTC", False, 60, 3600)
    assert (found.runs_at_once, found.entry("b")) == (2, b)


def test_the_zone_is_utc_unless_it_is_said(tmp_path):
    assert read(tmp_path, f"[entries.a]\n{ENTRY}").entries[0].cron.zone.key == "UTC"


def test_every_mistake_is_told_at_once(tmp_path):
    text = (
        'modle = "tiny-random"\ntakeover-after = 300\n'
        '[entries.a]\ncron = "61 * * * *"\ntimezone = "Europe/Berln"\n'
        '[entries.b]\ncron = "0 1 * * *"\nsources = ["@gone.txt", "-"]\noutput = "s3://bucket/x"\ndtype = "int8"\n'
        '[entries."../c"]\ncron = 5\nsources = ["a"]\noutput = "out"\nkind = "film"\ndeadline = 0\n'
    )
    assert mistakes(tmp_path, text) == [
        "the defaults: unknown option modle. Did you mean model?",
        "entry a: timezone 'Europe/Berln' is not known. Did you mean Europe/Berlin?",
        'entry a: it has no sources; name repositories, or "@list.txt", one a line.',
        "entry a: it has no output; name the folder to write to.",
        f"entry b: there is no list {tmp_path / 'gone.txt'}.",
        "entry b: source - is standard input, and nobody is there to give it.",
        "entry b: s3://bucket/x: outputs at s3:// are not supported yet. Give a local folder with --output.",
        "entry b: --dtype int8: not one of auto, float32, bfloat16, float64.",
        "entry ../c: a name is letters, digits, dots, dashes and underscores, at most 64.",
        "entry ../c: cron must be a text, not 5.",
        'entry ../c: it has no cron; "30 2 * * *" is every night at 2:30.',
        "entry ../c: deadline is 0; it is at least 1.",
        "entry ../c: kind film is not one of auto, book, repository.",
    ]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("", "it has no entry: write [entries.NAME], with cron, sources and output below it."),
        ("entries = 3\n", "entries must be tables: write [entries.NAME] above an entry's options."),
        ("entries.a = 3\n", "entries must be tables: write [entries.NAME] above an entry's options."),
        (f"runs-at-once = 0\n[entries.a]\n{ENTRY}", "the defaults: runs-at-once is 0; it is at least 1."),
        (f"[entries.a]\n{ENTRY}takeover-after = 1\n", "entry a: takeover-after is 1; it is at least 5."),
        (
            f"[entries.a]\n{ENTRY}span-tokens = 1\nspan_tokens = 2\n",
            "entry a: span-tokens stands there twice, with - and with _; leave one of them out.",
        ),
        (f"[entries.a]\n{ENTRY}crom = 1\n", "entry a: unknown option crom. Did you mean cron?"),
        (f"[entries.a]\n{ENTRY}runs-at-once = 1\n", "entry a: unknown option runs-at-once."),
        (
            f'[entries.a]\n{ENTRY}[entries.b]\n{ENTRY}model = "tiny-random"\n',
            (
                "entry b: it has model tiny-random, and entry a, which writes to the same output, "
                "smollm2-135m-instruct. Give each an output of its own."
            ),
        ),
    ],
)
def test_a_mistake_is_told(tmp_path, text, mistake):
    assert mistakes(tmp_path, text) == [mistake]


@pytest.mark.parametrize("source", ["", " a", "a ", r"a\nb"])
def test_a_source_that_no_line_of_a_list_can_be_is_refused(tmp_path, source):
    assert mistakes(tmp_path, f"[entries.a]\n{ENTRY}".replace('"a"', f'"{source}"')) == [
        "entry a: a source is empty, or holds white space at an end or a line break."
    ]


def test_two_entries_of_one_output_and_one_model_are_well(tmp_path):
    assert len(read(tmp_path, f"[entries.a]\n{ENTRY}[entries.b]\n{ENTRY}").entries) == 2


def test_a_folder_that_holds_something_else_is_no_output(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.doc").touch()
    (mistake,) = mistakes(tmp_path, f"[entries.a]\n{ENTRY}")
    assert mistake.startswith(f"entry a: {tmp_path / 'out'} is not empty and not an output of longdoc. Choose an empty")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.doc"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('output = ""', "'' names no folder"),
        (r'output = "a\u0000b"', "names no folder"),
        ('output = "s.toml"', "s.toml cannot be an output: Not a directory."),
        ('output = "s.toml/x"', "x cannot be an output: Not a directory."),
        ('address = "http://me:hunter2@h:8265"', "--address: http is the Jobs API's"),
        ('address = "h"', "--address h: this is neither HOST:PORT nor auto"),
        ('address = ""', "--address '': this is neither"),
        ('model = "tiny-randon"', "unknown model 'tiny-randon'"),
    ],
)
def test_what_would_refuse_every_run_is_a_mistake_of_the_file(tmp_path, line, said):
    entry = "\n".join(each for each in ENTRY.splitlines() if each.split()[0] != line.split()[0])
    (mistake,) = mistakes(tmp_path, f"[entries.a]\n{entry}\n{line}\n")
    assert said in mistake
    assert "hunter2" not in mistake


def test_one_output_is_known_by_any_of_its_paths(tmp_path):
    (tmp_path / "other").symlink_to("out")
    for path in ("x/../out", "./out/", str(tmp_path / "out"), "other"):
        text = f'[entries.a]\n{ENTRY}[entries.b]\n{ENTRY}model = "tiny-random"\n'.replace('"out"', f'"{path}"', 1)
        assert "writes to the same output" in mistakes(tmp_path, text)[0]


def test_a_default_that_is_written_out_is_the_default(tmp_path):
    same = 'model = "smollm2-135m-instruct"\noutputs = ["logprobs", "embeddings"]\n'
    assert len(read(tmp_path, f"[entries.a]\n{ENTRY}[entries.b]\n{ENTRY}{same}").entries) == 2


def test_a_password_is_in_no_message(tmp_path):
    text = f'[entries.a]\n{ENTRY}exclude = ["https://u:hunter2@h/x", "u:hunter2@h/x", 5]\n'
    (mistake,) = mistakes(tmp_path, text)
    assert mistake == "entry a: exclude must be a list of texts, not [5]."
    found = read(tmp_path, f"[entries.a]\n{ENTRY}".replace('"a"', '"https://u:hunter2@h/x"'))
    assert "hunter2" not in repr(found)


def test_a_file_that_is_no_toml_or_not_there_is_refused(tmp_path):
    assert mistakes(tmp_path, "[entries")[0].startswith("cannot be read as TOML: ")
    with pytest.raises(StartError, match=r"schedule .*gone\.toml: no such file\."):
        read_schedule(tmp_path / "gone.toml", NOW)


def test_an_entry_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(StartError, match=r"has no entry 'b'; it has a\."):
        read(tmp_path, f"[entries.a]\n{ENTRY}").entry("b")
