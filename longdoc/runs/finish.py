"""One document's end: computed and committed, or quarantined with its reason.

Owns the attempt: it is begun here, and committed or discarded here, whatever happens in between.
"""

import time
from dataclasses import dataclass

from longdoc.cluster.group import RingGroup, Status
from longdoc.cluster.ingest import unforeseen
from longdoc.cluster.messages import ComputeJob, DocumentSummary
from longdoc.cluster.stream import IngestedDocument
from longdoc.config import RunConfig
from longdoc.errors import clean_up
from longdoc.estimate import ModelShape, bytes_per_rank
from longdoc.forecasting.costs import Rates, document_seconds
from longdoc.forecasting.waiting import Waits
from longdoc.model.local import LocalModel
from longdoc.model.positions import EXTENSION_WARNING
from longdoc.outputs.convention import convention_of
from longdoc.outputs.document_row import document_row, output_identity
from longdoc.records import DocumentRef, Receipt, RowIdentity, Unreadable
from longdoc.reporting import Fault, Progress, Reporter
from longdoc.ring.layout import Layout
from longdoc.runs.planning import PlannedDocument
from longdoc.runs.reconcile import check_receipts
from longdoc.runs.record import RunRecord
from longdoc.store.commit import Attempt, OutputStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Finisher:
    """Finishes the documents of one run."""

    config: RunConfig
    model: LocalModel
    store: OutputStore
    reporter: Reporter
    record: RunRecord
    #: What this machine does, where that was measured; bounds on waiting are then ten times the forecast.
    rates: Rates | None = None

    def finish(self, document: IngestedDocument, ring: RingGroup) -> None:
        """Bring one document to its end. Raises `InfrastructureError` where that cannot be reached."""
        planned, summary = document.planned, document.outcome
        if isinstance(summary, Fault):
            self._quarantine(planned, summary)
            return
        self._warn_of_extension(planned.ref, summary)
        self.reporter.started(planned.ref, num_tokens=summary.num_tokens)
        attempt = self.store.begin(planned.doc_key)
        ended = False
        try:
            fault = self._attempt(document, summary, attempt, ring)
            ended = fault is None
            if fault is not None:
                self._quarantine(planned, fault, attempt)
        finally:
            if not ended:
                clean_up(lambda: self.store.discard(attempt))

    def _attempt(
        self, document: IngestedDocument, summary: DocumentSummary, attempt: Attempt, ring: RingGroup
    ) -> Fault | None:
        """Compute and commit; the fault of the document where it has one."""
        planned = document.planned
        job = self._job(planned, summary, attempt, ring)
        started = time.perf_counter()
        outcome = ring.compute(job, document.works, lambda status: self._progressed(planned.ref, status))
        if isinstance(outcome, Fault):
            return outcome
        seconds = time.perf_counter() - started
        self.record.document_seconds += seconds
        check_receipts(planned.ref.source_uri, summary, outcome)
        try:
            self._commit(planned, summary, attempt, outcome, ring, seconds)
        except (ValueError, AssertionError) as error:
            return unforeseen("write", error)
        return None

    def set_aside(self, found: Unreadable) -> None:
        """Quarantine a document that could not even be opened."""
        fault = Fault(stage=found.stage, reason=found.reason, error=found.error)
        self._write_quarantine(found.source_uri, found.doc_id, None, fault)

    def _commit(
        self,
        planned: PlannedDocument,
        summary: DocumentSummary,
        attempt: Attempt,
        receipts: list[Receipt],
        ring: RingGroup,
        seconds: float,
    ) -> None:
        row = document_row(
            planned.ref,
            doc_key=planned.doc_key,
            attempt_id=attempt.attempt_id,
            run_id=self.record.run_id,
            summary=summary,
            receipts=receipts,
            config=self.config,
            model=self.model,
            model_check_error=ring.model_check_error,
            seconds=seconds,
        )
        parts = [part for receipt in receipts for part in receipt.parts]
        peaks = [receipt.facts["peak_rss_bytes"] for receipt in receipts]
        self.record.peak_rss_bytes = tuple(map(max, peaks, self.record.peak_rss_bytes or peaks))
        if self.store.commit(attempt, document_row=row, parts=parts):
            self.record.num_committed += 1
            self.record.num_tokens += summary.num_tokens
            self.reporter.committed(planned.ref, num_tokens=summary.num_tokens, seconds=seconds)
        else:
            self.record.num_committed_by_others += 1
            self.reporter.overtaken(planned.ref)

    def _job(self, planned: PlannedDocument, summary: DocumentSummary, attempt: Attempt, ring: RingGroup) -> ComputeJob:
        shape = ModelShape.of(self.model, self.config.resolved_dtype, self.config.resolved_device)
        size = (shape, summary.num_model_tokens, ring.num_ranks)
        self.record.forecast_bytes = max(self.record.forecast_bytes, bytes_per_rank(*size))
        layout = Layout(kind=self.config.layout, num_tokens=summary.num_model_tokens, num_ranks=ring.num_ranks)
        waits = Waits.of(shape, layout, self.rates)
        if self.rates is not None:
            with_scores = "logprobs" in self.config.chosen_outputs
            seconds = document_seconds(shape, self.rates, layout, with_scores=with_scores)
            self.record.forecast_seconds = (self.record.forecast_seconds or 0.0) + seconds
        return ComputeJob(
            identity=RowIdentity(doc_id=planned.ref.doc_id, doc_key=planned.doc_key, attempt_id=attempt.attempt_id),
            output=output_identity(self.config, self.model),
            staging=str(attempt.staging),
            unit=planned.doc_key,
            display_name=planned.ref.source_uri,
            extension=summary.extension,
            metadata={"run_id": self.record.run_id},
            convention=convention_of(self.config, self.model),
            timeout_seconds=waits.for_a_peer,
            stall_seconds=waits.without_a_sign,
        )

    def _quarantine(self, planned: PlannedDocument, fault: Fault, attempt: Attempt | None = None) -> None:
        self._write_quarantine(planned.ref.source_uri, planned.ref.doc_id, planned.doc_key, fault, attempt)

    def _write_quarantine(
        self, source_uri: str, doc_id: str, doc_key: str | None, fault: Fault, attempt: Attempt | None = None
    ) -> None:
        self.store.quarantine(
            source_uri=source_uri,
            doc_id=doc_id,
            doc_key=doc_key,
            stage=fault.stage,
            reason=fault.reason,
            error=fault.error,
            needs=fault.needs,
            attempt_id=None if attempt is None else attempt.attempt_id,
            run_id=self.record.run_id,
        )
        self.reporter.quarantined(source_uri, fault)

    def _progressed(self, ref: DocumentRef, status: Status) -> None:
        num_layers, num_hops = self.model.num_layers, max(1, status["num_hops"])
        done = status["layer"] * num_hops + status["hop"]
        self.reporter.progressed(
            ref,
            Progress(
                layer=status["layer"],
                num_layers=num_layers,
                hop=status["hop"],
                num_hops=num_hops,
                fraction=min(1.0, done / (num_layers * num_hops)),
            ),
        )

    def _warn_of_extension(self, ref: DocumentRef, summary: DocumentSummary) -> None:
        trained = self.model.context_trained
        if summary.extension.kind != "none":
            self.reporter.note(
                f"{ref.source_uri}: {summary.num_model_tokens:,} tokens, trained to {trained:,}: "
                f"{summary.extension.kind} ×{summary.extension.factor:g}"
            )
            if not self.record.has_extended:
                self.record.has_extended = True
                self.reporter.note(EXTENSION_WARNING)
        elif summary.num_model_tokens > trained:
            self.reporter.note(
                f"{ref.source_uri}: {summary.num_model_tokens:,} tokens, trained to {trained:,}, positions left as "
                "they are: expect poor predictions beyond the trained length"
            )
