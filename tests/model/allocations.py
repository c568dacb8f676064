"""What torch keeps alive while a block runs: a count of bytes that is the same on every machine."""

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Allocations(TorchDispatchMode):
    """Storages that operations inside the block make, less `known` ones, from their making until nothing holds them.

    `peak` is the largest sum of bytes alive at the same time, `largest` the largest single storage. What an operation
    takes inside of itself is not seen.
    """

    def __init__(self, known: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self._known = {tensor.untyped_storage()._cdata for tensor in known}
        self._alive: dict[int, int] = {}
        self.now = self.peak = self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self._see(leaf.untyped_storage())
        return out

    def _see(self, storage: torch.UntypedStorage) -> None:
        place, num_bytes = storage._cdata, storage.nbytes()
        if place in self._alive or place in self._known or not num_bytes:
            return
        self._alive[place] = num_bytes
        self.now += num_bytes
        self.peak, self.largest = max(self.peak, self.now), max(self.largest, num_bytes)
        weakref.finalize(storage, self._gone, place)

    def _gone(self, place: int) -> None:
        self.now -= self._alive.pop(place)
