"""Embedding models on a ring: their rows equal sentence-transformers' definition on one unsharded pass."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from embedding_models import encoder, eurobert, qwen3, states_of, unit
from loopback_path import BOOK, compute, make_case, make_engine
from safetensors.torch import load_file
from transformers import AutoModel

from longdoc.config import RunConfig
from longdoc.errors import ModelError
from longdoc.outputs.convention import configuration_of, convention_of, prompt_token_ids, settled
from longdoc.outputs.document_row import output_identity
from longdoc.tokenization.vocabulary import Vocabulary

TEXT = BOOK[: len(BOOK) // 3]
TOLERANCE = 1e-6


class Prepared:
    """A saved model, the configuration of a run with it, the document as it would be read, and the plain states."""

    def __init__(self, made, folder, tokenizer, text=TEXT, **options):
        self.notes = []
        self.model = made.save(folder, tokenizer)
        self.config = settled(RunConfig(output="out", model=str(folder), **options), self.model, self.notes.append)
        case = make_case(self.model, text)
        sequence = case.sequence
        self.prompt = prompt_token_ids(self.config, self.model)
        self.case = case.with_special_tokens((*sequence.prefix_token_ids, *self.prompt), sequence.suffix_token_ids)
        sequence = self.case.sequence
        ids = [*sequence.prefix_token_ids, *sequence.token_ids.tolist(), *sequence.suffix_token_ids]
        self.states = states_of(folder, ids)
        self.text = self.states[len(sequence.prefix_token_ids) : len(ids) - len(sequence.suffix_token_ids)]

    def written(self, tmp_path, *, num_ranks, layout="zigzag"):
        engine = make_engine(self.model, torch.float64)
        return compute(
            self.case,
            engine,
            tmp_path / "staging",
            num_ranks=num_ranks,
            layout=layout,
            outputs=self.config.chosen_outputs,
            convention=convention_of(self.config, self.model),
        )


@pytest.fixture
def prepared(tmp_path, tiny_model):
    def prepare(made, **options):
        return Prepared(made, tmp_path / "model", tiny_model.folder / "tokenizer.json", **options)

    return prepare


def assert_embeddings(written, case, *, span, document):
    """`span` and `document` map states to the expected embedding."""
    rows = written.tables["spans"].to_pylist()
    for piece, row in zip(case.spans, rows, strict=True):
        expected = span(piece.token_start, piece.token_stop)
        np.testing.assert_allclose(row["embedding"], expected, rtol=0, atol=TOLERANCE)
    starts = case.sequence.segment_starts
    for index, row in enumerate(written.tables["segments"].to_pylist()):
        expected = span(starts[index], starts[index + 1])
        np.testing.assert_allclose(row["embedding"], expected, rtol=0, atol=TOLERANCE)
    (facts,) = [receipt.facts for receipt in written.receipts if "embedding" in receipt.facts]
    np.testing.assert_allclose(facts["embedding"], document, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("num_ranks", "layout"), [(3, "zigzag"), (5, "contiguous")])
def test_an_encoder_with_mean_pooling(prepared, tmp_path, num_ranks, layout):
    made = prepared(encoder(pooling="mean_tokens"))
    assert (made.model.attention_direction, made.config.outputs) == ("bidirectional", ("embeddings",))
    assert made.notes == ["model is an encoder and has no log-probs: --outputs embeddings"]
    assert convention_of(made.config, made.model).label == "mean, normalized"
    written = made.written(tmp_path, num_ranks=num_ranks, layout=layout)
    assert_embeddings(
        written,
        made.case,
        span=lambda start, stop: unit(made.text[start:stop].mean(0)),
        document=unit(made.states.mean(0)),
    )
    tokens = written.tables["tokens"]
    assert tokens["logprob"].null_count == len(tokens) == made.case.sequence.num_tokens
    (facts,) = [receipt.facts for receipt in written.receipts if "mean_logprob" in receipt.facts]
    assert np.isnan(facts["mean_logprob"])


@pytest.mark.parametrize("num_ranks", [5])
def test_an_encoder_that_pools_its_first_token_does_so_for_the_document_alone(prepared, tmp_path, num_ranks):
    made = prepared(eurobert(pooling="cls_token", is_normalized=False))
    assert convention_of(made.config, made.model).label == "cls"
    written = made.written(tmp_path, num_ranks=num_ranks)
    assert_embeddings(
        written, made.case, span=lambda start, stop: made.text[start:stop].mean(0), document=made.states[0]
    )


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_a_model_that_pools_its_end_token_reads_its_prompt_once(prepared, tmp_path, num_ranks):
    made = prepared(qwen3(pooling="lasttoken", prompts={"query": "Instruct: find\nQuery: ", "document": "Text: "}))
    assert made.model.attention_direction == "causal"
    vocabulary = Vocabulary.load(made.model.folder)
    assert vocabulary.decode(made.case.sequence.prefix_token_ids) == b"Text: "
    assert len(made.case.sequence.suffix_token_ids) == 1
    written = made.written(tmp_path, num_ranks=num_ranks)
    assert_embeddings(
        written,
        made.case,
        span=lambda start, stop: unit(made.text[stop - 1]),
        document=unit(made.states[-1]),
    )


@pytest.mark.parametrize("pooling", ["mean_tokens", "lasttoken"])
def test_special_tokens_on_ranks_without_text_are_pooled_into_the_document(prepared, tmp_path, pooling):
    made = prepared(qwen3(pooling=pooling, prompts={"document": "Text: "}), text=" the")
    assert (made.case.sequence.num_tokens, len(made.states)) == (1, 4 + 1)
    written = made.written(tmp_path, num_ranks=5, layout="contiguous")
    expected = made.states[-1] if pooling == "lasttoken" else made.states.mean(0)
    assert_embeddings(written, made.case, span=lambda start, stop: unit(made.text[0]), document=unit(expected))


def test_linear_layers_change_the_width_of_every_embedding(prepared, tmp_path):
    made = prepared(qwen3(pooling="mean_tokens", prompts={"document": "title: none | text: "}, widths=(32, 40, 24)))
    convention = convention_of(made.config, made.model)
    assert convention.label == "mean, dense, normalized"
    assert output_identity(made.config, made.model).embedding_size == 24
    first, second = (
        load_file(made.model.folder / f"{at}_Dense" / "model.safetensors")["linear.weight"].double() for at in (2, 3)
    )

    def head(pooled):
        return unit(second @ (first @ pooled))

    written = made.written(tmp_path, num_ranks=3)
    assert_embeddings(
        written,
        made.case,
        span=lambda start, stop: head(made.text[start:stop].mean(0)),
        document=head(made.states.mean(0)),
    )


def test_a_forced_pooling_replaces_the_pooling_and_nothing_else(prepared, tmp_path):
    made = prepared(qwen3(pooling="lasttoken", prompts={"document": "Text: "}), pooling="mean")
    assert convention_of(made.config, made.model).label == "mean, normalized"
    written = made.written(tmp_path, num_ranks=2)
    assert_embeddings(
        written,
        made.case,
        span=lambda start, stop: unit(made.text[start:stop].mean(0)),
        document=unit(made.states.mean(0)),
    )


def test_a_plain_model_keeps_the_mean_of_its_text(tiny_model):
    config = settled(RunConfig(output="out"), tiny_model, lambda _: None)
    assert config.outputs == ("embeddings", "logprobs")
    convention = convention_of(config, tiny_model)
    assert (convention.label, convention.document_tokens, convention.prompt) == ("mean", "text", "")


def test_log_probs_of_an_encoder_are_refused(prepared):
    with pytest.raises(ModelError, match=r"an encoder, and encoders have no log-probs.*use --outputs embeddings"):
        prepared(encoder(pooling="mean_tokens"), outputs=("logprobs",))


def test_the_first_token_cannot_be_pooled_where_there_is_none(prepared):
    with pytest.raises(ModelError, match="pooling cls takes the first token's state, and its tokenizer puts none"):
        prepared(qwen3(pooling="cls_token"))


def test_a_convention_that_is_not_implemented_is_no_obstacle_to_scores(tmp_path, tiny_model):
    tokenizer = tiny_model.folder / "tokenizer.json"
    with pytest.raises(ModelError, match=r"pools max_tokens.*use --outputs logprobs"):
        Prepared(qwen3(pooling="max_tokens"), tmp_path / "a", tokenizer)
    made = Prepared(qwen3(pooling="max_tokens"), tmp_path / "b", tokenizer, outputs=("logprobs",))
    assert made.config.outputs == ("logprobs",)


def test_a_causal_model_saved_without_a_head_gives_embeddings_only(tmp_path, tiny_model):
    headless = replace(qwen3(pooling="lasttoken"), loader=AutoModel)
    made = Prepared(headless, tmp_path / "model", tiny_model.folder / "tokenizer.json")
    assert made.config.outputs == ("embeddings",)
    assert made.notes == ["model is saved without an output head and has no log-probs: --outputs embeddings"]


def test_what_changes_the_embeddings_changes_the_identity_of_a_document(prepared, tmp_path):
    made = prepared(qwen3(pooling="lasttoken", prompts={"document": "Text: "}))
    seen = {configuration_of(made.config, made.model)}

    def reconfigured(**options):
        config = RunConfig(output="out", **options)
        return configuration_of(settled(config, made.model, made.notes.append), made.model)

    assert reconfigured() in seen, "what is resolved counts, not how it was asked for"
    assert reconfigured(pooling="last") in seen
    for options in ({"pooling": "mean"}, {"outputs": ("logprobs",)}):
        found = reconfigured(**options)
        assert found not in seen
        seen.add(found)
    path = made.model.folder / "config_sentence_transformers.json"
    path.write_text(json.dumps({"prompts": {"document": "Passage: "}}))
    assert reconfigured() not in seen
    seen.add(reconfigured())
    modules = json.loads((made.model.folder / "modules.json").read_text())
    (made.model.folder / "modules.json").write_text(json.dumps(modules[:-1]))
    assert reconfigured() not in seen
    assert reconfigured(outputs=("logprobs",)) in seen, "a convention changes nothing where there are no embeddings"
