"""The documents row: what the driver knows of a finished document, from its summary and its receipts."""

import math
import sys
from collections.abc import Sequence
from typing import Any

from longdoc.config import RunConfig
from longdoc.model.local import LocalModel
from longdoc.outputs.convention import convention_of
from longdoc.records import DocumentRef, Receipt
from longdoc.store.schemas import OutputIdentity
from longdoc.tokenization.vocabulary import Vocabulary

_LARGEST_EXPONENT = math.log(sys.float_info.max)


def output_identity(config: RunConfig, model: LocalModel) -> OutputIdentity:
    """What the whole output holds: one model and one set of outputs."""
    return OutputIdentity(
        model=model.name,
        model_digest=model.digest,
        tokenizer_sha256=Vocabulary.load(model.folder).sha256,
        outputs=tuple(sorted(set(config.chosen_outputs))),
        embedding_size=convention_of(config, model).embedding_size(model.hidden_size)
        if "embeddings" in config.chosen_outputs
        else 0,
    )


def document_scores(receipts: Sequence[Receipt]) -> dict[str, Any]:
    """The document's own mean log-probability, perplexity and embedding, which one rank hands over."""
    (facts,) = [receipt.facts for receipt in receipts if "mean_logprob" in receipt.facts]
    mean = facts["mean_logprob"]
    scored = math.isfinite(mean)
    # Beyond e^709 a double overflows; such a model predicts nothing, and infinity says so.
    perplexity = math.exp(-mean) if scored and -mean < _LARGEST_EXPONENT else math.inf
    return {
        "mean_logprob": mean if scored else None,
        "perplexity": perplexity if scored else None,
        "embedding": facts["embedding"],
    }


def document_row(
    ref: DocumentRef,
    *,
    doc_key: str,
    attempt_id: str,
    run_id: str,
    summary: Any,
    receipts: Sequence[Receipt],
    config: RunConfig,
    model: LocalModel,
    model_check_error: float | None,
    seconds: float,
) -> dict[str, Any]:
    """Every column of the documents row but those that the store adds. `summary` is a `DocumentSummary`."""
    return {
        "doc_id": ref.doc_id,
        "doc_key": doc_key,
        "attempt_id": attempt_id,
        "kind": ref.kind,
        "source_uri": ref.source_uri,
        "revision": summary.revision,
        "commit_id": summary.commit_id,
        "title": summary.title,
        "authors": list(summary.authors),
        "language": summary.language,
        "identifiers": list(summary.identifiers),
        "publisher": summary.publisher,
        "date": summary.date,
        "warnings": list(summary.warnings),
        "num_bytes_source": summary.num_bytes_source,
        "num_bytes_text": summary.num_bytes_text,
        "num_tokens": summary.num_tokens,
        "text_sha256": summary.text_sha256,
        "tokens_sha256": summary.tokens_sha256,
        "model": model.name,
        "model_digest": model.digest,
        "model_check_error": model_check_error,
        "tokenizer_sha256": Vocabulary.load(model.folder).sha256,
        "prefix_token_ids": list(summary.prefix_token_ids),
        "suffix_token_ids": list(summary.suffix_token_ids),
        "dtype": config.resolved_dtype,
        "kernel": receipts[0].facts["kernel"],
        "ring_size": len(receipts),
        "layout": config.layout,
        "context_trained": model.context_trained,
        "context_extension": summary.extension.kind,
        "context_extension_factor": summary.extension.factor,
        "attention_direction": model.attention_direction,
        "pooling": convention_of(config, model).label if "embeddings" in config.chosen_outputs else None,
        "seconds": seconds,
        "tokens_per_second": summary.num_tokens / seconds,
        "run_id": run_id,
        **document_scores(receipts),
    }
