"""What is known of documents: committed, in quarantine, and the runs that are recorded."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from store_actions import no_faults
from synthetic_output import IDENTITY, commit_document, make_document, make_output, write_parts

from longdoc.errors import OutputError
from longdoc.store.commit import OutputStore
from longdoc.store.ledger import QUARANTINED_COLUMNS
from longdoc.store.rows import read_rows


def test_committed_documents_are_known_by_their_rows(tmp_path: Path) -> None:
    store = make_output(tmp_path)
    documents = store.committed()
    assert {key: (found.doc_id, found.num_tokens) for key, found in documents.items()} == {
        document.doc_key: (document.doc_id, len(document.tables["tokens"]))
        for document in (make_document(1), make_document(2))
    }
    (path,) = tmp_path.glob(f"documents/*/{make_document(1).doc_key}-p000.parquet")
    path.write_bytes(b"PAR1 nonsense")
    with pytest.raises(OutputError, match="cannot be read"):
        store.committed()


FAILURE: dict[str, Any] = {"source_uri": "file:///x", "stage": "plan", "reason": "over_capacity", "error": "too long"}


def test_quarantine_counts_failures_and_keeps_the_first_time(tmp_path: Path) -> None:
    store = OutputStore.open(str(tmp_path), IDENTITY)
    key = make_document(1).doc_key
    for needs in ("2 GiB a rank", "3 GiB a rank"):
        store.quarantine(doc_id="file:///x", doc_key=key, needs=needs, **FAILURE)
    row = OutputStore.read(str(tmp_path)).quarantined()[key]
    assert (row["attempts"], row["needs"], row["reason"]) == (2, "3 GiB a rank", "over_capacity")
    rows = [row for path in sorted(tmp_path.glob("quarantine/*/*")) for row in read_rows(path, "quarantine", IDENTITY)]
    assert [row["attempts"] for row in rows] == [1, 2]
    assert rows[1]["first_at"] == rows[0]["first_at"] == rows[0]["last_at"] < rows[1]["last_at"]
    assert commit_document(store, make_document(1))
    assert store.quarantined() == {}


def test_earlier_rows_of_a_document_in_quarantine_are_not_opened(tmp_path: Path) -> None:
    store = OutputStore.open(str(tmp_path), IDENTITY)
    for needs in ("1", "2", "3"):
        store.quarantine(doc_id="file:///x", doc_key=None, needs=needs, **FAILURE)
    for path in tmp_path.glob("quarantine/*/*-p00[12].parquet"):
        path.write_bytes(b"PAR1 nonsense")
    assert {key: row["needs"] for key, row in store.quarantined().items()} == {"file:///x": "3"}


def test_a_document_without_a_key_is_quarantined_by_its_name_until_it_is_committed(tmp_path: Path) -> None:
    store = OutputStore.open(str(tmp_path), IDENTITY)
    document = make_document(1)
    store.quarantine(doc_id=document.doc_id, doc_key=None, **FAILURE)
    assert set(store.quarantined()) == {document.doc_id}
    commit_document(store, document)
    assert store.quarantined() == {}
    store.quarantine(doc_id=document.doc_id, doc_key=None, **FAILURE)
    assert store.quarantined()[document.doc_id]["attempts"] == 2
    with pytest.raises(ValueError, match="needs a doc_key or a doc_id"):
        store.quarantine(doc_id=None, doc_key=None, **FAILURE)


def test_two_drivers_that_record_failures_never_take_one_number(tmp_path: Path) -> None:
    stores = [OutputStore.open(str(tmp_path), IDENTITY) for _ in range(4)]
    threads = [
        threading.Thread(target=lambda store=store: store.quarantine(doc_id="x", doc_key=None, **FAILURE))
        for store in stores
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = [row for path in tmp_path.glob("quarantine/*/*") for row in read_rows(path, "quarantine", IDENTITY)]
    assert sorted(row["attempts"] for row in rows) == [1, 2, 3, 4]
    no_faults(tmp_path)


def test_a_row_that_was_kept_and_not_published_is_published_by_recovery(tmp_path: Path) -> None:
    store = make_output(tmp_path)
    published = sorted(path for table in ("quarantine", "runs") for path in tmp_path.glob(f"{table}/*/*"))
    contents = [path.read_bytes() for path in published]
    for path in published:
        path.unlink()
    store.recover()
    assert [path.read_bytes() for path in published] == contents
    no_faults(tmp_path)


def test_a_run_is_recorded_once(tmp_path: Path) -> None:
    store = make_output(tmp_path)
    (path,) = tmp_path.glob("runs/*/*")
    (row,) = read_rows(path, "runs", IDENTITY)
    assert (row["run_id"], json.loads(row["configuration"])) == ("run1", {"a": 1})
    with pytest.raises(ValueError, match="run run1 was recorded before"):
        store.record_run(row | {"exit_code": 4})
    with pytest.raises(ValueError, match="a runs row lacks run_id"):
        store.record_run({})


def test_quarantine_is_read_without_the_documents_where_they_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_output(tmp_path)
    committed, wanted = store.committed(), store.quarantined()
    assert [set(row) for row in wanted.values()] == [set(QUARANTINED_COLUMNS)]
    for path in tmp_path.glob("documents/*/*"):
        path.unlink()
    assert store.quarantined(committed) == wanted
    store.quarantine(doc_id=make_document(1).doc_id, doc_key=make_document(1).doc_key, **FAILURE)
    assert store.quarantined(committed) == wanted, "what is committed has left quarantine"


def test_recording_a_failure_lists_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With n failures kept, one more must not cost n."""
    store = OutputStore.open(str(tmp_path), IDENTITY)

    def listed(folder: Path, *_: Any) -> None:
        raise AssertionError(f"{folder} was listed")

    for method in ("glob", "iterdir", "rglob"):
        monkeypatch.setattr(Path, method, listed)
    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, listed)
    for _ in range(2):
        store.quarantine(doc_id="x", doc_key=None, **FAILURE)
    monkeypatch.undo()
    assert store.quarantined()["x"]["attempts"] == 2


def test_text_that_is_not_unicode_is_refused_by_the_name_of_its_column(tmp_path: Path) -> None:
    """A file name with bytes that are not UTF-8 reaches Python as lone surrogates, which no Parquet file can hold."""
    store = OutputStore.open(str(tmp_path), IDENTITY)
    with pytest.raises(ValueError, match=r"^doc_id of a quarantine row holds 'file:///\\udcff', which is not Unicode"):
        store.quarantine(doc_id="file:///\udcff", doc_key=None, **FAILURE)
    document = make_document(1)
    attempt = store.begin(document.doc_key)
    row = document.row | {"title": "\udcff"}
    with pytest.raises(ValueError, match=r"^title of a documents row holds '\\udcff', which is not Unicode text"):
        store.commit(attempt, document_row=row, parts=write_parts(attempt, document))
