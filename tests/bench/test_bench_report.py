"""What a report shows, how it becomes JSON, and when a missed target becomes exit code 5."""

import json
import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from longdoc.bench import overlap
from longdoc.bench.report import Column, Report, Table, Target
from longdoc.cli.bench import BENCHES, table_lines
from longdoc.cli.main import call

TABLE = Table(
    title="Times",
    columns=(Column(name="who"), Column(name="s", spec="{:.2f}"), Column(name="tokens", spec="{:,}")),
    rows=(("ring", 1.5, 8192), ("a long name", None, 2)),
)
MET = Target(name="ring / sdpa", value=0.9, relation="at most", bound=0.95)
MISSED = Target(name="share of peak", value=0.8, relation="at least", bound=0.85, spec="{:.2f}")


def report(*targets: Target) -> Report:
    return Report(
        bench="overlap", facts={"torch": "2", "nan": math.nan}, tables=(TABLE,), targets=targets, notes=("so",)
    )


@pytest.mark.parametrize(
    ("value", "relation", "met"),
    [
        (0.95, "at most", True),
        (0.951, "at most", False),
        (0.95, "at least", True),
        (0.949, "at least", False),
        (None, "at most", False),
        (math.nan, "at most", False),
    ],
)
def test_a_target_is_met_at_its_bound_and_missed_where_nothing_was_measured(
    value: float | None, relation: Any, met: bool
) -> None:
    target = Target(name="t", value=value, relation=relation, bound=0.95)
    assert target.met is met
    assert str(target).startswith("ok   t: " if met else "MISS t: ")


def test_a_target_says_what_was_measured_and_what_was_wanted() -> None:
    assert str(MISSED) == "MISS share of peak: 0.80, target at least 0.85"
    assert str(Target(name="t", value=None, relation="at most", bound=1)) == (
        "MISS t: not measured, target at most 1.000"
    )


def test_words_stand_left_numbers_right_and_nothing_is_cut() -> None:
    assert table_lines(TABLE) == [
        "who             s  tokens",
        "ring         1.50   8,192",
        "a long name     -       2",
    ]


def test_a_row_of_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match="table 'T': a row of 1 cells under 2 columns"):
        Table(title="T", columns=TABLE.columns[:2], rows=(("x",),))


def test_json_holds_plain_numbers_and_no_nan() -> None:
    found = json.loads(json.dumps(report(MET, MISSED).as_json(), allow_nan=False))
    assert found["facts"] == {"torch": "2", "nan": None}
    assert found["tables"][0]["rows"][0] == {"who": "ring", "s": 1.5, "tokens": 8192}
    assert [target["met"] for target in found["targets"]] == [True, False]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let `longdoc bench overlap` find these targets."""

    def find(*targets: Target) -> None:
        monkeypatch.setattr(overlap, "bench_overlap", lambda *_, **__: report(*targets))

    return find


@pytest.mark.parametrize(
    ("targets", "flags", "code"),
    [
        ([MET], ["--enforce"], 0),
        ([MET, MISSED], [], 0),
        ([MET, MISSED], ["--enforce"], 5),
        ([MET, MISSED], ["--enforce", "--json"], 5),
        ([], ["--enforce"], 0),
    ],
)
def test_only_an_enforced_miss_exits_5(
    measured: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    targets: list[Target],
    flags: list[str],
    code: int,
) -> None:
    measured(*targets)
    assert call(["bench", "overlap", *flags]) == code
    shown = capsys.readouterr()
    if "--json" in flags:
        assert len(json.loads(shown.out)["targets"]) == len(targets)
    else:
        assert [line for line in shown.out.splitlines() if "target" in line] == [str(target) for target in targets]
    if code:
        assert shown.err == (
            "Error: longdoc bench overlap missed 1 target of 2:\n  MISS share of peak: 0.80, target at least 0.85\n"
            "Measure again on an idle machine; without --enforce a miss is only printed.\n"
        )


@pytest.mark.parametrize("tokens", ["", "8k", "1", "8,-3", "8.5"])
def test_lengths_are_whole_numbers(capsys: pytest.CaptureFixture[str], tokens: str) -> None:
    assert call(["bench", "attention", "--tokens", tokens]) == 2
    assert "is no list of numbers of tokens, such as 8192,16384." in capsys.readouterr().err


def test_listing_benchmarks_imports_no_torch() -> None:
    code = "import sys; from longdoc.cli.main import call; call(['bench', '--help']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert all(f"\n  {name} " in done.stdout for name in BENCHES)
