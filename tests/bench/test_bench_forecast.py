"""The benchmark of forecasts: its texts, what it asks of the commands, and what it counts as a miss."""

import json
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from longdoc.bench import forecast
from longdoc.bench.forecast import ForecastCell, Numbers, bench_forecast, report_of, text_of
from longdoc.errors import InfrastructureError
from longdoc.tokenization.vocabulary import Vocabulary


@pytest.fixture
def commands(monkeypatch):
    """Stands where the commands would run: a plan of 1,000 bytes and 2 s a document, a run of 1,100 bytes and 3 s."""
    called = []

    def command(arguments, **_):
        called.append(arguments[3:])
        if arguments[3] == "plan":
            texts = [argument for argument in arguments if argument.endswith(".txt")]
            documents = [{"problem": None, "seconds": 2.0, "bytes_per_rank": 1000} for _ in texts]
            return subprocess.CompletedProcess(arguments, 0, stdout=json.dumps({"documents": documents}), stderr="")
        output = Path(arguments[arguments.index("-o") + 1])
        for table, row in {
            "documents": {"seconds": 3.0},
            "runs": {"actual": json.dumps({"peak_rss_bytes": [900, 1100]})},
        }.items():
            (output / table).mkdir(parents=True)
            pq.write_table(pa.table({name: [value] for name, value in row.items()}), output / table / "part.parquet")
        return subprocess.CompletedProcess(arguments, 0, stdout="", stderr="")

    monkeypatch.setattr(forecast.subprocess, "run", command)
    return called


def test_a_text_has_the_tokens_that_were_asked_for(tiny_model):
    vocabulary = Vocabulary.load(tiny_model.folder)
    for count in (2, 100, 2048):
        assert count - 3 <= len(vocabulary.encode(text_of(count, vocabulary))) <= count


def test_every_combination_is_planned_and_run(commands, tiny_model, monkeypatch):
    monkeypatch.setattr(forecast, "machine_facts", dict)
    found = bench_forecast(
        model="tiny-random", token_counts=[100, 200], ring_sizes=[1, 2], dtypes=["float32", "bfloat16"], report=print
    )
    assert [arguments[0] for arguments in commands] == ["plan", "run", "run"] * 4
    assert all("--recalibrate" in arguments for arguments in commands if arguments[0] == "plan")
    settings = [(a[a.index("--dtype") + 1], a[a.index("--ring-size") + 1]) for a in commands if a[0] == "plan"]
    assert settings == [("float32", "1"), ("float32", "2"), ("bfloat16", "1"), ("bfloat16", "2")]
    assert len(found.tables[0].rows) == 8
    assert found.tables[0].rows[0][:3] == ("float32", 1, 100)
    # 1,000 of 1,100 bytes are 9% off; 2 of 3 seconds are a third off.
    assert [(target.met, str(target)) for target in found.targets[:2]] == [
        (True, "ok   memory off, float32, 1 rank, 100 tokens: 9.1%, target at most 15.0%"),
        (False, "MISS seconds off, float32, 1 rank, 100 tokens: 33.3%, target at most 30.0%"),
    ]


@pytest.mark.parametrize(("forecast_seconds", "met"), [(0.71, True), (0.69, False), (1.29, True), (1.31, False)])
def test_a_forecast_may_be_off_to_either_side(forecast_seconds, met):
    cell = ForecastCell(
        dtype="float32",
        num_ranks=2,
        num_tokens=100,
        forecast=Numbers(num_bytes=86, seconds=forecast_seconds),
        taken=Numbers(num_bytes=100, seconds=1.0),
    )
    memory, seconds = report_of([cell], {}).targets
    assert (memory.met, seconds.met) == (True, met)


def test_a_command_that_fails_is_told_with_its_last_words(monkeypatch, tiny_model):
    failed = subprocess.CompletedProcess([], 2, stdout="", stderr="one\ntwo\nthree\nError: no such model\n")
    monkeypatch.setattr(forecast.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(InfrastructureError, match=r"longdoc plan ended with 2: two three Error: no such model"):
        forecast.plan([Path("a.txt")], [])


def test_a_plan_without_seconds_is_no_forecast(monkeypatch):
    document = {"problem": None, "seconds": None, "bytes_per_rank": 1}
    said = subprocess.CompletedProcess([], 0, stdout=json.dumps({"documents": [document]}), stderr="")
    monkeypatch.setattr(forecast.subprocess, "run", lambda *_, **__: said)
    with pytest.raises(InfrastructureError, match=r"longdoc plan a\.txt: no seconds are forecast"):
        forecast.plan([Path("a.txt")], [])
