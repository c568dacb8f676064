"""What happens at each hop of the ring: who sends which keys to whom, and which queries meet which keys.

Pure functions of the layout, the rank and the mask, with two schedules behind one record.
Passing on (masks without a window): at step t a rank holds all keys of rank r-t (mod P) and hands them to rank r+1, as
far as somebody further on needs them. Direct (windows): at each step every rank receives from one other only the keys
that its queries see, and sends what another one needs of its own; the distance between the two is the same for all
ranks, and distances at which nobody needs anything are left out, so that a window costs a few hops in a ring of any
size. A hop that neither computes nor transfers is not made. Together the blocks of all ranks and hops are exactly the
mask, each pair once.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from longdoc.errors import ModelError
from longdoc.ring.blocks import Block, plan_blocks, sees
from longdoc.ring.layout import Layout, LayoutKind, TokenRange
from longdoc.ring.mask import Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Keys, and their values, that travel to or from `peer`: places in the shard of `owner`, ascending, none empty."""

    peer: int
    owner: int
    keys: tuple[TokenRange, ...]

    @property
    def num_keys(self) -> int:
        """How many keys travel."""
        return sum(len(keys) for keys in self.keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One step of one rank: it computes `blocks` with `num_keys` held keys of rank `source`, and meanwhile transfers.

    `receive` is what the next step holds. `send` is of this rank's own keys or, where they are passed on, exactly what
    is held. Blocks count keys among those that are held. Rank and source are the same at step 0 and nowhere else;
    `own_blocks` are of this rank's own keys all the same, kept for a later step whose transfer hides behind them.
    """

    step: int
    source: int
    num_keys: int
    send: Transfer | None
    receive: Transfer | None
    blocks: tuple[Block, ...]
    own_blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferSizes:
    """How many keys each buffer of a rank must hold: two slots in which keys arrive in turn, and one to send from.

    Where keys are packed for sending at step 0 only, they are packed into slot 0, and `packed` is 0.
    """

    slots: tuple[int, int]
    packed: int


def check_carries(kind: LayoutKind, mask: Mask) -> None:
    """Raise `ModelError` for a mask that this kind of layout does not carry, whatever the document's length."""
    if kind == "striped" and mask.is_windowed:
        raise ModelError(
            f"layout 'striped' is for full causal and bidirectional attention, and this model has layers {mask.name}:"
            " choose --layout zigzag"
        )


def plan_hops(layout: Layout, rank: int, mask: Mask) -> tuple[Hop, ...]:
    """The hops of one rank, in order. Ranks agree: a send at a step is the peer's receive at that step.

    Raises `ModelError` for a striped layout with a window, in which neighbours in the text have no common rank.
    """
    check_carries(layout.kind, mask)
    mask = mask.within(layout.num_tokens)
    return _direct(layout, rank, mask) if mask.is_windowed else _passed_on(layout, rank, mask)


def buffer_sizes(hops: Sequence[Hop], rank: int) -> BufferSizes:
    """The buffers that these hops of `rank` need. They do not grow with the number of ranks."""
    slots = [0, 0]
    packed = {hop.step: hop.send.num_keys for hop in hops if hop.send is not None and hop.send.owner == rank}
    for hop in hops:
        if hop.receive is not None:
            slots[(hop.step + 1) % 2] = max(slots[(hop.step + 1) % 2], hop.receive.num_keys)
    if set(packed) <= {0}:
        return BufferSizes(slots=(max(slots[0], packed.get(0, 0)), slots[1]), packed=0)
    return BufferSizes(slots=(slots[0], slots[1]), packed=max(packed.values()))


def _passed_on(layout: Layout, rank: int, mask: Mask) -> tuple[Hop, ...]:
    num_ranks = layout.num_ranks
    before, after = (rank - 1) % num_ranks, (rank + 1) % num_ranks
    hops = []
    for step in range(num_ranks):
        source, incoming = (rank - step) % num_ranks, (before - step) % num_ranks
        reach = _reach(layout, source, mask)
        hop = Hop(
            step=step,
            source=source,
            num_keys=layout.num_tokens_of(source) if step <= reach else 0,
            send=_whole_shard(layout, after, source) if step < reach else None,
            receive=_whole_shard(layout, before, incoming) if step < _reach(layout, incoming, mask) else None,
            blocks=plan_blocks(layout, rank, source, mask),
        )
        hops.append(hop)
    return _without_idle(hops)


@functools.lru_cache(maxsize=4096)
def _reach(layout: Layout, source: int, mask: Mask) -> int:
    """How many ranks beyond its own the keys of `source` must travel so that everybody who needs them has had them."""
    distances = range(layout.num_ranks - 1, 0, -1)
    return next((d for d in distances if sees(layout, (source + d) % layout.num_ranks, source, mask)), 0)


def _whole_shard(layout: Layout, peer: int, owner: int) -> Transfer:
    whole = TokenRange(start=0, stop=layout.num_tokens_of(owner))
    return Transfer(peer=peer, owner=owner, keys=(whole,))


def _direct(layout: Layout, rank: int, mask: Mask) -> tuple[Hop, ...]:
    num_ranks, distances = layout.num_ranks, _distances(layout, mask)
    own = plan_blocks(layout, rank, rank, mask)
    hops = []
    for step, distance in enumerate(distances):
        source = (rank - distance) % num_ranks
        blocks = plan_blocks(layout, rank, source, mask) if step > 0 else ()
        needed, own_share = _needed(blocks), _own_share(own, step, len(distances) - 1)
        send = receive = None
        if step + 1 < len(distances):
            before, after = (rank - distances[step + 1]) % num_ranks, (rank + distances[step + 1]) % num_ranks
            send = _needed_transfer(layout, rank=after, owner=rank, peer=after, mask=mask)
            receive = _needed_transfer(layout, rank=rank, owner=before, peer=before, mask=mask)
        hop = Hop(
            step=step,
            source=source,
            num_keys=layout.num_tokens_of(rank) if step == 0 else sum(len(keys) for keys in needed),
            send=send,
            receive=receive,
            blocks=own_share if step == 0 else _among_held(blocks, needed),
            own_blocks=own_share if step > 0 else (),
        )
        hops.append(hop)
    return _without_idle(hops)


def _own_share(own: tuple[Block, ...], step: int, num_transfers: int) -> tuple[Block, ...]:
    """The blocks of a rank's own keys that it computes at a step: one for each transfer, and at the last one the rest.

    What comes in of a window is little work, too little for the next transfer to hide behind.
    """
    if step + 1 < num_transfers:
        return own[step : step + 1]
    return own[step:] if step == max(0, num_transfers - 1) else ()


@functools.lru_cache(maxsize=64)
def _distances(layout: Layout, mask: Mask) -> tuple[int, ...]:
    """0, and how far before it the ranks are that some rank needs keys of, nearest first."""
    ranks = range(layout.num_ranks)
    return 0, *(d for d in ranks[1:] if any(sees(layout, r, (r - d) % layout.num_ranks, mask) for r in ranks))


def _needed_transfer(layout: Layout, *, rank: int, owner: int, peer: int, mask: Mask) -> Transfer | None:
    """What `rank` needs of the keys of `owner`, as a transfer to or from `peer`."""
    needed = _needed(plan_blocks(layout, rank, owner, mask))
    return Transfer(peer=peer, owner=owner, keys=needed) if needed else None


def _needed(blocks: tuple[Block, ...]) -> tuple[TokenRange, ...]:
    """The keys of all blocks, as ranges apart from each other, ascending."""
    found: list[TokenRange] = []
    for keys in sorted((block.keys for block in blocks), key=lambda keys: keys.start):
        if found and keys.start <= found[-1].stop:
            before = found.pop()
            keys = TokenRange(start=before.start, stop=max(before.stop, keys.stop))
        found.append(keys)
    return tuple(found)


def _among_held(blocks: tuple[Block, ...], held: tuple[TokenRange, ...]) -> tuple[Block, ...]:
    """The blocks with their keys counted among the ranges that are held, one behind the other."""
    moved, num_before = [], 0
    for keys in held:
        inside = [block for block in blocks if keys.start <= block.keys.start < keys.stop]
        moved += [block.held_from(keys.start - num_before) for block in inside]
        num_before += len(keys)
    return tuple(moved)


def _without_idle(hops: list[Hop]) -> tuple[Hop, ...]:
    return tuple(hop for hop in hops if any((hop.blocks, hop.own_blocks, hop.send, hop.receive)))
