"""The sums that must come out, checked in every run: nothing missing, nothing twice.

`longdoc verify` checks far more, later and from the files alone; this is what a run owes before it says it is done.
"""

from collections.abc import Sequence

from longdoc.cluster.messages import DocumentSummary
from longdoc.errors import InfrastructureError
from longdoc.records import Receipt
from longdoc.runs.planning import RunPlan
from longdoc.runs.record import SetAside
from longdoc.store.commit import OutputStore


def check_receipts(name: str, summary: DocumentSummary, receipts: Sequence[Receipt]) -> None:
    """Before a commit: the ranks' rows add up to the document, and their positions to 0 … N-1."""
    wanted = {
        "num_rows": summary.num_tokens,
        "num_spans": summary.num_spans,
        "num_segments": summary.num_segments,
    }
    for fact, count in wanted.items():
        given = sum(receipt.facts[fact] for receipt in receipts)
        if given != count:
            raise InfrastructureError(f"{name}: the ranks report {given} of {count} {fact}; nothing was committed.")
    for table, fact in (("tokens", "num_rows"), ("spans", "num_spans"), ("segments", "num_segments")):
        written = sum(part.num_rows for receipt in receipts for part in receipt.parts if part.table == table)
        if written != wanted[fact]:
            raise InfrastructureError(
                f"{name}: {written} of {wanted[fact]} {table} rows were written; nothing was committed."
            )
    ranges = sorted(tuple(run) for receipt in receipts for run in receipt.facts["positions"])
    edges = [0, *(stop for _, stop in ranges)]
    if [start for start, _ in ranges] != edges[:-1] or edges[-1] != summary.num_tokens:
        raise InfrastructureError(
            f"{name}: token positions do not run from 0 to {summary.num_tokens - 1}; nothing was committed."
        )


def check_finished(plan: RunPlan, store: OutputStore) -> list[SetAside]:
    """At the end: planned = committed ⊎ quarantined. Returns the documents in quarantine."""
    committed = store.committed()
    quarantined = store.quarantined(committed)
    set_aside = [document for document in plan.documents if document.doc_key not in committed]
    missing = [document for document in set_aside if document.doc_key not in quarantined]
    if missing:
        names = ", ".join(document.ref.source_uri for document in missing[:3])
        raise InfrastructureError(
            f"{len(missing)} documents are neither committed nor quarantined ({names}); run the same command again."
        )
    rows = [quarantined[document.doc_key] for document in set_aside]
    return [
        *(SetAside(**{name: row[name] for name in ("source_uri", "stage", "reason", "error")}) for row in rows),
        *(
            SetAside(source_uri=found.source_uri, stage=found.stage, reason=found.reason, error=found.error)
            for found in plan.unreadable
        ),
    ]
