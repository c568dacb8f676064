"""What a ring writes equals one plain transformers pass, for every ring and layout: rows, not only attention."""

import re
import threading

import numpy as np
import pytest
import torch
from loopback_path import compute, make_case, make_engine, plain_answer

from longdoc.errors import PeerLostError
from longdoc.model.conventions import EmbeddingConvention
from longdoc.model.positions import ContextExtension
from longdoc.reporting import Fault

RINGS = [
    (1, "zigzag"),
    (2, "zigzag"),
    (3, "zigzag"),
    (4, "zigzag"),
    (7, "zigzag"),
    (2, "contiguous"),
    (7, "contiguous"),
]


def columns(table, *names):
    return [np.asarray(table[name].to_pylist(), dtype=np.float64) for name in names]


def assert_rows_equal(written, case, answer, *, logprob_tolerance, state_tolerance):
    tokens, spans, segments = (written.tables[table] for table in ("tokens", "spans", "segments"))
    assert tokens["position"].to_pylist() == list(range(case.sequence.num_tokens))
    assert tokens["token_id"].to_pylist() == case.sequence.token_ids.tolist()
    assert tokens["text_byte_start"].to_pylist() == case.sequence.byte_starts[:-1].tolist()
    logprob, entropy, rank = columns(tokens, "logprob", "entropy", "rank_in_vocabulary")
    np.testing.assert_allclose(logprob, answer.logprob, rtol=0, atol=logprob_tolerance)
    np.testing.assert_allclose(entropy, answer.entropy, rtol=0, atol=logprob_tolerance)
    scored = ~np.isnan(answer.logprob)
    assert (answer.lowest_rank[scored] <= rank[scored]).all()
    assert (rank[scored] <= answer.highest_rank[scored]).all()
    assert np.isnan(rank).tolist() == np.isnan(answer.logprob).tolist()

    assert "".join(spans["text"].to_pylist()).encode() == case.document.text
    for span, row in zip(case.spans, spans.to_pylist(), strict=True):
        own = slice(span.token_start, span.token_stop)
        np.testing.assert_allclose(row["embedding"], answer.hidden[own].mean(axis=0), rtol=0, atol=state_tolerance)
        scores = answer.logprob[own][~np.isnan(answer.logprob[own])]
        assert row["mean_logprob"] == pytest.approx(scores.mean(), abs=logprob_tolerance)
        assert row["max_surprisal"] == pytest.approx((-scores).max(), abs=logprob_tolerance)
    starts = case.sequence.segment_starts
    for index, row in enumerate(segments.to_pylist()):
        own = answer.hidden[starts[index] : starts[index + 1]]
        np.testing.assert_allclose(row["embedding"], own.mean(axis=0), rtol=0, atol=state_tolerance)
    (facts,) = [receipt.facts for receipt in written.receipts if "mean_logprob" in receipt.facts]
    assert facts["mean_logprob"] == pytest.approx(np.nanmean(answer.logprob), abs=logprob_tolerance)
    np.testing.assert_allclose(facts["embedding"], answer.hidden.mean(axis=0), rtol=0, atol=state_tolerance)


@pytest.mark.parametrize(("num_ranks", "layout"), RINGS)
def test_rows_of_any_ring_equal_a_plain_forward_pass(tmp_path, case, engine, answer, num_ranks, layout):
    written = compute(case, engine, tmp_path, num_ranks=num_ranks, layout=layout)
    # The bound of a float64 model. Columns are float32, which rounds log-probs near -16 by up to 9.5e-7 alone.
    assert_rows_equal(written, case, answer, logprob_tolerance=1e-6, state_tolerance=1e-6)


@pytest.mark.parametrize("num_ranks", [1, 3])
@pytest.mark.parametrize(("prefix", "suffix"), [((1,), (2,)), ((1, 0), ()), ((), (2,))])
def test_special_tokens_around_a_document_are_seen_and_are_no_rows(
    tmp_path, tiny_model, case, engine, num_ranks, prefix, suffix
):
    special = case.with_special_tokens(prefix, suffix)
    written = compute(special, engine, tmp_path, num_ranks=num_ranks)
    expected = plain_answer(tiny_model, special, torch.float64)
    assert np.isnan(expected.logprob[0]) == (not prefix)
    assert_rows_equal(written, special, expected, logprob_tolerance=1e-6, state_tolerance=1e-6)


@pytest.mark.parametrize("num_tokens", [1, 2, 5])
def test_documents_with_fewer_tokens_than_ranks(tmp_path, tiny_model, engine, num_tokens):
    short = make_case(tiny_model, " the" * num_tokens)
    assert short.sequence.num_tokens == num_tokens
    written = compute(short, engine, tmp_path, num_ranks=7)
    expected = plain_answer(tiny_model, short, torch.float64)
    tokens = written.tables["tokens"]
    assert tokens["position"].to_pylist() == list(range(num_tokens))
    np.testing.assert_allclose(columns(tokens, "logprob")[0], expected.logprob, rtol=0, atol=1e-6)
    np.testing.assert_allclose(
        written.tables["spans"]["embedding"].to_pylist()[0], expected.hidden.mean(axis=0), atol=1e-6
    )


def test_a_document_of_one_token_has_a_row_and_no_score(tmp_path, tiny_model, engine):
    written = compute(make_case(tiny_model, " the"), engine, tmp_path, num_ranks=2)
    (row,) = written.tables["tokens"].to_pylist()
    assert (row["position"], row["logprob"], row["entropy"], row["rank_in_vocabulary"]) == (0, None, None, None)
    (span,) = written.tables["spans"].to_pylist()
    assert (span["mean_logprob"], span["max_surprisal"]) == (None, None)


def test_float32_stays_within_a_thousandth_of_a_nat(tmp_path, tiny_model, case, answer):
    written = compute(case, make_engine(tiny_model, torch.float32), tmp_path, num_ranks=3)
    (logprob,) = columns(written.tables["tokens"], "logprob")
    np.testing.assert_allclose(logprob, answer.logprob, rtol=0, atol=1e-3)


def test_last_token_pooling_takes_the_state_that_closes_a_span(tmp_path, case, engine, answer):
    written = compute(case, engine, tmp_path, num_ranks=3, convention=EmbeddingConvention(pooling="last"))
    found = np.asarray(written.tables["spans"]["embedding"].to_pylist())
    closing = [span.token_stop - 1 for span in case.spans]
    np.testing.assert_allclose(found, answer.hidden[closing], rtol=0, atol=1e-6)


def test_outputs_that_were_not_asked_for_are_not_written(tmp_path, case, engine, answer):
    scores_only = compute(case, engine, tmp_path / "a", num_ranks=2, outputs=("logprobs",))
    assert "embedding" not in scores_only.tables["spans"].column_names
    np.testing.assert_allclose(columns(scores_only.tables["tokens"], "logprob")[0], answer.logprob, atol=1e-6)
    vectors_only = compute(case, engine, tmp_path / "b", num_ranks=2, outputs=("embeddings",))
    assert vectors_only.tables["tokens"]["logprob"].null_count == case.sequence.num_tokens
    assert vectors_only.tables["spans"]["mean_logprob"].null_count == len(case.spans)
    found = np.asarray(vectors_only.tables["spans"]["embedding"].to_pylist())
    expected = [answer.hidden[span.token_start : span.token_stop].mean(axis=0) for span in case.spans]
    np.testing.assert_allclose(found, np.asarray(expected), rtol=0, atol=1e-6)


def test_states_that_are_not_finite_are_a_fault_of_the_document_on_every_rank(tmp_path, tiny_model, case):
    broken = make_engine(tiny_model, torch.float32)
    with torch.no_grad():
        broken.model.module.base_model.norm.weight[0] = torch.nan
    outcome = compute(case, broken, tmp_path, num_ranks=3)
    assert isinstance(outcome, Fault)
    assert (outcome.stage, outcome.reason) == ("forward", "not_finite")
    assert "from token 0 on" in outcome.error
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize("num_ranks", [1, 3])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_the_first_layer_and_token_that_are_not_finite_are_named_whoever_owns_them(
    tmp_path, tiny_model, case, num_ranks, value
):
    ids = case.sequence.token_ids.tolist()
    # The token whose first use comes last: everything before it is sound, everything after it is an echo.
    token_id = max(set(ids), key=ids.index)
    broken = make_engine(tiny_model, torch.float32)
    with torch.no_grad():
        broken.model.module.base_model.embed_tokens.weight[token_id, 5] = value
    outcome = compute(case.with_special_tokens((1,), ()), broken, tmp_path, num_ranks=num_ranks)
    assert outcome.error.endswith(
        f": queries, keys or values of layer 0 are NaN or infinite from token {ids.index(token_id)} on."
    )


def test_a_layer_that_breaks_is_named_and_not_the_ones_behind_it(tmp_path, tiny_model, case):
    broken = make_engine(tiny_model, torch.float32)
    with torch.no_grad():
        broken.model.module.base_model.layers[1].input_layernorm.weight[0] = torch.nan
    outcome = compute(case, broken, tmp_path, num_ranks=2)
    assert outcome.error.endswith(": queries, keys or values of layer 1 are NaN or infinite from token 0 on.")


@pytest.mark.parametrize("num_ranks", [1, 3])
@pytest.mark.parametrize("prefix", [(), (1,)])
def test_log_probabilities_that_are_not_finite_are_a_fault_and_no_empty_cells(
    tmp_path, tiny_model, case, monkeypatch, num_ranks, prefix
):
    broken, place = make_engine(tiny_model, torch.float32), 40 - 1 + len(prefix)
    sound, hidden = broken.model.logits, {}

    def states(token_ids_T, positions_T, plain=broken.model.hidden_states):
        found = plain(token_ids_T, positions_T)
        hidden[threading.get_ident()] = found[positions_T == place]
        return found

    def overflowing(hidden_TC):
        logits_TV = sound(hidden_TC)
        for wrong_C in hidden[threading.get_ident()]:
            logits_TV[(hidden_TC == wrong_C).all(dim=1), 5] = torch.inf
        return logits_TV

    monkeypatch.setattr(broken.model, "hidden_states", states)
    monkeypatch.setattr(broken.model, "logits", overflowing)
    outcome = compute(case.with_special_tokens(prefix, ()), broken, tmp_path, num_ranks=num_ranks)
    assert isinstance(outcome, Fault)
    assert outcome.error.endswith(": the log-probabilities of its output head are NaN or infinite from token 40 on.")
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_lost_peer_is_told_with_document_layer_hop_and_the_last_hop_that_was_done(tmp_path, case, engine):
    def leave_at_layer_1(layer, hop, num_hops):
        if layer == 1:
            raise PeerLostError("rank gone")

    with pytest.raises(PeerLostError) as loss:
        compute(case, engine, tmp_path, num_ranks=1, report=leave_at_layer_1)
    assert re.fullmatch(
        r".+: rank gone; it was at layer 1, hop 0 of 1 \(number 1\), last completed layer 0, hop 0 of 1 \(number 0\),"
        r" \d+\.\d s before",
        str(loss.value),
    )


def test_an_extension_changes_the_scores_and_leaves_nothing_behind(tmp_path, case, engine, answer):
    stretched = compute(case, engine, tmp_path / "a", num_ranks=2, extension=ContextExtension(kind="yarn", factor=4.0))
    (logprob,) = columns(stretched.tables["tokens"], "logprob")
    assert np.nanmax(np.abs(logprob - answer.logprob)) > 1e-3
    untouched = compute(case, engine, tmp_path / "b", num_ranks=2)
    assert_rows_equal(untouched, case, answer, logprob_tolerance=1e-6, state_tolerance=1e-6)
