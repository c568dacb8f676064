"""verify finds no fault in outputs of any kind that keep their promises."""

import copy
import dataclasses
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic_output import IDENTITY, arrow_rows, commit_document, make_document, sha256, write_parts
from verify_actions import faults_of

from longdoc.store.commit import OutputStore
from longdoc.store.schemas import OutputIdentity
from longdoc.verify import verify

OTHER_OUTPUTS = [
    dataclasses.replace(IDENTITY, outputs=("logprobs",), embedding_size=0),
    dataclasses.replace(IDENTITY, outputs=("embeddings",)),
    dataclasses.replace(IDENTITY, outputs=(), embedding_size=0),
]


@pytest.mark.parametrize("identity", OTHER_OUTPUTS, ids=[",".join(other.outputs) or "none" for other in OTHER_OUTPUTS])
def test_outputs_without_embeddings_or_scores_are_sound(tmp_path: Path, identity: OutputIdentity) -> None:
    document = make_document(1, with_text=False)
    if "logprobs" not in identity.outputs:
        for row in document.tables["tokens"]:
            row |= {"logprob": None, "entropy": None, "rank_in_vocabulary": None}
        for row in document.tables["spans"]:
            row |= {"mean_logprob": None, "max_surprisal": None}
        document.row.update({"mean_logprob": None, "perplexity": None})
    if not identity.embedding_size:
        document.row.update({"embedding": None, "pooling": None})
    commit_document(OutputStore.open(str(tmp_path), identity), document)
    assert faults_of(tmp_path) == []


def test_a_document_of_one_token_has_no_scores_and_is_sound(tmp_path: Path) -> None:
    document = copy.deepcopy(make_document(1))
    segment, token, span = (document.tables[table][0] for table in ("segments", "tokens", "spans"))
    segment |= {"text_byte_stop": 2, "char_stop": 2, "token_stop": 1, "num_bytes_source": 2, "is_content": True}
    segment |= {"num_lines": 1, "encoding": "utf-8", "encoding_source": "utf-8", "source_sha256": sha256(b"Fi")}
    span |= {
        "segment_index": 0,
        "token_stop": 1,
        "text_byte_stop": 2,
        "line_stop": 2,
        "text": "Fi",
        "mean_logprob": None,
        "max_surprisal": None,
    }
    document.tables.update({"segments": [segment], "tokens": [token], "spans": [span]})
    hashes = {
        "text_sha256": sha256(b"Fi"),
        "tokens_sha256": sha256(token["token_id"].to_bytes(4, "little")),
    }
    counts = {"num_tokens": 1, "num_bytes_text": 2, "num_bytes_source": 2}
    document.row.update(hashes | counts | {"mean_logprob": None, "perplexity": None})
    commit_document(OutputStore.open(str(tmp_path), IDENTITY), document)
    assert faults_of(tmp_path) == []


def test_an_empty_output_is_sound(tmp_path: Path) -> None:
    OutputStore.open(str(tmp_path), IDENTITY)
    report = verify(str(tmp_path))
    assert (report.faults, sum(report.counts.values())) == ((), 0)


def test_an_attempt_in_progress_is_no_fault(output: Path) -> None:
    store = OutputStore.open(str(output), IDENTITY)
    attempt = store.begin(make_document(3).doc_key)
    write_parts(attempt, make_document(3))
    assert faults_of(output) == []
    store.discard(attempt)


def test_a_part_with_another_schema_is_named(tmp_path: Path) -> None:
    """Committed by a writer that changed a type: the bytes are as committed, the schema is not."""
    store = OutputStore.open(str(tmp_path), IDENTITY)
    document = make_document(1)
    attempt = store.begin(document.doc_key)
    parts = write_parts(attempt, document)
    changed = []
    for written in parts:
        path = attempt.staging / written.path
        if written.table == "tokens":
            rows = pq.ParquetFile(path).read()
            place = rows.schema.get_field_index("position")
            pq.write_table(rows.set_column(place, "position", rows["position"].cast(pa.int32())), path)
            digest = sha256(path.read_bytes())
            written = dataclasses.replace(written, num_bytes=path.stat().st_size, sha256=digest)
        changed.append(written)
    assert store.commit(attempt, document_row=document.row, parts=changed)
    assert any("tokens: " in fault and "does not have the table's schema" in fault for fault in faults_of(tmp_path))


def test_the_helper_writes_what_it_says() -> None:
    """The tests above rest on it: its rows fit the schemas and its document is consistent by its own definition."""
    document = make_document(1)
    text = "".join(row["text"] for row in document.tables["spans"]).encode()
    assert len(text) == document.row["num_bytes_text"]
    assert [row["position"] for row in document.tables["tokens"]] == list(range(46))
    identity = {"doc_id": "a", "doc_key": "b", "attempt_id": "c"}
    for table, rows in document.tables.items():
        assert arrow_rows(table, [identity | row for row in rows]).num_rows == len(rows)
