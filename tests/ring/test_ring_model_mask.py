"""What mask a model's mask function is, found by asking it, and masks that are more than distances refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers.masking_utils import (
    and_masks,
    bidirectional_mask_function,
    causal_mask_function,
    chunked_causal_mask_function,
    or_masks,
    packed_sequence_mask_function,
    sliding_window_bidirectional_mask_function,
    sliding_window_causal_mask_function,
)

from longdoc.errors import ModelError
from longdoc.ring.mask import BIDIRECTIONAL, CAUSAL, Mask
from longdoc.ring.model_mask import ModelMask

MaskFunction = Callable[..., Any]
LARGE = 3_000_000


@pytest.mark.parametrize(
    ("mask_function", "mask"),
    [
        (causal_mask_function, CAUSAL),
        (bidirectional_mask_function, BIDIRECTIONAL),
        (lambda b, h, q, k: torch.tensor(True), BIDIRECTIONAL),
        *[
            (sliding_window_causal_mask_function(window), Mask(left=window - 1, right=0))
            for window in (1, 2, 3, 128, 4096, 100_003, LARGE)
        ],
        # Here transformers' windows are distances up to and including the number.
        *[
            (sliding_window_bidirectional_mask_function(reach), Mask(left=reach, right=reach))
            for reach in (0, 1, 64, 511, LARGE)
        ],
        # Gemma 3 as an encoder: a causal window, or a bidirectional one of the same size.
        (
            or_masks(sliding_window_causal_mask_function(257), lambda b, h, q, k: abs(q - k) < 257),
            Mask(left=256, right=256),
        ),
        (lambda b, h, q, k: (q - k < 100) & (k - q <= 7), Mask(left=99, right=7)),
    ],
)
def test_a_mask_of_distances_is_found_exactly(mask_function: MaskFunction, mask: Mask) -> None:
    assert ModelMask(mask_function, torch.ones(1, 9, dtype=torch.bool)).mask() == mask


@pytest.mark.parametrize(
    "mask_function",
    [
        *[chunked_causal_mask_function(size, torch.zeros(1, dtype=torch.int64)) for size in (100, 8192, LARGE)],
        lambda b, h, q, k: k < q,
        lambda b, h, q, k: (k <= q) & (k >= q - 5000) & ((q - k) % 2 == 0),
        lambda b, h, q, k: (k <= q) | (k < 100),
        lambda b, h, q, k: (k <= q) & ((k > q - 512) | (k < 4)),
        and_masks(causal_mask_function, lambda b, h, q, k: q < 5_000_000),
    ],
    ids=["chunk", "large chunk", "huge chunk", "strictly before", "dilated", "prefix", "first tokens", "end"],
)
def test_a_mask_that_is_more_than_one_stretch_of_distances_is_refused(
    mask_function: MaskFunction,
) -> None:
    with pytest.raises(ModelError, match=r"the model's attention (depends on more than distances|hides the token)"):
        ModelMask(mask_function, None).mask()


def test_the_refusal_names_the_first_pair_that_is_wrong() -> None:
    mask_function = chunked_causal_mask_function(8192, torch.zeros(1, dtype=torch.int64))
    with pytest.raises(ModelError) as refusal:
        ModelMask(mask_function, None).mask()
    # Far from the start, at the place that is asked about, the query sees its chunk's tokens before it.
    window = (2**30 + 1 + 12_345_679) % 8192 + 1
    assert str(refusal.value) == (
        "the model's attention depends on more than distances: far from the start it looks causal with a window of"
        f" {window}, but it shows the token at 0 to the one at {window}; choose another model (see `longdoc models"
        " list`)"
    )


def test_packed_documents_and_padding_are_refused() -> None:
    packed = and_masks(causal_mask_function, packed_sequence_mask_function(torch.tensor([[0, 0, 1, 1]])))
    with pytest.raises(ModelError, match="depends on more than distances, for example on packed documents: IndexError"):
        ModelMask(packed, None).mask()
    with pytest.raises(ModelError, match="padding cannot run on the ring"):
        ModelMask(causal_mask_function, torch.tensor([[False, True]])).mask()


def test_a_mask_function_is_asked_once() -> None:
    num_calls = 0

    def counting(b: Any, h: Any, q: Any, k: Any) -> Any:
        nonlocal num_calls
        num_calls += 1
        return k <= q

    mask = ModelMask(counting, None)
    assert mask.mask() == CAUSAL
    first = num_calls
    assert mask.mask() == CAUSAL
    assert num_calls == first > 0
