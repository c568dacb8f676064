"""What every job ends in: a run over opened sources, with somebody told. Owns the choice of who that is."""

import contextlib
from collections.abc import Sequence

from longdoc.cli.progress import make_reporter
from longdoc.config import RunConfig
from longdoc.records import Source
from longdoc.reporting import Reporter
from longdoc.run import run
from longdoc.runs.record import RunSummary


def run_job(config: RunConfig, sources: Sequence[Source], reporter: Reporter | None = None) -> RunSummary:
    """Run what the output does not hold yet; without a `reporter`, tell standard error as `longdoc run` does."""
    with make_reporter() if reporter is None else contextlib.nullcontext(reporter) as told:
        return run(config, sources, told)
