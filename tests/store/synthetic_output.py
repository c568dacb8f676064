"""Small outputs made from nothing but arithmetic, for the tests of the store and of verify.

Run as a script it commits one document and kills itself after a chosen step: `OUTPUT DOCUMENT STEP TIMES`.
"""

import hashlib
import io
import os
import signal
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from longdoc.records import Part
from longdoc.store.commit import Attempt, OutputStore
from longdoc.store.parts import PartWriter
from longdoc.store.schemas import OutputIdentity, schema_of

WIDTH = 4
IDENTITY = OutputIdentity(
    model="arithmetic",
    model_digest="a" * 64,
    tokenizer_sha256="b" * 64,
    outputs=("embeddings", "logprobs"),
    embedding_size=WIDTH,
)
SEGMENTS = (  # unit, kind, text
    (0, "file_header", "File: ä.py\n"),
    (0, "file", "x = 'naïve €'\ny = 2\nprint(x)"),
    (0, "padding", "\n"),
    (1, "file", ""),
    (2, "file_header", "File: b.txt\n"),
    (2, "file", "Call me Ishmael.\x00\nSome years ago…\n"),
)
NUM_BYTES_BINARY = 512  # of the file without text


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    doc_id: str
    doc_key: str
    tables: dict[str, list[dict[str, Any]]]
    row: dict[str, Any]


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def vector(number: int) -> list[float]:
    return [float(np.float32(0.1 * number + place)) for place in range(WIDTH)]


def make_document(number: int, *, with_text: bool = True, version: int = 0) -> Synthetic:
    """Document `number`: its text repeats the segments above with the number in front; one token per two characters."""
    texts = [(unit, kind, f"{number}:" * (kind == "file" and text != "") + text) for unit, kind, text in SEGMENTS]
    segments, tokens, byte, char = [], [], 0, 0
    for index, (unit, kind, text) in enumerate(texts):
        start = len(tokens)
        for place in range(0, len(text), 2):
            tokens.append((len(text[:place].encode()) + byte, index, ord(text[place]) * 3 + number))
        segments.append(
            {
                "segment_index": index,
                "unit": unit,
                "kind": kind,
                "is_content": kind == "file",
                "path": f"dir/{unit}".encode() + b"\xff",
                "display_path": f"dir/{unit}\\xff",
                "reason": None if text else "binary",
                "text_byte_start": byte,
                "text_byte_stop": byte + len(text.encode()),
                "char_start": char,
                "char_stop": char + len(text),
                "token_start": start,
                "token_stop": len(tokens),
                "num_lines": len(io.StringIO(text, newline="\n").readlines()),
                "embedding": vector(index) if text else None,
            }
            | _source(kind, text.encode())
        )
        byte, char = byte + len(text.encode()), char + len(text)
    text = "".join(text for _, _, text in texts)
    doc_id, doc_key = f"file:///book-{number}", sha256(f"{number}/{version}".encode())
    token_rows = _token_rows(tokens)
    num_bytes_source = sum(segment["num_bytes_source"] for segment in segments)
    row = _document_row(text, token_rows, num_bytes_source) | {"doc_id": doc_id, "doc_key": doc_key}
    tables = {"segments": segments, "tokens": token_rows, "spans": _span_rows(text, segments, token_rows, with_text)}
    return Synthetic(doc_id=doc_id, doc_key=doc_key, tables=tables, row=row)


def _source(kind: str, raw: bytes) -> dict[str, Any]:
    """Where a segment came from: a file in UTF-8, a binary file without text, or nowhere."""
    if kind != "file":
        return {"num_bytes_source": 0}
    if not raw:
        return {"num_bytes_source": NUM_BYTES_BINARY, "source_sha256": sha256(bytes(NUM_BYTES_BINARY))}
    return {
        "encoding": "utf-8",
        "encoding_source": "utf-8",
        "num_bytes_source": len(raw),
        "source_sha256": sha256(raw),
        "blob_id": hashlib.sha1(b"blob %d\0" % len(raw) + raw).hexdigest(),
    }


def _token_rows(tokens: list[tuple[int, int, int]]) -> list[dict[str, Any]]:
    return [
        {
            "position": position,
            "token_id": token_id,
            "text_byte_start": start,
            "segment_index": segment,
            "logprob": None if position == 0 else -0.25 * (1 + position * 7 % 5),
            "entropy": None if position == 0 else 0.5,
            "rank_in_vocabulary": None if position == 0 else 1 + position % 3,
        }
        for position, (start, segment, token_id) in enumerate(tokens)
    ]


def _span_rows(
    text: str, segments: list[dict[str, Any]], tokens: list[dict[str, Any]], with_text: bool
) -> list[dict[str, Any]]:
    starts = [token["text_byte_start"] for token in tokens] + [len(text.encode())]
    rows: list[dict[str, Any]] = []
    for unit in (0, 2):
        mine = [segment for segment in segments if segment["unit"] == unit]
        stop = mine[-1]["token_stop"]
        for start in range(mine[0]["token_start"], stop, 5):
            end = min(start + 5, stop)
            scores = [token["logprob"] for token in tokens[start:end] if token["logprob"] is not None]
            rows.append(
                {
                    "span_index": len(rows),
                    "segment_index": mine[1]["segment_index"],
                    "display_path": mine[1]["display_path"],
                    "token_start": start,
                    "token_stop": end,
                    "text_byte_start": starts[start],
                    "text_byte_stop": starts[end],
                    **_lines(text.encode(), mine[1], starts[start], starts[end]),
                    "text": text.encode()[starts[start] : starts[end]].decode() if with_text else None,
                    "embedding": vector(len(rows)),
                    "mean_logprob": sum(scores) / len(scores),
                    "max_surprisal": -min(scores),
                }
            )
    return rows


def _lines(text: bytes, content: dict[str, Any], byte_start: int, byte_stop: int) -> dict[str, int]:
    """The lines of the content that hold the span's bytes, by going through its characters."""
    line, lines = 1, []
    for byte in range(content["text_byte_start"], content["text_byte_stop"]):
        if byte_start <= byte < byte_stop:
            lines.append(line)
        line += text[byte] == ord("\n")
    # A span with no byte of the content is before its first or after its last.
    around = 1 if byte_stop <= content["text_byte_start"] else line
    return {"line_start": min(lines, default=around), "line_stop": max(lines, default=around - 1) + 1}


def _document_row(text: str, tokens: list[dict[str, Any]], num_bytes_source: int) -> dict[str, Any]:
    scores = [token["logprob"] for token in tokens if token["logprob"] is not None]
    mean = sum(scores) / len(scores)
    return {
        "kind": "repository",
        "source_uri": "file:///somewhere",
        "authors": ["A", "B"],
        "identifiers": ["urn:isbn:0"],
        "warnings": [],
        "num_bytes_source": num_bytes_source,
        "num_bytes_text": len(text.encode()),
        "num_tokens": len(tokens),
        "text_sha256": sha256(text.encode()),
        "tokens_sha256": sha256(np.array([token["token_id"] for token in tokens], dtype="<i4").tobytes()),
        "model": IDENTITY.model,
        "model_digest": IDENTITY.model_digest,
        "tokenizer_sha256": IDENTITY.tokenizer_sha256,
        "prefix_token_ids": [],
        "suffix_token_ids": [2],
        "dtype": "float32",
        "kernel": "reference",
        "ring_size": 2,
        "layout": "zigzag",
        "context_trained": 128,
        "context_extension": "none",
        "context_extension_factor": 1.0,
        "attention_direction": "causal",
        "pooling": "mean",
        "mean_logprob": mean,
        "perplexity": float(np.exp(-mean)),
        "embedding": vector(9),
        "seconds": 2.0,
        "tokens_per_second": len(tokens) / 2.0,
        "run_id": "run1",
    }


def rows_of_rank(table: str, rows: list[dict[str, Any]], rank: int) -> list[dict[str, Any]]:
    """Two ranks, zigzag: the first takes the outer quarters, the second the inner half."""
    quarter = len(rows) // 4
    inner = rows[quarter : len(rows) - quarter]
    return inner if rank == 1 else rows[:quarter] + rows[len(rows) - quarter :]


def arrow_rows(table: str, rows: list[dict[str, Any]], identity: OutputIdentity = IDENTITY) -> pa.Table:
    schema = schema_of(table, identity)
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema=schema)


def write_parts(attempt: Attempt, document: Synthetic, ids: OutputIdentity = IDENTITY) -> list[Part]:
    """Each rank writes its rows of each table as a part. Rows may say that they belong elsewhere."""
    identity = {"doc_id": document.doc_id, "doc_key": document.doc_key, "attempt_id": attempt.attempt_id}
    parts = []
    for table, rows in document.tables.items():
        for rank in (0, 1):
            mine = [identity | row for row in rows_of_rank(table, rows, rank)]
            with PartWriter(
                attempt.staging,
                table=table,
                unit=attempt.unit,
                number=rank,
                identity=ids,
                metadata={"run_id": "run1"},
            ) as writer:
                writer.write(arrow_rows(table, mine, ids))
                parts.append(writer.close())
    return parts


def commit_document(store: OutputStore, document: Synthetic) -> bool:
    attempt = store.begin(document.doc_key)
    return store.commit(attempt, document_row=document.row, parts=write_parts(attempt, document, store.identity))


def make_output(output: Path, numbers: tuple[int, ...] = (1, 2)) -> OutputStore:
    """An output with two documents, one document in quarantine and one run."""
    store = OutputStore.open(str(output), IDENTITY)
    for number in numbers:
        assert commit_document(store, make_document(number))
    store.quarantine(
        source_uri="file:///bad", doc_id="file:///bad", doc_key=None, stage="read", reason="empty", error="bad is empty"
    )
    now = datetime.now(UTC)
    run: dict[str, Any] = {"configuration": {"a": 1}, "versions": {}, "host": {}, "forecast": {}, "actual": {}}
    store.record_run(run | {"run_id": "run1", "started_at": now, "finished_at": now, "exit_code": 0})
    return store


class DyingStore(OutputStore):
    """Kills its own process, as the kernel would, after a step has been taken a number of times."""

    step = ""
    times = 0

    def on_step(self, name: str) -> None:
        self.times -= name == self.step
        if name == self.step and self.times == 0:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    dying = DyingStore.open(sys.argv[1], IDENTITY)
    dying.step, dying.times = sys.argv[3], int(sys.argv[4])
    commit_document(dying, make_document(int(sys.argv[2])))
