"""Fixtures of the tests of the ring."""

from collections.abc import Callable, Iterator

import pytest
import torch


@pytest.fixture
def set_threads() -> Iterator[Callable[[int], None]]:
    """Set the number of torch's threads; what it was comes back after the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
