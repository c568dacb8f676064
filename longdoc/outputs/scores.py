"""Scores of the next token, from tiles of logits: log-probability, entropy, rank in the vocabulary.

Never holds an [n, vocabulary] matrix: logits are made and reduced a tile of tokens at a time.
Shapes: N places of the shard, T places of a tile, C hidden size, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from longdoc.estimate import LOGITS_TILE_BYTES

#: Rows of a tile that are reduced together: an eighth, so that the copies they make stay below the tile itself.
_ROWS_SHARE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """One entry for each scored place, on the CPU. Natural logarithms (nats); rank 1 is the model's first choice."""

    logprob: Tensor
    entropy: Tensor
    rank: Tensor


def score_places(
    hidden_NC: Tensor,
    places: Tensor,
    labels: Tensor,
    logits_of: Callable[[Tensor], Tensor],
    *,
    vocab_size: int,
    tile_bytes: int = LOGITS_TILE_BYTES,
    beat: Callable[[], None] = lambda: None,
) -> Scores:
    """Score the label that follows each of `places`.

    places: int64 [S] indices into hidden_NC; labels: int64 [S]. logits_of maps [T, C] to [T, V].
    Computed where hidden_NC is, in float32, or float64 for float64 logits. `beat` is called after each tile.
    """
    # A matrix product wants many rows at once; what comes after it makes four copies of its rows, so it gets few.
    tile = 1 << (max(1, tile_bytes // (4 * vocab_size)).bit_length() - 1)
    rows = max(1, tile // _ROWS_SHARE)
    wide = torch.float64 if hidden_NC.dtype == torch.float64 else torch.float32
    device = hidden_NC.device
    places, labels = places.to(device), labels.to(device)
    logprob = torch.empty(len(places), dtype=wide, device=device)
    entropy = torch.empty(len(places), dtype=wide, device=device)
    rank = torch.empty(len(places), dtype=torch.int64, device=device)
    for start in range(0, len(places), tile):
        stop = min(start + tile, len(places))
        logits_TV = logits_of(hidden_NC[places[start:stop]])
        for first in range(start, stop, rows):
            last = min(first + rows, stop)
            few_TV = logits_TV[first - start : last - start].to(wide)
            logprob[first:last], entropy[first:last], rank[first:last] = score_tile(few_TV, labels[first:last])
        beat()
    return Scores(logprob=logprob.cpu(), entropy=entropy.cpu(), rank=rank.cpu())


def score_tile(logits_TV: Tensor, labels_T: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probability of the label, entropy of the distribution, rank of the label, for each row.

    log p = z_label − log Σ exp z;  H = −Σ p log p;  rank = 1 + the number of strictly larger logits.
    """
    label_T1 = labels_T[:, None]
    rank_T = 1 + (logits_TV > logits_TV.gather(1, label_T1)).sum(dim=1)
    logprobs_TV = torch.log_softmax(logits_TV, dim=1)
    logprob_T = logprobs_TV.gather(1, label_T1)[:, 0]
    # 0 · log 0 is 0: a probability that underflows contributes nothing, even where its log is -inf.
    probs_TV = logprobs_TV.exp()
    logprobs_TV.masked_fill_(probs_TV == 0, 0.0)
    entropy_T = -probs_TV.mul_(logprobs_TV).sum(dim=1)
    return logprob_T, entropy_T, rank_T
