"""How long ranks and drivers wait before they call something stuck."""

from dataclasses import dataclass

from longdoc.estimate import ModelShape, forward_seconds_bound, stall_seconds
from longdoc.forecasting.costs import Rates, document_seconds, longest_block_seconds, patience
from longdoc.ring.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Seconds: a rank waits for a peer through a whole document; a ring may give no sign of life for one block."""

    for_a_peer: float
    without_a_sign: float

    @classmethod
    def of(cls, shape: ModelShape, layout: Layout, rates: Rates | None) -> "Waits":
        """Ten times the forecast, at least a minute; where nothing was measured, what a slow machine would take."""
        if rates is None:
            return cls(
                for_a_peer=forward_seconds_bound(shape, layout.num_tokens, layout.num_ranks),
                without_a_sign=stall_seconds(shape, layout.num_tokens, layout.num_ranks),
            )
        return cls(
            for_a_peer=patience(document_seconds(shape, rates, layout)),
            without_a_sign=patience(longest_block_seconds(shape, rates, layout)),
        )
