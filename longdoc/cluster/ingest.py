"""Reading and encoding beside the rings, as Ray tasks: a document goes in by name, each rank's work comes out.

The tasks run on the driver's node, so a source needs to be readable only there. The driver holds references only. Long
texts are encoded in pieces by further tasks, a few at a time, since threads stall here. Nothing that these tasks import
needs torch.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from longdoc.cluster.calls import result
from longdoc.cluster.messages import DocumentSummary, IngestSpec
from longdoc.cluster.nodes import pinned
from longdoc.errors import DocumentError, LongdocError
from longdoc.estimate import ModelShape, check_capacity
from longdoc.files import cache_folder
from longdoc.model.positions import choose_extension
from longdoc.outputs.spans import plan_spans
from longdoc.outputs.work import RankWork, build_work
from longdoc.records import Document, DocumentRef, Int32s, TokenSequence
from longdoc.reporting import Fault
from longdoc.ring.layout import Layout
from longdoc.tokenization.cache import TokenCache
from longdoc.tokenization.encode import batch_texts, encode_setting_aside
from longdoc.tokenization.encode import encode_texts as encode_all
from longdoc.tokenization.pool import EncodingPool
from longdoc.tokenization.stream import read_and_encode
from longdoc.tokenization.vocabulary import Vocabulary

#: Characters of a text from which on further tasks help with the encoding.
PARALLEL_CHARS = 8_000_000
#: Batches that are encoded at the same time, at most.
PARALLEL_TASKS = 4

EncodePieces = Callable[[Sequence[str]], Sequence[Int32s]]


def read_tokens(
    ref: DocumentRef,
    model_folder: str,
    prompt_token_ids: tuple[int, ...] = (),
    encode_pieces: EncodePieces | None = None,
    pool: EncodingPool | None = None,
) -> tuple[Document, TokenSequence]:
    """Read and encode one document, with a prompt before it; in a pool where there is one.

    Raises `DocumentError` where the document is at fault.
    """
    vocabulary = Vocabulary.load(Path(model_folder))
    with TokenCache(cache_folder() / "tokens.sqlite") as cache:
        if pool is not None:
            document, sequence = read_and_encode(ref, vocabulary, pool, cache=cache)
        else:
            document = ref.read()
            document, sequence = encode_setting_aside(document, vocabulary, cache=cache, encode_pieces=encode_pieces)
    if not document.text:
        raise DocumentError(
            f"{ref.source_uri} has no text to read: every part of it has a reason instead (see longdoc inspect).",
            stage="read",
            reason="empty",
        )
    return document, replace(sequence, prefix_token_ids=(*sequence.prefix_token_ids, *prompt_token_ids))


def prepare(
    ref: DocumentRef, spec: IngestSpec, shape: ModelShape, encode_pieces: EncodePieces | None = None
) -> tuple[DocumentSummary, list[RankWork]]:
    """Read, encode and cut one document for a ring. Raises `DocumentError` where the document is at fault."""
    document, sequence = read_tokens(ref, spec.model_folder, spec.prompt_token_ids, encode_pieces)
    extension = choose_extension(spec.context_extension, sequence.num_model_tokens, spec.positions)
    check_capacity(
        shape,
        sequence.num_model_tokens,
        spec.num_ranks,
        spec.capacity,
        most=spec.most_ranks,
        name=ref.source_uri,
    )
    spans = plan_spans(document, sequence, spec.span_tokens)
    layout = Layout(kind=spec.layout, num_tokens=sequence.num_model_tokens, num_ranks=spec.num_ranks)
    works = build_work(document, sequence, spans, layout, with_text=spec.with_text)
    return DocumentSummary.of(document, sequence, num_spans=len(spans), extension=extension), works


def ingest(ref: DocumentRef, spec: IngestSpec, shape: ModelShape) -> tuple[DocumentSummary | Fault, *tuple[Any, ...]]:
    """`prepare` as the body of a task with 1 + num_ranks results; a fault of the document is a result too.

    So is an error that nobody foresaw: one document that trips over it must not stop all the others, on every run.
    """
    try:
        summary, works = prepare(ref, spec, shape, encode_pieces=_encode_in_tasks(spec.model_folder, spec.num_cpus))
    except DocumentError as error:
        fault = Fault(stage=error.stage, reason=error.reason, error=str(error), needs=error.needs)
    except (LongdocError, MemoryError, OSError):
        raise
    except Exception as error:
        fault = unforeseen("read", error)
    else:
        return (summary, *works)
    return (fault, *([None] * spec.num_ranks))


def unforeseen(stage: str, error: Exception) -> Fault:
    """The fault of a document that trips over a mistake in longdoc."""
    return Fault(
        stage=stage,
        reason="internal_error",
        error=f"{type(error).__name__}: {error}. This is a fault in longdoc; please report it with this document.",
    )


def start_ingest(ref: DocumentRef, spec: IngestSpec, shape: ModelShape) -> list[Any]:
    """Start the task; returns 1 + num_ranks references: the summary, and each rank's work."""
    task = _task(ingest).options(num_returns=1 + spec.num_ranks, **_here(spec.num_cpus))
    references: list[Any] = task.remote(ref, spec, shape)
    return references


def encode_texts(model_folder: str, texts: Sequence[str]) -> list[Int32s]:
    """Encode pieces of text in this process."""
    return encode_all(Vocabulary.load(Path(model_folder)), [text.encode("utf-8") for text in texts])


@functools.cache
def _task(function: Callable[..., Any]) -> Any:
    import ray

    return ray.remote(max_retries=0)(function)


def _here(num_cpus: float) -> dict[str, Any]:
    """Options of a task: on this node, where the source and the model are, reserving so many cores."""
    import ray

    return {"num_cpus": num_cpus, "scheduling_strategy": pinned(ray.get_runtime_context().get_node_id())}


def _encode_in_tasks(model_folder: str, num_cpus: float) -> EncodePieces:
    def encode_pieces(texts: Sequence[str]) -> list[Int32s]:
        if sum(map(len, texts)) < PARALLEL_CHARS:
            return encode_texts(model_folder, texts)
        return list(_in_window(_task(encode_texts).options(**_here(num_cpus)), model_folder, batch_texts(texts)))

    return encode_pieces


def _in_window(task: Any, model_folder: str, batches: Iterator[list[str]]) -> Iterator[Int32s]:
    """The batches' results in order, with at most PARALLEL_TASKS under way."""
    under_way: list[Any] = []
    for batch in batches:
        if len(under_way) == PARALLEL_TASKS:
            yield from result(under_way.pop(0), "encoding a piece of text")
        under_way.append(task.remote(model_folder, batch))
    for reference in under_way:
        yield from result(reference, "encoding a piece of text")
