"""Re-checks every promise of an output from its files alone: no model, no source, no trust in who wrote it.

Owns the order of the checks and the report. Finds faults and changes nothing; each fault names what it is about.
"""

from dataclasses import dataclass

from longdoc.checks.documents import Row, check_documents
from longdoc.checks.findings import Fault, Findings
from longdoc.checks.inventory import inventory
from longdoc.checks.ledgers import check_ledgers
from longdoc.checks.parts import check_orphans, check_parts
from longdoc.checks.segments import check_segments
from longdoc.checks.spans import check_spans
from longdoc.checks.tokens import check_tokens
from longdoc.checks.versions import check_versions
from longdoc.store.output import read_output
from longdoc.store.places import Places
from longdoc.store.schemas import OutputIdentity

__all__ = ["Fault", "VerifyReport", "verify"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What was found. `counts` says how many documents, parts, bytes, segments, spans, tokens … were looked at."""

    output: str
    faults: tuple[Fault, ...]
    counts: dict[str, int]


def verify(output: str) -> VerifyReport:
    """Check an output. Raises `OutputError` where there is none or it is of another schema version."""
    places, identity = read_output(output)
    findings = Findings(root=places.root)
    files = inventory(findings, places)
    named: set[str] = set()
    attempts: dict[str, str] = {}
    versions: list[Row] = []
    for row in check_documents(findings, places, identity, files["documents"]):
        named.update(part["path"] for part in row["parts"])
        attempts[row["doc_key"]] = row["attempt_id"]
        versions.append({name: row[name] for name in ("doc_id", "doc_key", "previous_doc_key")})
        with findings.reading("documents", row["doc_key"]):
            _check_document(findings, places, identity, row)
    check_versions(findings, versions)
    check_orphans(findings, places, files, named, attempts)
    check_ledgers(findings, places, identity, files)
    return VerifyReport(output=output, faults=tuple(findings.faults), counts=dict(findings.counts))


def _check_document(findings: Findings, places: Places, identity: OutputIdentity, row: Row) -> None:
    """A document's files, then what they hold; a table with a damaged file is not looked into."""
    sound = check_parts(findings, places, identity, row)
    if "segments" not in sound:
        return
    segments = check_segments(findings, row, sound["segments"], identity.embedding_size)
    if segments is None:
        return
    spans = None
    if "spans" in sound:
        spans = check_spans(findings, row, sound["spans"], identity.embedding_size, segments)
    if "tokens" in sound:
        has_scores = "logprobs" in identity.outputs
        check_tokens(findings, row, sound["tokens"], has_scores=has_scores, segments=segments, spans=spans)
