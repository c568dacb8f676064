"""The documents table against the decisions: every row decided once, published once, byte for byte as decided.

One document's rows are held at a time, without the embedding: an output may hold any number of documents.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from longdoc.checks.findings import Findings
from longdoc.checks.inventory import parsed
from longdoc.checks.parts import check_form
from longdoc.checks.reading import are_lists_finite
from longdoc.store.commit import COMMITTED
from longdoc.store.decisions import decision_problem
from longdoc.store.parts import is_unit, part_path
from longdoc.store.places import Places, entries
from longdoc.store.publish import read_if_present
from longdoc.store.rows import read_table
from longdoc.store.schemas import OutputIdentity, is_sha256, schema_of

Row = dict[str, Any]
_COUNTS = ("num_bytes_source", "num_bytes_text", "num_tokens", "seconds", "tokens_per_second", "context_trained")
_WORDS = {
    "kind": ("book", "repository"),
    "context_extension": ("none", "yarn", "theta", "dynamic"),
    "attention_direction": ("causal", "bidirectional"),
}


def check_documents(findings: Findings, places: Places, identity: OutputIdentity, files: set[str]) -> Iterator[Row]:
    """Check the documents files, and give the row of every document that was decided and published.

    Where a file and its decision differ, that is a fault and the decision is believed: the parts it names are then
    still checked. A file without a decision is a fault and believed, for the same reason.
    """
    table = _Documents(findings, places, identity)
    by_unit: dict[str, list[str]] = {path.name: [] for path in entries(places.decisions) if is_unit(path.name)}
    for name in sorted(files):
        by_unit.setdefault(parsed(name)[1], []).append(name)
    undecided = []
    for unit in sorted(by_unit):
        published = [row for name in by_unit[unit] for row in table.check_file(name)]
        decided = table.check_decision(unit)
        if decided is None:
            undecided += published
        elif part_path("documents", unit, 0) in files:
            yield from table.believe(decided)
        else:
            problem = (
                "was decided, but its row is not published. A commit was interrupted: run again to roll it forward"
            )
            findings.fault("documents", unit, problem)
    for row in undecided:
        yield from table.believe(row)


class _Documents:
    """What is known of the documents table while it is checked: how often each key was seen, which are believed."""

    def __init__(self, findings: Findings, places: Places, identity: OutputIdentity) -> None:
        self._findings, self._places, self._identity = findings, places, identity
        self._columns = [name for name in schema_of("documents", identity).names if name != "embedding"]
        self._seen: Counter[str] = Counter()
        self._believed: set[str] = set()

    def believe(self, row: Row) -> Iterator[Row]:
        """Check the row itself, and give it once."""
        key = str(row["doc_key"])
        if key not in self._believed:
            self._believed.add(key)
            self._findings.counts["documents"] += 1
            with self._findings.reading("documents", key):
                if read_if_present(self._places.attempt(str(row["attempt_id"]))) != COMMITTED:
                    self._fault(key, f"its attempt {row['attempt_id']} is not marked as committed")
                for problem in _problems(self._identity, row):
                    self._fault(key, problem)
            yield row

    def check_decision(self, unit: str) -> Row | None:
        """The row that a unit was decided for, if it was and the decision is sound."""
        path = self._places.decision(unit)
        with self._findings.reading("documents", path):
            content = read_if_present(path)
            if content is None:
                return None
            rows = self._rows(read_table(content, "documents", self._identity))
            problem = decision_problem(rows[0], unit) if len(rows) == 1 else f"it has {len(rows)} rows"
            if problem is None:
                return rows[0]
            self._fault(path, f"is no decision about its document: {problem}")
        return None

    def check_file(self, name: str) -> list[Row]:
        """The rows of a documents file."""
        _, unit, number = parsed(name)
        rows: list[Row] = []
        with self._findings.reading("documents", name):
            content = (self._places.root / name).read_bytes()
            if number != 0:
                self._fault(name, f"is a second documents file of {unit}")
            else:
                self._compare(name, content, self._places.decision(unit))
            table = read_table(content, "documents", self._identity)
            if self._identity.embedding_size and not are_lists_finite(table, "embedding"):
                self._fault(name, "its embedding is not finite")
            rows = self._rows(table)
            run_id = str(rows[0]["run_id"]) if rows else ""
            check_form(self._findings, "documents", self._places.root / name, self._identity, run_id=run_id)
            for row in rows:
                self._check_key(name, unit, str(row["doc_key"]))
        return rows

    def _compare(self, name: str, content: bytes, decision: Path) -> None:
        below = decision.relative_to(self._places.root).as_posix()
        with self._findings.reading("documents", decision):
            decided = read_if_present(decision)
            if decided is None:
                self._fault(name, f"belongs to no decision: {below} is missing")
            elif decided != content:
                self._fault(name, f"differs from its decision {below}")

    def _check_key(self, name: str, unit: str, key: str) -> None:
        if key != unit:
            self._fault(name, f"holds document {key}, not {unit}")
        self._seen[key] += 1
        if self._seen[key] == 2:
            self._fault(name, f"holds document {key} once more")

    def _rows(self, table: pa.Table) -> list[Row]:
        found: list[Row] = table.select(self._columns).to_pylist()
        return found

    def _fault(self, subject: str | Path, problem: str) -> None:
        self._findings.fault("documents", subject, problem)


def _problems(identity: OutputIdentity, row: Row) -> Iterator[str]:
    if row["model_digest"] != identity.model_digest or row["tokenizer_sha256"] != identity.tokenizer_sha256:
        yield f"was made by model {row['model']}, the output holds {identity.model}"
    yield from (f"{name} is not a SHA-256" for name in ("text_sha256", "tokens_sha256") if not is_sha256(row[name]))
    yield from (f"{name} is {row[name]}" for name in _COUNTS if not 0 <= row[name] < float("inf"))
    yield from (f"{name} is {row[name]!r}" for name, words in _WORDS.items() if row[name] not in words)
    if row["ring_size"] < 1:
        yield f"ring_size is {row['ring_size']}"
    if not 1 <= row["context_extension_factor"] < float("inf"):
        yield f"context_extension_factor is {row['context_extension_factor']}"
    if len({part["path"] for part in row["parts"]}) != len(row["parts"]):
        yield "names a part twice"
    num_rows = sum(part["rows"] for part in row["parts"] if part["table"] == "tokens")
    if num_rows != row["num_tokens"]:
        yield f"has {row['num_tokens']} tokens, and parts of {num_rows} tokens"
