"""The drawn model: the same bits everywhere, and attention that decides."""

import json
import math

import numpy as np
import pytest
import torch

from longdoc.model.load import load_model
from longdoc.model.local import LocalModel
from longdoc.model.tiny import tiny_config, tiny_tensors


def test_weights_follow_from_the_raw_words_of_pcg64() -> None:
    tensors = {tensor.name: tensor.make() for tensor in tiny_tensors(50, seed=1)}
    words = [int(word) for word in np.random.PCG64(1).random_raw(50 * 32)]
    scale = 0.25 / math.sqrt(4 * (65_536**2 - 1) / 12)
    drawn = [(sum((word >> shift) & 0xFFFF for shift in (0, 16, 32, 48)) - 131_070) * scale for word in words]
    wanted = np.array(drawn, dtype=np.float32).reshape(50, 32)
    np.testing.assert_array_equal(tensors["model.embed_tokens.weight"], wanted)
    np.testing.assert_array_equal(tensors["model.norm.weight"], np.ones(32, np.float32))


def test_matrices_vary_by_a_quarter_and_no_two_are_alike() -> None:
    matrices = [tensor.make() for tensor in tiny_tensors(5000, seed=2) if len(tensor.shape) == 2]
    assert len({matrix.tobytes() for matrix in matrices}) == len(matrices) == 15
    assert matrices[0].std() == pytest.approx(0.25, rel=0.01)
    assert matrices[0].mean() == pytest.approx(0, abs=0.01)


def test_the_shape_is_the_documented_one(tiny_model: LocalModel) -> None:
    assert (tiny_model.hidden_size, tiny_model.num_layers, tiny_model.num_heads) == (32, 2, 2)
    assert (tiny_model.num_kv_heads, tiny_model.head_dim, tiny_model.intermediate_size) == (1, 16, 64)
    assert (tiny_model.vocab_size, tiny_model.context_trained) == (49_152, 8192)
    assert json.loads((tiny_model.folder / "config.json").read_bytes()) == tiny_config(49_152)


def test_its_tokenizer_is_the_default_models(tiny_model: LocalModel, default_model: LocalModel) -> None:
    ours, theirs = (model.folder / "tokenizer.json" for model in (tiny_model, default_model))
    assert ours.read_bytes() == theirs.read_bytes()


def test_shuffling_what_stands_early_changes_what_is_predicted_late(tiny_model: LocalModel) -> None:
    model = load_model(tiny_model, dtype=torch.float32, attention="sdpa")
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 49_152, (1024,), generator=generator)
    shuffled = ids.clone()
    shuffled[:512] = ids[:512][torch.randperm(512, generator=generator)]
    positions = torch.arange(1024)
    logprobs = [
        torch.log_softmax(model.logits(model.hidden_states(sequence, positions)[-64:-1]), dim=-1)
        .gather(1, ids[-63:, None])
        .squeeze(1)
        for sequence in (ids, shuffled)
    ]
    # A model whose attention is near uniform would not see the order; a fifth of a nat is far above rounding (1e-5).
    assert float((logprobs[0] - logprobs[1]).abs().mean()) > 0.05
    assert float(logprobs[0].std()) > 0.5
