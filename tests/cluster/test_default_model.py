"""The default model on a ring of two, against one plain transformers process, on 4,096 tokens of a real text."""

from pathlib import Path

import numpy as np
import torch
from loopback_path import compute, make_case, make_engine, plain_answer

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "the-lighthouse-ledger.md"
NUM_TOKENS = 4096


def test_the_default_model_in_float32_on_a_ring_equals_one_process(tmp_path, default_model):
    whole = make_case(default_model, SAMPLE.read_text(encoding="utf-8"))
    cut = int(whole.sequence.byte_starts[NUM_TOKENS])
    text = whole.document.text[:cut].decode("utf-8", errors="ignore")
    case = make_case(default_model, text)
    assert abs(case.sequence.num_tokens - NUM_TOKENS) <= 4
    written = compute(case, make_engine(default_model, torch.float32), tmp_path, num_ranks=2)
    expected = plain_answer(default_model, case, torch.float32)
    tokens = written.tables["tokens"].to_pylist()
    logprob = np.asarray([np.nan if row["logprob"] is None else row["logprob"] for row in tokens])
    np.testing.assert_allclose(logprob, expected.logprob, rtol=0, atol=1e-3)
    # A trained model on plain prose: a real model was run, on the right text.
    assert 2.0 < -np.nanmean(logprob) < 4.5
    spans = np.asarray(written.tables["spans"]["embedding"].to_pylist())
    means = [expected.hidden[span.token_start : span.token_stop].mean(axis=0) for span in case.spans]
    np.testing.assert_allclose(spans, np.asarray(means), rtol=0, atol=2e-3)
