"""The chain of a document's versions: each names an earlier one that is there, or none, and no chain is a circle.

Times are not compared: a document that was removed by hand and computed again is younger than the versions after it.
"""

from collections.abc import Iterable

from longdoc.checks.documents import Row
from longdoc.checks.findings import Findings


def check_versions(findings: Findings, rows: Iterable[Row]) -> None:
    """Check `previous_doc_key` of all documents rows, of which only doc_id, doc_key and that column are looked at."""
    doc_ids, previous = {}, {}
    for row in rows:
        doc_ids[row["doc_key"]], previous[row["doc_key"]] = row["doc_id"], row["previous_doc_key"]
    for key, before in previous.items():
        if before is not None and before not in doc_ids:
            findings.fault("documents", key, f"its previous version {before} is not in the output")
        elif before is not None and doc_ids[before] != doc_ids[key]:
            findings.fault("documents", key, f"its previous version {before} is of another document {doc_ids[before]}")
    for key in _in_circles(previous):
        findings.fault("documents", key, "its previous versions lead back to itself")


def _in_circles(previous: dict[str, str | None]) -> list[str]:
    """The keys that stand in a circle."""
    found: list[str] = []
    ended: set[str] = set()
    for start in previous:
        path: dict[str, None] = {}
        step: str | None = start
        while step is not None and step in previous and step not in ended and step not in path:
            path[step] = None
            step = previous[step]
        if step is not None and step in path:
            walked = list(path)
            found += walked[walked.index(step) :]
        ended.update(path)
    return found
