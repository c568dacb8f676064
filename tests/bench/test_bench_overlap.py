"""The arithmetic of `longdoc bench overlap`, and a tiny run of it."""

import pytest
import torch

from longdoc.bench import overlap
from longdoc.bench.overlap import OverlapShape, WatchedExchange, bench_overlap, expected_ratio
from longdoc.ring.exchange import Exchange
from longdoc.ring.exchange.loopback import run_ranks


@pytest.mark.parametrize(
    ("mode", "transfer", "num_ranks", "expected"),
    [
        ("alone", 0.8, 2, 1.0),
        ("overlapped", 0.8, 2, 1.0),
        ("blocking", 0.8, 2, 1.4),
        ("blocking", 0.8, 8, 1.7),
        ("overlapped", 1.5, 2, 1.25),
    ],
)
def test_formula_of_wall_time(mode: str, transfer: float, num_ranks: int, expected: float) -> None:
    assert expected_ratio(mode, transfer, num_ranks) == pytest.approx(expected)


def test_an_exchange_at_rest_sends_nothing_and_delivers_zeros() -> None:
    def run(exchange: Exchange) -> tuple[list[float], list[float], int]:
        watched = WatchedExchange(exchange)
        peer, received = 1 - exchange.rank, torch.full((3,), -1.0)
        seen = []
        for rests in (False, True):
            watched.rests = rests
            watched.start(sends=[(peer, torch.full((3,), 4.0))], receives=[(peer, received)])
            watched.finish()
            seen.append(received.tolist())
        return seen[0], seen[1], watched.num_bytes

    assert run_ranks(2, run) == [([4.0] * 3, [0.0] * 3, 12)] * 2


def test_a_tiny_run_measures_every_mode() -> None:
    # 32 tokens a rank: keys and values of 3 heads of 64 in float32 are 49,152 bytes.
    shape = OverlapShape(num_tokens=64, num_layers=2)
    lines: list[str] = []
    report = bench_overlap(shape, megabytes_per_second=4.9152, repeats=1, report=lines.append)
    assert [row[0] for row in report.tables[0].rows] == [
        "compute alone, no exchange",
        "the ring, link as it is",
        "the ring, slowed link",
        "slowed link, nothing overlapped",
    ]
    assert report.targets == ()
    alone, _, slowed, blocking = (row[1] for row in report.tables[0].rows)
    # Two layers with one transfer of 10 ms each cannot take less, whatever is hidden.
    assert min(slowed, blocking) >= 0.02
    assert report.facts["transfer / compute of a hop"] == pytest.approx(0.01 / (alone / 4), rel=1e-2)


class Rehearsed:
    """A contestant whose times are known: a pass of 8 layers on 2 ranks computes for 1.6 s, so a hop for 0.1 s."""

    def __init__(self, *_: object, **__: object) -> None:
        self.shaped: list[float] = []

    def __enter__(self) -> "Rehearsed":
        RUNS.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def call(self, command: str, argument: float = 0) -> list[float]:
        if command == "shape":
            self.shaped.append(argument)
        return [1_000_000, 2_000_000]

    def seconds(self, _: str, mode: str) -> float:
        return {"alone": 1.6, "free": 1.61, "overlapped": 1.92, "blocking": 2.3}[mode]


RUNS: list[Rehearsed] = []


def test_the_link_is_slowed_to_the_fraction_and_the_wall_time_held_against_its_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(overlap, "Contestant", Rehearsed)
    report = bench_overlap(OverlapShape(num_layers=8), fraction=0.5, repeats=3, report=lambda _: None)
    # The busiest rank sends 2 MB a transfer, which shall take half of 0.1 s: 40 MB/s.
    assert RUNS.pop().shaped == [pytest.approx(40e6)]
    assert report.facts["transfer / compute of a hop"] == 0.5
    assert [str(target) for target in report.targets] == [
        "MISS wall time under the slowed link / compute alone: 1.200, target at most 1.100"
    ]
    assert [row[4:] for row in report.tables[0].rows] == [
        (1.0, 1.0),
        (pytest.approx(1.00625), 1.0),
        (pytest.approx(1.2), 1.0),
        (pytest.approx(1.4375), pytest.approx(1.25)),
    ]
