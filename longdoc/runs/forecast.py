"""What a document would need: tokens, memory of each rank, the smallest ring that fits, seconds. Computes nothing."""

from dataclasses import dataclass

from longdoc.cluster.ingest import read_tokens
from longdoc.cluster.placement import RingSpec
from longdoc.config import RunConfig
from longdoc.errors import DocumentError
from longdoc.estimate import ModelShape, bytes_per_rank, check_capacity, smallest_ring
from longdoc.forecasting.costs import Rates, document_seconds
from longdoc.model.local import LocalModel
from longdoc.model.positions import choose_extension
from longdoc.outputs.convention import prompt_token_ids
from longdoc.outputs.spans import plan_spans
from longdoc.records import DocumentRef
from longdoc.ring.layout import Layout
from longdoc.runs.setup import capacity_of
from longdoc.tokenization.pool import EncodingPool


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentForecast:
    """One document's needs. `smallest_ring` is None where no ring of this machine holds the document.

    `seconds` are those that the document's row will state, None where this machine's rates are not known.

    `problem` says why a run would quarantine the document; the counts are then as far as they are known.
    """

    source_uri: str
    num_bytes_source: int
    num_tokens: int | None = None
    num_segments: int | None = None
    num_spans: int | None = None
    context_extension: str | None = None
    context_extension_factor: float | None = None
    ring_size: int
    bytes_per_rank: int | None = None
    smallest_ring: int | None = None
    seconds: float | None = None
    problem: str | None = None


def forecast(
    ref: DocumentRef,
    config: RunConfig,
    model: LocalModel,
    ring: RingSpec,
    rates: Rates | None = None,
    pool: EncodingPool | None = None,
) -> DocumentForecast:
    """Read and encode one document, in a pool where there is one, and apply the formulas to it."""
    known: dict[str, object] = {}
    try:
        document, sequence = read_tokens(ref, str(model.folder), prompt_token_ids(config, model), pool=pool)
        shape = ModelShape.of(model, config.resolved_dtype, ring.device)
        num_tokens = sequence.num_model_tokens
        known |= {
            "num_tokens": sequence.num_tokens,
            "num_segments": len(document.segments),
            "num_spans": len(plan_spans(document, sequence, config.span_tokens)),
            "bytes_per_rank": bytes_per_rank(shape, num_tokens, ring.num_ranks),
            "smallest_ring": smallest_ring(shape, num_tokens, capacity_of(ring), most=ring.most_ranks),
        }
        if rates is not None:
            layout = Layout(kind=config.layout, num_tokens=num_tokens, num_ranks=ring.num_ranks)
            with_scores = "logprobs" in config.chosen_outputs
            known["seconds"] = document_seconds(shape, rates, layout, with_scores=with_scores)
        extension = choose_extension(config.context_extension, num_tokens, model.positions)
        known |= {"context_extension": extension.kind, "context_extension_factor": extension.factor}
        check_capacity(shape, num_tokens, ring.num_ranks, capacity_of(ring), most=ring.most_ranks, name=ref.source_uri)
    except DocumentError as error:
        known["problem"] = str(error)
    return DocumentForecast(
        source_uri=ref.source_uri,
        num_bytes_source=ref.num_bytes_source,
        ring_size=ring.num_ranks,
        **known,  # type: ignore[arg-type]  # filled in step by step, so that a fault keeps what was known
    )
