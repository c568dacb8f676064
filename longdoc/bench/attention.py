"""The benchmark of the ring itself: time against one process, balance of the layouts, error by ring size."""

from collections.abc import Callable

from longdoc.bench.facts import machine_facts
from longdoc.bench.report import Report


def bench_attention(*, report: Callable[[str], None]) -> Report:
    """Everything `longdoc bench attention` shows; `report` takes a line of progress."""
    report("looking at this machine")
    return Report(bench="attention", facts=machine_facts(), tables=())
