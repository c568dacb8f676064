"""The runs row: what was asked, on what machine, and what it took. Written once, however a run ends."""

import contextlib
import datetime as dt
import json
import platform
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from longdoc.config import RunConfig
from longdoc.errors import LongdocError, clean_up
from longdoc.machine import num_cores
from longdoc.model.local import LocalModel
from longdoc.store.commit import OutputStore
from longdoc.tokenization.vocabulary import Vocabulary

_LIBRARIES = ("longdoc", "torch", "transformers", "ray", "tiktoken", "tokenizers", "pyarrow")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """A document that is in quarantine at the end of a run, set aside by it or by an earlier one."""

    source_uri: str
    stage: str
    reason: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """How a run ended. Counts are of documents: planned = committed before + now + by others + quarantined.

    `num_tokens` is of those that this run committed; others may have committed some while it ran.

    `peak_rss_bytes` is the largest resident set of each rank while it computed documents, in rank order; empty where
    nothing was computed. `forecast_bytes` of the record is what the formula said of the largest document;
    `forecast_seconds` is what was forecast of all that were computed, None where this machine was never measured, and
    `document_seconds` is what those took.
    """

    run_id: str
    num_planned: int
    num_committed_before: int
    num_committed: int
    num_committed_by_others: int
    num_quarantined: int
    quarantined: tuple[SetAside, ...]
    num_tokens: int
    seconds: float
    peak_rss_bytes: tuple[int, ...]

    @property
    def exit_code(self) -> int:
        """0 when every planned document is committed, 3 when some are quarantined."""
        return 3 if self.num_quarantined else 0


@dataclass(slots=True, kw_only=True)
class RunRecord:
    """Counted up as the run goes. The clock starts when it is made."""

    run_id: str = field(default_factory=lambda: f"{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S}_{secrets.token_hex(4)}")
    started_at: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))
    started: float = field(default_factory=time.perf_counter)
    num_committed: int = 0
    num_committed_by_others: int = 0
    num_tokens: int = 0
    peak_rss_bytes: tuple[int, ...] = ()
    forecast_bytes: int = 0
    forecast_seconds: float | None = None
    document_seconds: float = 0.0
    has_extended: bool = False
    exit_code: int = 0

    def summary(self, *, num_planned: int, num_committed_before: int, quarantined: Sequence[SetAside]) -> RunSummary:
        """The end of a run that was not interrupted."""
        summary = RunSummary(
            run_id=self.run_id,
            num_planned=num_planned,
            num_committed_before=num_committed_before,
            num_committed=self.num_committed,
            num_committed_by_others=self.num_committed_by_others,
            num_quarantined=len(quarantined),
            quarantined=tuple(quarantined),
            num_tokens=self.num_tokens,
            seconds=time.perf_counter() - self.started,
            peak_rss_bytes=self.peak_rss_bytes,
        )
        self.exit_code = summary.exit_code
        return summary


@contextlib.contextmanager
def recorded(store: OutputStore, config: RunConfig, model: LocalModel, sources: list[str]) -> Iterator[RunRecord]:
    """Write the runs row however the block ends; only a run that is killed leaves none."""
    record = RunRecord()
    try:
        yield record
    except LongdocError as error:
        record.exit_code = error.exit_code
        raise
    except KeyboardInterrupt:
        record.exit_code = 130
        raise
    except BaseException:
        record.exit_code = 4
        raise
    finally:
        clean_up(lambda: store.record_run(_row(record, config, model, sources)))


def _row(record: RunRecord, config: RunConfig, model: LocalModel, sources: list[str]) -> dict[str, Any]:
    host = {
        "system": platform.system(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "num_cores": num_cores(),
    }
    actual = {
        "num_committed": record.num_committed,
        "num_tokens": record.num_tokens,
        "seconds": time.perf_counter() - record.started,
        "document_seconds": record.document_seconds,
        "peak_rss_bytes": list(record.peak_rss_bytes),
    }
    return {
        "run_id": record.run_id,
        "configuration": json.dumps(
            config.as_json()
            | {"sources": sources, "model_source": model.source, "model_source_sha256": model.source_sha256}
            | {"tokenizer_policy": Vocabulary.load(model.folder).policy},
            sort_keys=True,
        ),
        "versions": json.dumps({name: version(name) for name in _LIBRARIES}, sort_keys=True),
        "host": json.dumps(host, sort_keys=True),
        "forecast": json.dumps(
            {"bytes_per_rank": record.forecast_bytes, "document_seconds": record.forecast_seconds}, sort_keys=True
        ),
        "actual": json.dumps(actual, sort_keys=True),
        "started_at": record.started_at,
        "finished_at": dt.datetime.now(dt.UTC),
        "exit_code": record.exit_code,
    }
