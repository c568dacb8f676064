"""What a run has to do: every document its sources name, less what is committed, less what is quarantined.

Owns that sum. Reads no document: identities come from commit ids and digests.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from longdoc.config import document_key
from longdoc.estimate import OVER_CAPACITY
from longdoc.records import DocumentRef, Source, Unreadable
from longdoc.store.commit import OutputStore


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDocument:
    """A document with its identity."""

    ref: DocumentRef
    doc_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """`documents` is everything that was named, each once; `todo` what is left of it, longest first."""

    documents: tuple[PlannedDocument, ...]
    unreadable: tuple[Unreadable, ...]
    todo: tuple[PlannedDocument, ...]
    num_committed: int
    num_quarantined: int


def find_documents(sources: Iterable[Source]) -> tuple[list[DocumentRef], list[Unreadable]]:
    """Every document of every source, in order; one that is named twice at the same version counts once."""
    refs: dict[tuple[str, str], DocumentRef] = {}
    unreadable: dict[str, Unreadable] = {}
    for source in sources:
        for found in source.documents():
            if isinstance(found, Unreadable):
                unreadable.setdefault(found.doc_id, found)
            else:
                refs.setdefault((found.doc_id, found.version), found)
    return list(refs.values()), list(unreadable.values())


def plan_run(
    refs: Sequence[DocumentRef],
    unreadable: Sequence[Unreadable],
    *,
    configuration: str,
    store: OutputStore,
    retry_quarantine: bool,
    fits_now: Callable[[str], bool],
) -> RunPlan:
    """Compare what was found with what the output already holds.

    `fits_now` tells from a quarantine row's `needs` whether a document that was over capacity fits by now.
    """
    documents = [
        PlannedDocument(
            ref=ref,
            doc_key=document_key(
                doc_id=ref.doc_id,
                version=ref.version,
                connector_version=ref.connector_version,
                configuration=configuration,
            ),
        )
        for ref in refs
    ]
    committed = store.committed()
    quarantined = {
        key
        for key, row in store.quarantined(committed).items()
        if not retry_quarantine and not (row["reason"] == OVER_CAPACITY and fits_now(row["needs"] or ""))
    }
    open_documents = [document for document in documents if document.doc_key not in committed]
    todo = [document for document in open_documents if document.doc_key not in quarantined]
    return RunPlan(
        documents=tuple(documents),
        unreadable=tuple(unreadable),
        todo=tuple(sorted(todo, key=lambda document: -document.ref.num_bytes_source)),
        num_committed=len(documents) - len(open_documents),
        num_quarantined=len(open_documents) - len(todo),
    )
