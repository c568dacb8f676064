"""What every column of every table is: its Arrow type, whether it may be null, and one line for its reader.

These constants are the only description of the tables; schemas and `docs/tables.md` are made from them. Widths of
embeddings are not known here: `EMBEDDING` (fixed size, no nulls) and `EMBEDDING_LIST` (nullable) stand for them.
Signed integers only, no float16, timestamps in µs UTC: what DuckDB, Polars, pandas and Spark all read.
"""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

EMBEDDING = "embedding"
EMBEDDING_LIST = "embedding_list"

_STRING = pa.string()
_TEXT = pa.large_string()
_INT32 = pa.int32()
_INT64 = pa.int64()
_FLOAT32 = pa.float32()
_FLOAT64 = pa.float64()
_TIME = pa.timestamp("us", tz="UTC")
_IDS = pa.list_(pa.field("element", pa.int32(), nullable=False))
_NAMES = pa.list_(pa.field("element", pa.string(), nullable=False))
_PART = pa.struct(
    [
        pa.field("table", pa.string(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("sha256", pa.string(), nullable=False),
    ]
)
_PARTS = pa.list_(pa.field("element", _PART, nullable=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: `arrow` is a pyarrow type, or one of the two stand-ins for embeddings."""

    name: str
    arrow: Any
    doc: str
    nullable: bool = False


def _column(name: str, arrow: Any, doc: str) -> Column:
    return Column(name=name, arrow=arrow, doc=doc)


def _nullable(name: str, arrow: Any, doc: str) -> Column:
    return Column(name=name, arrow=arrow, doc=doc, nullable=True)


IDENTITY = (
    _column("doc_id", _STRING, "The source without its version: canonical address and selection."),
    _column("doc_key", _STRING, "doc_id, version, connector version and configuration as one SHA-256, hexadecimal."),
    _column("attempt_id", _STRING, "The one attempt at this doc_key that was committed."),
)

DOCUMENTS = (
    *IDENTITY,
    _column("kind", _STRING, "`book` or `repository`."),
    _column("source_uri", _STRING, "Where the document was read from; credentials removed."),
    _nullable("revision", _STRING, "The revision that was asked for, for example a branch."),
    _nullable("commit_id", _STRING, "The commit that the revision stood for."),
    _nullable(
        "previous_doc_key",
        _STRING,
        "The doc_key of the version of the same doc_id that was committed last before this one, whatever its commit or "
        "configuration; null for the first. Two runs at the same time may name the same one.",
    ),
    _nullable("title", _TEXT, "The title, where the source states one."),
    _column("authors", _NAMES, "The authors in the source's order; empty where it names none."),
    _nullable("language", _STRING, "The language, where the source states one."),
    _column("identifiers", _NAMES, "Identifiers that the source states, for example an ISBN or a URI, in its order."),
    _nullable("publisher", _TEXT, "The publisher, where the source states one."),
    _nullable("date", _STRING, "The date of publication as the source states it."),
    _column("warnings", _NAMES, "What a reader of the result should know of the source, for example mixed columns."),
    _column("num_bytes_source", _INT64, "Bytes of the source, all of them accounted for by the segments."),
    _column("num_bytes_text", _INT64, "Bytes of the document's text in UTF-8."),
    _column("num_tokens", _INT64, "Tokens of the text, special tokens around it not counted."),
    _column("text_sha256", _STRING, "SHA-256 of the text in UTF-8, hexadecimal."),
    _column("tokens_sha256", _STRING, "SHA-256 of the token ids as little-endian int32, hexadecimal."),
    _column("model", _STRING, "Name of the model."),
    _column("model_digest", _STRING, "SHA-256 over the model's configuration, weights and tokenizer."),
    _nullable(
        "model_check_error",
        _FLOAT64,
        "Largest difference between a ring and one rank on the check's text: of a log-prob, in nats; of a final state, "
        "relative to the largest, where the model has no log-probs.",
    ),
    _column("tokenizer_sha256", _STRING, "SHA-256 of the tokenizer's file."),
    _column(
        "prefix_token_ids", _IDS, "Special tokens and the model's prompt, seen before the text; not rows of tokens."
    ),
    _column("suffix_token_ids", _IDS, "Special tokens the model saw after the text."),
    _column("dtype", _STRING, "Number format of the forward pass."),
    _column("kernel", _STRING, "Attention kernel that ran."),
    _column("ring_size", _INT32, "Ranks of the ring."),
    _column("layout", _STRING, "Which rank owned which tokens."),
    _column("context_trained", _INT64, "Tokens the model was trained to read at once."),
    _column("context_extension", _STRING, "`none`, `yarn`, `theta`, or `dynamic`: the model's own dynamic NTK rule."),
    _column(
        "context_extension_factor", _FLOAT64, "Factor of the extension, 1 for none. Scores compare within one factor."
    ),
    _column("attention_direction", _STRING, "`causal` or `bidirectional`."),
    _nullable(
        "pooling",
        _STRING,
        "How token states became embeddings: `mean`, `last` or `cls`, then `dense` and `normalized` where the model "
        "has them (docs/models.md); null without embeddings.",
    ),
    _nullable("mean_logprob", _FLOAT64, "Mean of the tokens' log-probs, in nats; null where no token has one."),
    _nullable("perplexity", _FLOAT64, "exp(-mean_logprob)."),
    _column("embedding", EMBEDDING, "The document's embedding."),
    _column("seconds", _FLOAT64, "Wall time of the attempt, in seconds."),
    _column("tokens_per_second", _FLOAT64, "num_tokens / seconds."),
    _column("run_id", _STRING, "The run that committed the document."),
    _column(
        "committed_at", _TIME, "When the commit was decided; always after the version before it, whatever the clocks."
    ),
    _column("parts", _PARTS, "Every file of this attempt: table, path below the output, rows, bytes, SHA-256."),
)

SEGMENTS = (
    *IDENTITY,
    _column("segment_index", _INT32, "Place in the document, from 0."),
    _column("unit", _INT32, "Number of the file, chapter or page the segment belongs to; spans never cross one."),
    _column("kind", _STRING, "What the segment is, for example `chapter`, `file`, `file_header`, `padding`."),
    _column("is_content", pa.bool_(), "Whether the segment is its unit's own content, not a header or padding."),
    _nullable("path", pa.large_binary(), "The file's path as raw bytes."),
    _nullable("display_path", _TEXT, "The path for people: control characters and bytes that are not UTF-8 escaped."),
    _nullable("title", _TEXT, "Title of the chapter."),
    _nullable("encoding", _STRING, "Encoding that turns the text back into the source's bytes."),
    _nullable("encoding_source", _STRING, "How the encoding was found."),
    _nullable("reason", _STRING, "Why the segment's bytes are not text; null for text."),
    _column("num_bytes_source", _INT64, "Bytes of the source this segment accounts for."),
    _nullable("source_sha256", _STRING, "SHA-256 of those bytes, hexadecimal."),
    _nullable("blob_id", _STRING, "Git object id of the file's content."),
    _nullable("transform", _STRING, "The format whose rules made the text; null where it is the decoded source."),
    _nullable("place", _TEXT, "Where the text begins in its file: a page, or an element path."),
    _column("text_byte_start", _INT64, "First byte in the document's UTF-8 text."),
    _column("text_byte_stop", _INT64, "One past the last byte."),
    _column("char_start", _INT64, "First code point in the document's text."),
    _column("char_stop", _INT64, "One past the last code point."),
    _column("token_start", _INT64, "First token."),
    _column("token_stop", _INT64, "One past the last token."),
    _column("num_lines", _INT64, "Lines of the segment's text."),
    _nullable("embedding", EMBEDDING_LIST, "The segment's embedding; null for a segment without tokens."),
)

SPANS = (
    *IDENTITY,
    _column("span_index", _INT32, "Place in the document, from 0. Spans tile the document."),
    _column("segment_index", _INT32, "The file's, chapter's or page's own segment, after which the span is named."),
    _nullable("display_path", _TEXT, "That segment's path for people."),
    _nullable("title", _TEXT, "That segment's title."),
    _column("token_start", _INT64, "First token."),
    _column("token_stop", _INT64, "One past the last token."),
    _column("text_byte_start", _INT64, "First byte in the document's UTF-8 text, on a character boundary."),
    _column("text_byte_stop", _INT64, "One past the last byte."),
    _column("line_start", _INT64, "First line within the named segment, from 1."),
    _column("line_stop", _INT64, "One past the last line."),
    _nullable("text", _TEXT, "The span's text; null when the run was told not to store it."),
    _column("embedding", EMBEDDING, "The span's embedding, pooled from states that saw the whole document."),
    _nullable("mean_logprob", _FLOAT32, "Mean of the span's log-probs, in nats; null where no token has one."),
    _nullable("max_surprisal", _FLOAT32, "Largest -logprob of the span, in nats."),
)

TOKENS = (
    *IDENTITY,
    _column("position", _INT64, "Place in the document, from 0, without gaps."),
    _column("token_id", _INT32, "The token's id in the model's vocabulary."),
    _column("text_byte_start", _INT64, "First byte of the token in the document's UTF-8 text."),
    _column("segment_index", _INT32, "The segment that holds the token."),
    _nullable("logprob", _FLOAT32, "Natural log of the token's probability, at most 0; null where nothing precedes."),
    _nullable("entropy", _FLOAT32, "Entropy in nats of the distribution that predicted the token."),
    _nullable("rank_in_vocabulary", _INT32, "1 for the model's first choice."),
)

QUARANTINE = (
    _nullable("doc_id", _STRING, "The source without its version."),
    _nullable("doc_key", _STRING, "Null where the document could not be read far enough to have one."),
    _nullable("attempt_id", _STRING, "The attempt that failed, where one had begun."),
    _column("source_uri", _STRING, "Where the document was found; credentials removed."),
    _column("stage", _STRING, "Where it failed, for example `read`, `encode`, `plan`, `forward`, `write`."),
    _column("reason", _STRING, "A stable word, for example `empty`."),
    _column("error", _TEXT, "The whole message."),
    _nullable("needs", _TEXT, "What would let the document through, for example bytes a rank."),
    _column("attempts", _INT32, "How often it has failed so far; one row a time."),
    _column("first_at", _TIME, "When it failed first."),
    _column("last_at", _TIME, "When it failed this time."),
)

RUNS = (
    _column("run_id", _STRING, "The run. A run that was killed leaves no row."),
    _column("configuration", _TEXT, "Options of the run and the exact source of its model, JSON."),
    _column("versions", _TEXT, "Versions of longdoc and its libraries, JSON."),
    _column("host", _TEXT, "Facts of the machine, JSON."),
    _column("forecast", _TEXT, "What was forecast, JSON."),
    _column("actual", _TEXT, "What was measured, JSON."),
    _column("started_at", _TIME, "When the run started."),
    _column("finished_at", _TIME, "When it ended."),
    _column("exit_code", _INT32, "The exit code of the command."),
)

TABLES: dict[str, tuple[Column, ...]] = {
    "documents": DOCUMENTS,
    "segments": SEGMENTS,
    "spans": SPANS,
    "tokens": TOKENS,
    "quarantine": QUARANTINE,
    "runs": RUNS,
}
TABLE_DOCS = {
    "documents": "One row a committed document. A document exists if and only if it has a row here. Versions of one "
    "document (commits of a repository, editions of a file, other configurations) share doc_id and stand "
    "side by side; previous_doc_key leads from each to the one committed before it. That is the order of "
    "this output's commits, which need not be the repository's: after a rewritten branch the chain goes "
    "on from what stood there. The view `current` (longdoc.store.views) has the version that was "
    "committed last. A repository that returns to a commit which is here already is not read again and "
    "changes no row: `current` still has the version committed last, and the row of that commit_id is the "
    "one to ask for. Another selection (`--include`, a path) is another doc_id with its own chain.",
    "segments": "One row a segment: the smallest piece with provenance. Segments tile the text and the source's bytes.",
    "spans": "One row a span: a stretch of tokens with one embedding and one set of scores. Spans tile the document.",
    "tokens": "One row a token of the text.",
    "quarantine": "One row a failure of a document; the newest row of a document counts, until it is committed.",
    "runs": "One row a finished run.",
}
