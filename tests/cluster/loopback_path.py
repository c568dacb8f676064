"""A small document and its exact answers from one plain forward pass, for every test of the path behind the rings."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from transformers import AutoModelForCausalLM

from connectors.text import read_book
from longdoc.cluster.compute import Engine, compute_document
from longdoc.cluster.messages import ComputeJob
from longdoc.model.conventions import EmbeddingConvention
from longdoc.model.load import load_model
from longdoc.model.positions import ContextExtension
from longdoc.outputs.spans import plan_spans
from longdoc.outputs.work import build_work
from longdoc.records import Document, Receipt, RowIdentity, Span, TokenSequence
from longdoc.reporting import Fault
from longdoc.ring.exchange.loopback import run_ranks
from longdoc.ring.kernels import choose_kernel
from longdoc.ring.layout import Layout
from longdoc.store.schemas import OutputIdentity
from longdoc.tokenization.encode import encode_document
from longdoc.tokenization.vocabulary import Vocabulary

BOOK = (
    "CHAPTER I. The Count\r\n\r\nThere were 212 steps, and the keeper — Öre’s keeper — counted them.\r\n\r\n"
    "“Two hundred and eleven,” said the Board. 🕯 She wrote: 1 gill, 1 brig, 9 hands.\r\n\r\n"
    "CHAPTER II. The Storm\r\n\r\nThe lamp φάρος burned until 4:20; then rain, then rain again, and no ship.\r\n"
) * 3
SPAN_TOKENS = 16
NEARLY_EQUAL = 1e-5
UNIT = "ab" * 32
PLAIN_MEAN = EmbeddingConvention()


@dataclass(frozen=True, kw_only=True)
class Case:
    """A document, its tokens and its spans."""

    document: Document
    sequence: TokenSequence
    spans: tuple[Span, ...]

    def with_special_tokens(self, prefix: tuple[int, ...], suffix: tuple[int, ...]) -> "Case":
        return replace(self, sequence=replace(self.sequence, prefix_token_ids=prefix, suffix_token_ids=suffix))


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One plain forward pass: states of the text tokens, and the scores of each (NaN where nothing precedes).

    Norms compute in float32 inside, so logits that are nearly equal may change places: a rank is a range.
    """

    hidden: np.ndarray
    logprob: np.ndarray
    entropy: np.ndarray
    lowest_rank: np.ndarray
    highest_rank: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Written:
    """What the ranks of a ring handed back and wrote."""

    receipts: list[Receipt]
    tables: dict[str, pa.Table]


def make_case(model, text: str = BOOK) -> Case:
    document = read_book(text.encode(), path=Path("/books/count.txt"))
    sequence = encode_document(document, Vocabulary.load(model.folder))
    return Case(document=document, sequence=sequence, spans=plan_spans(document, sequence, SPAN_TOKENS))


def make_engine(model, dtype: torch.dtype) -> Engine:
    name, kernel = choose_kernel("torch", "cpu")
    return Engine(model=load_model(model, dtype=dtype), kernel=kernel, kernel_name=name)


def identity_of(model, outputs=("embeddings", "logprobs"), convention=PLAIN_MEAN) -> OutputIdentity:
    return OutputIdentity(
        model=model.name,
        model_digest=model.digest,
        tokenizer_sha256=Vocabulary.load(model.folder).sha256,
        outputs=outputs,
        embedding_size=convention.embedding_size(model.hidden_size) if "embeddings" in outputs else 0,
    )


def compute(
    case: Case,
    engine: Engine,
    staging: Path,
    *,
    num_ranks: int,
    layout: str = "zigzag",
    outputs=("embeddings", "logprobs"),
    convention: EmbeddingConvention = PLAIN_MEAN,
    extension: ContextExtension | None = None,
    report=lambda *place: None,
) -> Written | Fault:
    """The whole path behind a ring, by loopback."""
    tokens = Layout(kind=layout, num_tokens=case.sequence.num_model_tokens, num_ranks=num_ranks)
    works = build_work(case.document, case.sequence, case.spans, tokens, with_text=True)
    staging.mkdir(exist_ok=True)
    job = ComputeJob(
        identity=RowIdentity(doc_id="file:/books/count.txt", doc_key=UNIT, attempt_id="cd" * 16),
        output=identity_of(engine.model.local, outputs, convention),
        staging=str(staging),
        unit=UNIT,
        display_name="count.txt",
        extension=extension or ContextExtension(),
        metadata={"run_id": "run"},
        convention=convention,
        timeout_seconds=60.0,
        stall_seconds=60.0,
    )
    outcomes = run_ranks(
        num_ranks,
        lambda exchange: compute_document(engine, exchange, job, works[exchange.rank], report=report),
    )
    if any(isinstance(outcome, Fault) for outcome in outcomes):
        assert len(set(outcomes)) == 1
        return outcomes[0]
    order = {"tokens": "position", "spans": "span_index", "segments": "segment_index"}
    return Written(
        receipts=outcomes,
        tables={
            table: pa.concat_tables(
                pq.ParquetFile(staging / part.path).read()
                for outcome in outcomes
                for part in outcome.parts
                if part.table == table
            ).sort_by(column)
            for table, column in order.items()
        },
    )


def plain_answer(model, case: Case, dtype: torch.dtype) -> Answer:
    """The same document through transformers alone: one process, logits of every place at once."""
    plain = AutoModelForCausalLM.from_pretrained(
        model.folder, dtype=dtype, attn_implementation="sdpa", local_files_only=True
    ).eval()
    sequence = case.sequence
    prefix = len(sequence.prefix_token_ids)
    ids = torch.tensor([*sequence.prefix_token_ids, *sequence.token_ids.tolist(), *sequence.suffix_token_ids])
    with torch.no_grad():
        output = plain(input_ids=ids[None], output_hidden_states=True, use_cache=False)
    logprobs = torch.log_softmax(output.logits[0].double(), dim=-1)
    places = torch.arange(prefix, prefix + sequence.num_tokens) - 1
    scored = logprobs[places.clamp(min=0)]
    chosen = scored.gather(1, ids[prefix : prefix + sequence.num_tokens, None])
    nothing_before = (places < 0).numpy()
    return Answer(
        hidden=output.hidden_states[-1][0, prefix : prefix + sequence.num_tokens].double().numpy(),
        logprob=np.where(nothing_before, np.nan, chosen[:, 0].numpy()),
        entropy=np.where(nothing_before, np.nan, -(scored.exp() * scored).sum(1).numpy()),
        lowest_rank=1 + (scored > chosen + NEARLY_EQUAL).sum(1).numpy(),
        highest_rank=1 + (scored > chosen - NEARLY_EQUAL).sum(1).numpy(),
    )
