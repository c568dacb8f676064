"""The documents table against the decisions: every row decided once, published once, byte for byte as decided."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from longdoc.checks.findings import Findings
from longdoc.checks.parts import check_form
from longdoc.store.commit import COMMITTED
from longdoc.store.parts import parse_part_path
from longdoc.store.places import Places
from longdoc.store.rows import read_rows
from longdoc.store.schemas import OutputIdentity, is_sha256

Row = dict[str, Any]


def check_documents(findings: Findings, places: Places, identity: OutputIdentity, files: set[str]) -> list[Row]:
    """Check the documents files, and return the row of every document that was decided and published.

    Where a file and its decision differ, that is a fault and the decision is believed: the parts it names are then
    still checked. A file without a decision is a fault and believed, for the same reason.
    """
    decided = _decisions(findings, places, identity)
    by_key: dict[str, list[str]] = defaultdict(list)
    believed: dict[str, Row] = {}
    for name in sorted(files):
        for row in _check_file(findings, places, identity, name, decided):
            by_key[str(row["doc_key"])].append(name)
            believed.setdefault(str(row["doc_key"]), row)
    for key, names in by_key.items():
        if len(names) > 1:
            findings.fault("documents", names[-1], f"holds document {key}, of which there are {len(names)} rows in all")
    for unit, row in decided.items():
        if places.documents(unit).exists():
            believed[unit] = row
    for row in believed.values():
        _check_row(findings, places, identity, row)
    findings.counts["documents"] = len(believed)
    return list(believed.values())


def _decisions(findings: Findings, places: Places, identity: OutputIdentity) -> dict[str, Row]:
    decided: dict[str, Row] = {}
    for path in sorted(places.decisions.iterdir()) if places.decisions.is_dir() else ():
        if path.name.startswith("."):
            continue
        with findings.reading("documents", path):
            (decided[path.name],) = read_rows(path, "documents", identity)
        if not places.documents(path.name).exists():
            findings.fault(
                "documents",
                path.name,
                "was decided, but its row is not published. A commit was interrupted: run again to roll it forward",
            )
    return decided


def _check_file(
    findings: Findings, places: Places, identity: OutputIdentity, name: str, decided: dict[str, Row]
) -> list[Row]:
    path, rows = places.root / name, []
    parsed = parse_part_path(name)
    assert parsed is not None, f"{name} passed the inventory"
    _, unit, number = parsed
    decision = places.decision(unit)
    if number != 0:
        findings.fault("documents", name, f"is a second documents file of {unit}")
    elif not decision.exists():
        findings.fault("documents", name, f"belongs to no decision: {_below(places, decision)} is missing")
    elif decision.read_bytes() != path.read_bytes():
        findings.fault("documents", name, f"differs from its decision {_below(places, decision)}")
    with findings.reading("documents", name):
        rows = read_rows(path, "documents", identity)
        run_id = str(rows[0]["run_id"]) if rows else ""
        check_form(findings, "documents", path, identity, run_id=run_id)
        for row in rows:
            if row["doc_key"] != unit:
                findings.fault("documents", name, f"holds document {row['doc_key']}, not {unit}")
    return rows


def _check_row(findings: Findings, places: Places, identity: OutputIdentity, row: Row) -> None:
    key = str(row["doc_key"])
    state = places.attempt(str(row["attempt_id"]))
    if not state.is_file() or state.read_bytes() != COMMITTED:
        findings.fault("documents", key, f"its attempt {row['attempt_id']} is not marked as committed")
    for problem in _problems(identity, row):
        findings.fault("documents", key, problem)


def _problems(identity: OutputIdentity, row: Row) -> list[str]:
    problems = []
    if row["model_digest"] != identity.model_digest or row["tokenizer_sha256"] != identity.tokenizer_sha256:
        problems.append(f"was made by model {row['model']}, the output holds {identity.model}")
    problems += [f"{name} is not a SHA-256" for name in ("text_sha256", "tokens_sha256") if not is_sha256(row[name])]
    counts = ("num_bytes_source", "num_bytes_text", "num_tokens", "seconds", "tokens_per_second", "context_trained")
    problems += [f"{name} is {row[name]}" for name in counts if not 0 <= row[name] < float("inf")]
    if row["ring_size"] < 1:
        problems.append(f"ring_size is {row['ring_size']}")
    if identity.embedding_size and not np.isfinite(np.array(row["embedding"])).all():
        problems.append("its embedding is not finite")
    if len({part["path"] for part in row["parts"]}) != len(row["parts"]):
        problems.append("names a part twice")
    num_rows = sum(part["rows"] for part in row["parts"] if part["table"] == "tokens")
    if num_rows != row["num_tokens"]:
        problems.append(f"has {row['num_tokens']} tokens, and parts of {num_rows} tokens")
    return problems


def _below(places: Places, path: Path) -> str:
    return path.relative_to(places.root).as_posix()
