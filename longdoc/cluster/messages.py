"""What travels between the driver, the readers and the ranks. Plain and small: never a tensor of a document."""

from collections.abc import Callable
from dataclasses import dataclass

from longdoc.cluster.placement import INGEST_CPUS
from longdoc.model.conventions import EmbeddingConvention
from longdoc.model.positions import ContextExtension, ExtensionMode, TrainedPositions
from longdoc.records import Document, RowIdentity, TokenSequence
from longdoc.ring.layout import LayoutKind
from longdoc.store.schemas import OutputIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSpec:
    """How documents are read and cut for one ring, whose ranks have so much memory.

    `prompt_token_ids` stand before every document, after the tokenizer's own first tokens.
    """

    model_folder: str
    span_tokens: int
    layout: LayoutKind
    num_ranks: int
    context_extension: ExtensionMode
    positions: TrainedPositions
    prompt_token_ids: tuple[int, ...]
    with_text: bool
    capacity: Callable[[int], int]
    most_ranks: int
    #: Cores that one reading or encoding task reserves.
    num_cpus: float = INGEST_CPUS


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentSummary:
    """What the driver learns of a document that was read: the documents row's facts, and counts to check against."""

    title: str | None
    authors: tuple[str, ...]
    language: str | None
    identifiers: tuple[str, ...]
    publisher: str | None
    date: str | None
    warnings: tuple[str, ...]
    revision: str | None
    commit_id: str | None
    num_bytes_source: int
    num_bytes_text: int
    num_tokens: int
    num_model_tokens: int
    num_segments: int
    num_spans: int
    text_sha256: str
    tokens_sha256: str
    prefix_token_ids: tuple[int, ...]
    suffix_token_ids: tuple[int, ...]
    extension: ContextExtension

    @classmethod
    def of(
        cls, document: Document, sequence: TokenSequence, *, num_spans: int, extension: ContextExtension
    ) -> "DocumentSummary":
        """The summary of a document and its tokens."""
        return cls(
            title=document.title,
            authors=document.authors,
            language=document.language,
            identifiers=document.identifiers,
            publisher=document.publisher,
            date=document.date,
            warnings=document.warnings,
            revision=document.revision,
            commit_id=document.commit_id,
            num_bytes_source=document.num_bytes_source,
            num_bytes_text=len(document.text),
            num_tokens=sequence.num_tokens,
            num_model_tokens=sequence.num_model_tokens,
            num_segments=len(document.segments),
            num_spans=num_spans,
            text_sha256=document.text_sha256,
            tokens_sha256=sequence.tokens_sha256,
            prefix_token_ids=sequence.prefix_token_ids,
            suffix_token_ids=sequence.suffix_token_ids,
            extension=extension,
        )


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Place:
    """Where a rank runs: the node, then the physical GPU there. Ranks are ordered by it, so that neighbours are near.

    GPUs are numbers, or UUIDs where they are named so; `gpu` is (length, name), since shorter numbers are smaller.
    `host` is Ray's address of the node.
    """

    node_id: str
    gpu: tuple[int, str]
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeJob:
    """One document's forward pass, as every rank of the ring gets it."""

    identity: RowIdentity
    output: OutputIdentity
    staging: str
    unit: str
    display_name: str
    extension: ContextExtension
    metadata: dict[str, str]
    convention: EmbeddingConvention
    timeout_seconds: float
    stall_seconds: float
