"""The mask that a model asks for, found out by asking its mask function.

Owns `ModelMask`, which passes through a model in place of a mask tensor. transformers says a mask as a function of
places, and repeats a part of it in arguments (window, direction) that only some attentions read; here the function
decides, and the arguments must agree. Refuses masks that depend on more than a distance: chunks, packing, padding.
"""

from collections.abc import Callable
from typing import Any

import torch

from longdoc.errors import ModelError
from longdoc.ring.mask import Mask

# Distances at which masks are compared: windows and chunks of any size up to 2^30 show at one of them.
_DISTANCES = sorted({0} | {2**power + near for power in range(31) for near in (-1, 0, 1)})
_FARTHEST = _DISTANCES[-1]
# Places that masks are asked about: near the start, and far from it and from every multiple of a power of two.
_STARTS = (0, 1, 1000, 12_345_679)
_ELSEWHERE = "choose another model (see `longdoc models list`)"


class ModelMask:
    """The mask function of one kind of layer, and the mask that it was found to be."""

    def __init__(self, mask_function: Callable[..., Any], padding: torch.Tensor | None) -> None:
        self._mask_function = mask_function
        self._padding = padding
        self._mask: Mask | None = None

    def __getitem__(self, kept: tuple[slice, ...]) -> "ModelMask":
        """Itself: gemma4 cuts masks to the queries whose logits are kept, which are all of them here."""
        if any(part.start or part.stop is not None for part in kept):
            raise ModelError(f"the model attends with a part of its tokens only, which no ring does; {_ELSEWHERE}")
        return self

    def mask(self) -> Mask:
        """What the function shows. Raises `ModelError` unless that is one stretch of distances at all places."""
        if self._mask is None:
            if self._padding is not None and not bool(self._padding.all()):
                raise ModelError("padding cannot run on the ring: every token of a shard is a token of the document")
            mask = Mask(left=self._reach(-1), right=self._reach(1))
            self._compare(mask)
            self._mask = mask
        return self._mask

    def _reach(self, direction: int) -> int | None:
        """The largest distance at which a query sees a key before (-1) or after (1) it; None if it sees them all.

        Found by bisection, on the assumption that what is visible is one stretch; `_compare` looks whether it is.
        """
        query = _FARTHEST + _STARTS[-1]
        shown = self._shows(torch.full((2,), query), query + direction * torch.tensor([0, _FARTHEST]))
        if bool(shown[1]):
            return None
        if not bool(shown[0]):
            raise ModelError(f"the model's attention hides the token at {query} from itself; {_ELSEWHERE}")
        near, far = 0, _FARTHEST
        while far - near > 1:
            middle = (near + far) // 2
            if bool(self._shows(torch.tensor([query]), torch.tensor([query + direction * middle]))[0]):
                near = middle
            else:
                far = middle
        return near

    def _compare(self, mask: Mask) -> None:
        pairs = _sample_pairs([reach for reach in mask.reaches if reach is not None])
        queries, keys = torch.tensor(pairs).unbind(dim=1)
        seen = self._shows(queries, keys)
        wanted = torch.tensor([mask.allows(query, key) for query, key in pairs])
        if not torch.equal(seen, wanted):
            query, key = pairs[int((seen != wanted).nonzero()[0])]
            verb = "hides" if mask.allows(query, key) else "shows"
            raise ModelError(
                "the model's attention depends on more than distances: far from the start it looks"
                f" {mask.name}, but it {verb} the token at {key} to the one at {query}; {_ELSEWHERE}"
            )

    def _shows(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        first = torch.zeros_like(queries)
        try:
            seen = torch.as_tensor(self._mask_function(first, first, queries, keys))
            return seen.expand(queries.shape).cpu().bool()
        except (IndexError, RuntimeError, TypeError, ValueError) as error:
            raise ModelError(
                "the model's attention mask depends on more than distances, for example on packed documents:"
                f" {type(error).__name__} at a sample distance; {_ELSEWHERE}"
            ) from error


def _sample_pairs(reaches: list[int]) -> list[tuple[int, int]]:
    """(query, key) in both directions at every sample distance and around the mask's own, at several places."""
    distances = sorted({*_DISTANCES, *(max(0, reach + near) for reach in reaches for near in (-1, 0, 1))})
    pairs = [(start + distance, start) for start in _STARTS for distance in distances]
    return pairs + [(key, query) for query, key in pairs]


def refuse_contradictions(mask: Mask, *, window: int | None, is_causal: bool | None, who: str) -> None:
    """Raise `ModelError` where the arguments of a layer's attention say another mask than its mask function.

    `window` counts the query itself (keys at a distance below it); `is_causal` is None where nothing is said.
    """
    reach = None if window is None else window - 1
    said = f"a window of {window}" if window is not None else "no window"
    if mask.left != reach or mask.right not in ({0, None} if reach is None else {0, reach}):
        raise ModelError(
            f"{who} asks its attention for {said}, but its mask is {mask.name}: one of the two would be dropped in"
            f" silence; {_ELSEWHERE}"
        )
    if is_causal is not None and is_causal != mask.is_causal:
        raise ModelError(f"{who} says is_causal={is_causal}, but its mask is {mask.name}; {_ELSEWHERE}")
