"""Scores of the next token, against their definitions in float64."""

import math

import pytest
import torch

from longdoc.outputs.scores import score_places, score_tile


def test_a_uniform_distribution_has_the_entropy_of_its_size():
    logprob, entropy, rank = score_tile(torch.zeros(1, 8), torch.tensor([3]))
    assert logprob.item() == pytest.approx(-math.log(8))
    assert entropy.item() == pytest.approx(math.log(8))
    assert rank.item() == 1


def test_a_certain_choice_has_no_entropy_and_no_surprise():
    logits = torch.tensor([[0.0, 1e4, 0.0]])
    logprob, entropy, rank = score_tile(logits, torch.tensor([1]))
    assert (logprob.item(), entropy.item(), rank.item()) == (0.0, 0.0, 1)


def test_an_impossible_choice_is_finite_and_ranked_last():
    logprob, entropy, rank = score_tile(torch.tensor([[0.0, 1e4, 1.0]]), torch.tensor([0]))
    assert logprob.item() == -1e4
    assert entropy.item() == 0.0
    assert rank.item() == 3


@pytest.mark.parametrize("tile_bytes", [1, 4 * 50 * 3, 1 << 20])
def test_tiles_of_any_size_give_the_same_scores(tile_bytes):
    generator = torch.Generator().manual_seed(7)
    hidden = torch.randn(11, 6, generator=generator)
    head = torch.randn(6, 50, generator=generator)
    places = torch.tensor([0, 2, 3, 9, 10])
    labels = torch.tensor([4, 49, 0, 7, 7])
    scores = score_places(hidden, places, labels, lambda h: h @ head, vocab_size=50, tile_bytes=tile_bytes)
    probs = torch.softmax((hidden.double() @ head.double())[places], dim=1)
    chosen = probs.gather(1, labels[:, None])
    torch.testing.assert_close(scores.logprob.double(), chosen[:, 0].log(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(scores.entropy.double(), -(probs * probs.log()).sum(1), rtol=1e-5, atol=1e-5)
    assert scores.rank.tolist() == (1 + (probs > chosen).sum(1)).tolist()


def test_nothing_to_score_gives_nothing():
    scores = score_places(torch.zeros(0, 4), torch.empty(0).long(), torch.empty(0).long(), lambda h: h, vocab_size=4)
    assert len(scores.logprob) == len(scores.entropy) == len(scores.rank) == 0
