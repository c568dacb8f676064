"""The books job from Python: what samples/books.toml says, and then a look at the rows.

Usage: python samples/index_books.py OUT [MODEL]
"""

import sys

import duckdb

from pipelines.books import index_books

output = sys.argv[1]
model = sys.argv[2] if len(sys.argv) > 2 else "smollm2-135m-instruct"

summary = index_books(["samples/the-lighthouse-ledger.md"], output, model=model, ring_size=2, span_tokens=256)
sys.stdout.write(f"{summary.num_committed} computed now, {summary.num_committed_before} before\n")

rows = duckdb.sql("SELECT title, num_tokens FROM read_parquet(? || '/documents/*/*.parquet')", params=[output])
for title, num_tokens in rows.fetchall():
    sys.stdout.write(f"{title}: {num_tokens:,} tokens\n")
