"""Where a rank is in the ring, for the message when something goes wrong, and where numbers stopped being finite.

Owns the sequence number of hops: each hop of a document that transfers or computes has the next one, the same layer
and hop always the same. Legend: H heads, T tokens of this rank, D head dimension.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch

from longdoc.errors import InfrastructureError

# How many values are looked at in one call: no more than the copy of a tile should cost.
_TILE_VALUES = {"cpu": 1 << 20}
_MANY_VALUES = 1 << 26


Report = Callable[[int, int, int], None]


class HopLog:
    """Follows one rank through the hops of one document. Layers, hops and sequence numbers count from 0.

    `report(layer, hop, num_hops)` is called after each piece of work. `layer` is set by whoever knows it.
    """

    def __init__(self, report: Report = lambda layer, hop, num_hops: None) -> None:
        self.layer = 0
        self._report = report
        self._number = -1
        self._hop = (0, 0)
        self._last: tuple[str, float] | None = None

    @contextmanager
    def hop(self, hop: int, num_hops: int) -> Iterator[None]:
        """One hop, from posting its transfers until they are done. An `InfrastructureError` in it says where it was."""
        self._number += 1
        self._hop = (hop, num_hops)
        try:
            yield
        except InfrastructureError as error:
            # In place: a new exception would keep this one's traceback, and with it connections to lost peers.
            error.args = (f"{error}; it was at {self}", *error.args[1:])
            raise
        self._last = (self._place, time.monotonic())

    def beat(self) -> None:
        """A piece of the present hop is done."""
        self._report(self.layer, *self._hop)

    @property
    def _place(self) -> str:
        return "layer {}, hop {} of {} (number {})".format(self.layer, *self._hop, self._number)

    def __str__(self) -> str:
        if self._last is None:
            return f"{self._place}, none completed before"
        place, when = self._last
        return f"{self._place}, last completed {place}, {time.monotonic() - when:.1f} s before"


def first_nonfinite(tensors_HTD: Iterable[torch.Tensor]) -> int | None:
    """The first token (dimension 1) at which one of the tensors is NaN or infinite, or None. Allocates little."""
    places = [place for tensor_HTD in tensors_HTD if (place := _first_nonfinite(tensor_HTD)) is not None]
    return min(places, default=None)


def _first_nonfinite(tensor_HTD: torch.Tensor) -> int | None:
    num_heads, num_tokens, head_dim = tensor_HTD.shape
    values = _TILE_VALUES.get(tensor_HTD.device.type, _MANY_VALUES)
    tile = max(1, values // max(1, num_heads * head_dim))
    tiles = [tensor_HTD[:, start : start + tile].transpose(0, 1) for start in range(0, num_tokens, tile)]
    if num_heads * head_dim == 0 or not tiles:
        return None
    # NaN wins in a minimum and a maximum; one look at the device for all tiles.
    extremes = torch.stack([torch.stack(torch.aminmax(tile_THD)) for tile_THD in tiles])
    finite = torch.isfinite(extremes).all(dim=1).tolist()
    for number, (tile_THD, is_finite) in enumerate(zip(tiles, finite, strict=True)):
        if not is_finite:
            wrong_T = ~torch.isfinite(tile_THD).all(dim=2).all(dim=1)
            return number * tile + int(wrong_T.nonzero()[0])
    return None
