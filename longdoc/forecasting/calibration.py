"""The rates of this machine for one model, measured once in a few seconds and kept.

Owns the processes that measure (as many as the ring has ranks, each with its threads, all at work at the same time,
because that is how ranks run) and what rates depend on. `longdoc.kept` holds them, below `rates/`. CPUs only:
nothing is measured on a GPU.
"""

import dataclasses
import importlib.metadata
import platform
from collections.abc import Callable
from statistics import fmean
from typing import TYPE_CHECKING, Any

import longdoc
from longdoc.bench.facts import processor
from longdoc.cluster.placement import RingSpec
from longdoc.errors import InfrastructureError
from longdoc.estimate import ModelShape
from longdoc.forecasting.costs import PairRate, Rates, kinds_of, mask_of
from longdoc.kept import code_sha256, keep, kept
from longdoc.machine import bytes_for_a_rank, num_cores
from longdoc.model.layers import LayerShape
from longdoc.model.local import LocalModel
from longdoc.sizes import format_bytes

if TYPE_CHECKING:
    from longdoc.bench.processes import Contestant

#: What every document takes on top of its work: handing it to the ranks, opening, closing and checking their parts, and
#: the half second that a driver sleeps between two looks. Measured with documents of a few tokens.
DOCUMENT_SECONDS = 0.4
#: What a token takes outside of the model: pooling, its row, compression, hashes. Measured with the default model.
TOKEN_SECONDS = 5e-6
# So many layers hold each kind in most families.
_LARGEST_PREFIX = 4
#: Packages whose text the rates depend on: between two releases it changes and the version does not.
_CODE = ("forecasting", "model", "outputs", "ring")
_KIND = "rates"


def known_rates(model: LocalModel, *, dtype: str, kernel: str, ring: RingSpec) -> Rates | None:
    """The rates that were measured before under the same conditions, or None."""
    subject = _subject(model, dtype, kernel, ring)
    try:
        return _from_json((kept(_KIND, subject) or {})["rates"])
    except (ValueError, KeyError, TypeError):
        return None


def rates_of(
    model: LocalModel,
    *,
    dtype: str,
    kernel: str,
    ring: RingSpec,
    again: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> Rates | None:
    """The rates, measured now where none are known or `again` is asked for.

    None, and a line that says why, where they cannot be measured: on GPUs, for layers that do not fit this machine's
    memory, for a family whose first layers do not run by themselves.
    """
    known = None if again else known_rates(model, dtype=dtype, kernel=kernel, ring=ring)
    if known is not None:
        return known
    if problem := _problem(ModelShape.of(model, dtype), ring):
        report(f"no seconds are forecast: {problem}")
        return None
    report(f"measuring this machine for {model.name} in {dtype}, a ring of {ring.num_ranks}; this is kept")
    try:
        rates = measure(model, dtype=dtype, kernel=kernel, ring=ring)
    except InfrastructureError as error:
        report(f"no seconds are forecast: {error}")
        return None
    keep(_KIND, _subject(model, dtype, kernel, ring), rates=dataclasses.asdict(rates))
    return rates


def _problem(shape: ModelShape, ring: RingSpec) -> str | None:
    """Why nothing can be measured, or None."""
    if ring.device != "cpu":
        return "rates are measured on CPUs only"
    needed = _LARGEST_PREFIX * shape.num_parameters * shape.value_bytes // len(shape.layers)
    if needed > bytes_for_a_rank(min(ring.num_ranks, ring.num_cores)):
        return f"a few layers of this model take {format_bytes(needed)}, and there is less memory free"
    return None


def measure(model: LocalModel, *, dtype: str, kernel: str, ring: RingSpec) -> Rates:
    """Measure, in as many processes as the ring has ranks or the machine has cores. Raises `InfrastructureError`."""
    # Not at the top: known rates need no torch.
    from longdoc.bench.processes import Contestant
    from longdoc.forecasting.rank import build_rank

    shape = ModelShape.of(model, dtype)
    processes = min(ring.num_ranks, ring.num_cores)
    # Ranks that share a core take turns.
    turns = ring.num_ranks / processes
    with Contestant(
        "calibration",
        build_rank,
        model.folder,
        dtype,
        kernel,
        num_ranks=processes,
        num_threads=ring.threads_per_rank,
    ) as ranks:
        weight = fmean(ranks.call("weight", model.num_layers, model.intermediate_size)) * turns
        logit = fmean(ranks.call("logit", model.hidden_size, model.vocab_size)) * turns if model.has_head else 0.0
        pairs = tuple(_pair_rate(ranks, shape, layer, turns) for layer in kinds_of(shape))
    return Rates(
        weight=weight,
        logit=logit,
        token=TOKEN_SECONDS * turns,
        document=DOCUMENT_SECONDS,
        pairs=pairs,
    )


def _pair_rate(ranks: "Contestant", shape: ModelShape, layer: LayerShape, turns: float) -> PairRate:
    full, masked = (fmean(times) * turns for times in zip(*ranks.call("pairs", layer, mask_of(shape, layer))))
    return PairRate(layer=layer, full=full, masked=masked)


def _subject(model: LocalModel, dtype: str, kernel: str, ring: RingSpec) -> dict[str, Any]:
    """Everything that rates depend on."""
    return {
        "model": model.digest,
        "longdoc": longdoc.__version__,
        "code": _code_sha256(),
        "torch": importlib.metadata.version("torch"),
        "transformers": importlib.metadata.version("transformers"),
        "dtype": dtype,
        "kernel": kernel,
        "num_ranks": ring.num_ranks,
        "num_threads": ring.threads_per_rank,
        "num_cores": num_cores(),
        "processor": processor(),
        "host": platform.node(),
    }


def _code_sha256() -> str:
    return code_sha256(_CODE)


def _from_json(rates: dict[str, Any]) -> Rates:
    pairs = tuple(PairRate(**(pair | {"layer": LayerShape(**pair["layer"])})) for pair in rates["pairs"])
    return Rates(**(rates | {"pairs": pairs}))
