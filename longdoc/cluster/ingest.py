"""Reading and encoding beside the rings, as Ray tasks: a document goes in by name, each rank's work comes out.

The driver holds references only. Long texts are encoded in pieces by further tasks, since threads stall here.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from longdoc.cluster.messages import DocumentSummary, IngestSpec
from longdoc.cluster.placement import INGEST_CPUS
from longdoc.errors import DocumentError
from longdoc.estimate import ModelShape, check_capacity
from longdoc.files import cache_folder
from longdoc.model.positions import choose_extension
from longdoc.outputs.spans import plan_spans
from longdoc.outputs.work import RankWork, build_work
from longdoc.records import Document, DocumentRef, Int32s, TokenSequence
from longdoc.reporting import Fault
from longdoc.ring.layout import Layout
from longdoc.tokenization.cache import TokenCache
from longdoc.tokenization.encode import batch_texts, encode_document
from longdoc.tokenization.vocabulary import Vocabulary

#: Characters of a text from which on further tasks help with the encoding.
PARALLEL_CHARS = 8_000_000

EncodePieces = Callable[[Sequence[str]], Sequence[Int32s]]


def read_tokens(
    ref: DocumentRef, model_folder: str, encode_pieces: EncodePieces | None = None
) -> tuple[Document, TokenSequence]:
    """Read and encode one document. Raises `DocumentError` where the document is at fault."""
    document = ref.read()
    if not document.text:
        raise DocumentError(
            f"{ref.source_uri} has no text to read: every part of it has a reason instead (see longdoc inspect).",
            stage="read",
            reason="empty",
        )
    vocabulary = Vocabulary.load(Path(model_folder))
    with TokenCache(cache_folder() / "tokens.sqlite") as cache:
        return document, encode_document(document, vocabulary, cache=cache, encode_pieces=encode_pieces)


def prepare(
    ref: DocumentRef, spec: IngestSpec, shape: ModelShape, encode_pieces: EncodePieces | None = None
) -> tuple[DocumentSummary, list[RankWork]]:
    """Read, encode and cut one document for a ring. Raises `DocumentError` where the document is at fault."""
    document, sequence = read_tokens(ref, spec.model_folder, encode_pieces)
    extension = choose_extension(
        spec.context_extension, sequence.num_model_tokens, spec.context_trained, rope_type=spec.rope_type
    )
    check_capacity(shape, sequence.num_model_tokens, spec.num_ranks, spec.capacity_bytes, name=ref.source_uri)
    spans = plan_spans(document, sequence, spec.span_tokens)
    layout = Layout(kind=spec.layout, num_tokens=sequence.num_model_tokens, num_ranks=spec.num_ranks)
    works = build_work(document, sequence, spans, layout, with_text=spec.with_text)
    return DocumentSummary.of(document, sequence, num_spans=len(spans), extension=extension), works


def ingest(ref: DocumentRef, spec: IngestSpec, shape: ModelShape) -> tuple[DocumentSummary | Fault, *tuple[Any, ...]]:
    """`prepare` as the body of a task with 1 + num_ranks results; a fault of the document is a result too."""
    try:
        summary, works = prepare(ref, spec, shape, encode_pieces=_encode_in_tasks(spec.model_folder))
    except DocumentError as error:
        fault = Fault(stage=error.stage, reason=error.reason, error=str(error), needs=error.needs)
        return (fault, *([None] * spec.num_ranks))
    return (summary, *works)


def start_ingest(ref: DocumentRef, spec: IngestSpec, shape: ModelShape) -> list[Any]:
    """Start the task; returns 1 + num_ranks references: the summary, and each rank's work."""
    import ray

    task = ray.remote(num_cpus=INGEST_CPUS, max_retries=0)(ingest)
    references: list[Any] = task.options(num_returns=1 + spec.num_ranks).remote(ref, spec, shape)
    return references


def encode_texts(model_folder: str, texts: Sequence[str]) -> list[Int32s]:
    """Encode pieces of text in this process."""
    vocabulary = Vocabulary.load(Path(model_folder))
    return [vocabulary.encode(text) for text in texts]


def _encode_in_tasks(model_folder: str) -> EncodePieces:
    import ray

    task = ray.remote(num_cpus=INGEST_CPUS, max_retries=0)(encode_texts)

    def encode_pieces(texts: Sequence[str]) -> list[Int32s]:
        if sum(map(len, texts)) < PARALLEL_CHARS:
            return encode_texts(model_folder, texts)
        batches = ray.get([task.remote(model_folder, batch) for batch in batch_texts(texts)])
        return [ids for batch in batches for ids in batch]

    return encode_pieces
