"""Forecasts by formula, and what they decide."""

import dataclasses

import pytest

from longdoc.errors import DocumentError
from longdoc.estimate import (
    ModelShape,
    bytes_per_rank,
    bytes_per_token,
    check_capacity,
    fits_now,
    forward_seconds_bound,
    smallest_ring,
    stall_seconds,
    tile_bytes,
)
from longdoc.model.layers import LayerShape

LAYER = LayerShape(num_heads=4, num_kv_heads=2, head_dim=16, value_dim=16, window=None)
SHAPE = ModelShape(
    hidden_size=100,
    intermediate_size=200,
    vocab_size=1000,
    layers=(LAYER, LAYER),
    num_parameters=1_000_000,
    num_active_parameters=800_000,
    value_bytes=4,
)
# Published sizes of Llama 3.1 8B.
LLAMA_8B = ModelShape(
    hidden_size=4096,
    intermediate_size=14_336,
    vocab_size=128_256,
    layers=(LayerShape(num_heads=32, num_kv_heads=8, head_dim=128, value_dim=128, window=None),) * 32,
    num_parameters=8_030_261_248,
    num_active_parameters=6_979_584_000,
    value_bytes=2,
)
# Of a token outside of the model: its row, its scores, its places.
ROW = 360


def test_a_llama_8b_token_takes_at_most_61_kb_on_a_ring_of_any_size():
    assert bytes_per_token(LLAMA_8B, 2) <= 61_000
    assert bytes_per_token(LLAMA_8B, 64) == bytes_per_token(LLAMA_8B, 2)
    assert bytes_per_token(LLAMA_8B, 1) < bytes_per_token(LLAMA_8B, 2)


def test_the_bytes_of_a_token_follow_the_stated_formulas():
    stream, queries, keys, angles = 100, 64, 32, 2 * 16
    rotating = 2 * stream + 4 * queries + 2 * keys + angles
    attending = 2 * stream + queries + 6 * keys + angles
    assert bytes_per_token(SHAPE, 2) == max(4 * rotating, 4 * attending + 4 * (64 + 3 * 4)) + ROW
    # Alone nothing travels, and positions are what takes most.
    assert bytes_per_token(SHAPE, 1) == 4 * rotating + ROW
    # With as many key heads as query heads it is what travels that counts.
    wide = dataclasses.replace(SHAPE, layers=(dataclasses.replace(LAYER, num_kv_heads=4),))
    attending = 2 * stream + queries + 6 * 64 + angles
    assert bytes_per_token(wide, 2) == 4 * attending + 4 * (64 + 3 * 4) + ROW


def test_the_widest_layer_decides():
    narrow = dataclasses.replace(LAYER, head_dim=8, value_dim=8)
    mixed = dataclasses.replace(SHAPE, layers=(narrow, LAYER, narrow))
    angles_of_a_second_kind = 4 * 2 * 8
    assert bytes_per_token(mixed, 2) == bytes_per_token(SHAPE, 2) + angles_of_a_second_kind


def test_short_documents_take_no_whole_tiles():
    with_head = bytes_per_rank(SHAPE, 1, 1)
    assert with_head - bytes_per_rank(dataclasses.replace(SHAPE, has_head=False), 1, 1) < 64 << 20


def test_memory_grows_with_tokens_a_rank_and_with_nothing_else():
    grown = bytes_per_rank(SHAPE, 2_000_000, 4) - bytes_per_rank(SHAPE, 1_000_000, 4)
    # A CPU's allocator holds 1.4 bytes for one that is alive.
    assert grown == pytest.approx(1.4 * 250_000 * bytes_per_token(SHAPE, 4))
    on_cuda = dataclasses.replace(SHAPE, device="cuda")
    grown = bytes_per_rank(on_cuda, 2_000_000, 4) - bytes_per_rank(on_cuda, 1_000_000, 4)
    assert grown == 250_000 * bytes_per_token(SHAPE, 4)
    assert bytes_per_rank(SHAPE, 1_000_000, 2) == bytes_per_rank(SHAPE, 2_000_000, 4)


def test_the_smallest_ring_is_the_first_that_fits_all_its_ranks():
    # On one machine a second rank only adds its fixed part, so the smallest ring that fits at all is a ring of one.
    assert smallest_ring(SHAPE, 10_000_000, lambda n: bytes_per_rank(SHAPE, 10_000_000, 1) // n, most=8) == 1
    assert smallest_ring(SHAPE, 10_000_000, lambda n: 1, most=8) is None
    # Ranks with memory of their own: five of a fifth each fit where four of a quarter do not.
    own = bytes_per_rank(SHAPE, 10_000_000, 5)
    assert smallest_ring(SHAPE, 10_000_000, lambda n: own, most=8) == 5
    assert smallest_ring(SHAPE, 10_000_000, lambda n: own, most=4) is None


def test_over_capacity_names_the_numbers_and_what_would_fit():
    capacity = bytes_per_rank(SHAPE, 1000, 2)
    check_capacity(SHAPE, 1000, 2, lambda n: capacity, most=8, name="a.txt")
    with pytest.raises(
        DocumentError, match=r"a\.txt: 9,000 tokens need .* on each of 2 ranks.* about 1,000 tokens"
    ) as e:
        check_capacity(SHAPE, 9000, 2, lambda n: capacity, most=8, name="a.txt")
    assert (e.value.stage, e.value.reason) == ("plan", "over_capacity")
    assert str(e.value).endswith("Use a machine with more memory.")
    with pytest.raises(DocumentError, match=r"Use --ring-size 1, which fits here\.$"):
        check_capacity(SHAPE, 9000, 2, lambda n: bytes_per_rank(SHAPE, 9000, 1) // n, most=8, name="a.txt")
    assert not fits_now(e.value.needs, SHAPE, 2, capacity)
    assert fits_now(e.value.needs, SHAPE, 18, capacity)
    assert fits_now(e.value.needs, SHAPE, 2, bytes_per_rank(SHAPE, 9000, 2))
    assert not fits_now("a miracle", SHAPE, 2, 1 << 60)


def test_patience_grows_with_the_square_of_the_tokens():
    long, short = (forward_seconds_bound(SHAPE, tokens, 2) for tokens in (200_000, 100_000))
    assert 3.8 < long / short < 4
    assert forward_seconds_bound(SHAPE, 100_000, 4) == pytest.approx(short / 2)


def test_patience_has_a_floor_and_a_ceiling():
    assert forward_seconds_bound(SHAPE, 1, 1) == stall_seconds(SHAPE, 1, 1) == 120
    assert forward_seconds_bound(SHAPE, 10**9, 1) == 86_400
    assert 120 < stall_seconds(SHAPE, 10**7, 1) < 86_400


def test_on_cuda_no_process_counts():
    on_cuda = dataclasses.replace(SHAPE, device="cuda")
    # The weights, and a kernel's workspace beside one token.
    assert bytes_per_rank(on_cuda, 1, 1) == 4_000_000 + (512 << 20) + bytes_per_token(SHAPE, 1)


def test_tiles_shrink_where_a_rank_has_little_memory():
    assert tile_bytes(64 << 30) == 32 << 20
    assert tile_bytes(2 << 30) == 16 << 20
    assert tile_bytes(0) == 4 << 20
    assert tile_bytes(64 << 30, "cuda") == 512 << 20


def test_wider_numbers_need_more():
    assert bytes_per_token(dataclasses.replace(SHAPE, value_bytes=8), 2) > bytes_per_token(SHAPE, 2)
