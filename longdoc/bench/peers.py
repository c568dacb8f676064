"""The benchmark of peers: the same causal attention, and the same forward pass, through every engine that runs here.

Two ranks × one thread for each ring, one process × two threads for transformers; all resident, in turns. An engine
that is missing or fails is a row with its reason. Legend: N tokens, H query heads, G key-value heads, T tokens of a
rank, D head dimension, C hidden size.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from longdoc.bench.exactness import HEAD_DIM, defined_attention, draw
from longdoc.bench.facts import machine_facts, package_version
from longdoc.bench.forward import build_plain, build_ring, plain_model, random_document
from longdoc.bench.peer_engines import ENGINES, Attend, Engine
from longdoc.bench.processes import Contestant, Handler, interleaved, ratio, sent_bytes
from longdoc.bench.report import Cell, Column, Report, Table
from longdoc.cluster.compute import peak_memory_bytes, release_free_memory, reset_peak_memory
from longdoc.errors import LongdocError, ModelError, StartError
from longdoc.model.local import LocalModel
from longdoc.ring.exchange import Exchange
from longdoc.ring.layout import Layout

NUM_RANKS = 2
#: The heads of the default model.
_NUM_HEADS, _NUM_KV_HEADS = 9, 3
_PEER_ATTENTION = "longdoc_bench_peer"
_LONGDOC, _PLAIN = "longdoc", "transformers sdpa"
_NOTE = (
    "error: max|Δ| / max|expected| against float64. time: median, against transformers sdpa in the same run.\n"
    "sent: bytes of the busiest rank in one pass over all of its TCP connections, as the kernel counts them.\n"
    "peak: growth of the largest rank's resident memory in one pass."
)

Work = str
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSettings:
    """What `longdoc bench peers` compares. Raises `StartError` for lengths that some engine would have to pad."""

    tokens: int = 4096
    dtype: str = "float32"
    repeats: int = 5
    plain_threads: int = NUM_RANKS
    engines: tuple[str, ...] = tuple(ENGINES)

    def __post_init__(self) -> None:
        if self.tokens % (2 * NUM_RANKS):
            raise StartError(f"{self.tokens} tokens: context_parallel needs a multiple of {2 * NUM_RANKS}; choose one")


def build_peer(exchange: Exchange | None, name: str, local: LocalModel | None, dtype: str) -> Handler:
    """One rank of an engine.

    Answers ("attention" | "forward", num_tokens, wants) with its rows [T, ...] in float32 where they are wanted,
    ("peak", work, num_tokens) with the bytes of memory of one pass, ("sent",) with the bytes sent so far.
    """
    engine = ENGINES[name]
    attend = engine.make(exchange)
    passes: dict[Work, Callable[[int], Tensor]] = {"attention": partial(_attention, engine, exchange, attend, dtype)}
    if local is not None:
        passes["forward"] = _forward(engine, exchange, attend, local, dtype)

    def handle(work: Work, *arguments: Any) -> Any:
        if work == "sent":
            return sent_bytes()
        if work == "peak":
            return _peak(passes[arguments[0]], arguments[1])
        num_tokens, wants = arguments
        rows = passes[work](num_tokens)
        return rows.float().numpy() if wants else None

    return handle


def _positions(engine: Engine, exchange: Exchange | None, num_tokens: int) -> Tensor:
    if exchange is None:
        return torch.arange(num_tokens)
    layout = Layout(kind=engine.layout, num_tokens=num_tokens, num_ranks=exchange.num_ranks)
    return torch.from_numpy(layout.positions(exchange.rank))


@torch.no_grad()
def _attention(engine: Engine, exchange: Exchange | None, attend: Attend, dtype: str, num_tokens: int) -> Tensor:
    """One layer of causal attention: out_THD of this rank."""
    positions_T = _positions(engine, exchange, num_tokens)
    q_HTD, k_GTD, v_GTD = (tensor[:, positions_T] for tensor in _draw(num_tokens, dtype))
    return attend(q_HTD, k_GTD, v_GTD, HEAD_DIM**-0.5).transpose(0, 1)


def _draw(num_tokens: int, dtype: str) -> tuple[Tensor, Tensor, Tensor]:
    return draw(num_tokens, getattr(torch, dtype), num_heads=_NUM_HEADS, num_kv_heads=_NUM_KV_HEADS)


def _forward(
    engine: Engine, exchange: Exchange | None, attend: Attend, local: LocalModel, dtype: str
) -> Callable[[int], Tensor]:
    """The base model's forward pass: states_TC of this rank. Peers get transformers' model with their attention."""
    if engine.name in (_LONGDOC, _PLAIN):
        plain = engine.name == _PLAIN
        own = build_plain(exchange, local, dtype) if plain else build_ring(exchange, local, dtype, "zigzag", "torch")
        return lambda num_tokens: torch.from_numpy(own(num_tokens, True))
    _register(attend)
    model = plain_model(local, getattr(torch, dtype), _PEER_ATTENTION)

    @torch.no_grad()
    def forward(num_tokens: int) -> Tensor:
        positions_T = _positions(engine, exchange, num_tokens)
        token_ids_T = random_document(local.vocab_size, num_tokens)[positions_T]
        output = model(input_ids=token_ids_T[None], position_ids=positions_T[None], use_cache=False)
        states_TC: Tensor = output.last_hidden_state[0]
        return states_TC

    return forward


def _register(attend: Attend) -> None:
    """Make an engine known to transformers; it is causal and nothing else, so whatever asks for more is refused."""
    from transformers import AttentionInterface, AttentionMaskInterface

    def function(module: Any, q: Tensor, k: Tensor, v: Tensor, _: object, **kwargs: Any) -> tuple[Tensor, None]:
        asked = [name for name in ("sliding_window", "softcap", "s_aux") if kwargs.get(name) is not None]
        if asked:
            raise ModelError(f"the model asks for {', '.join(asked)}; peers are compared on plain causal attention")
        out_HTD = attend(q[0], k[0], v[0], kwargs["scaling"])
        return out_HTD.transpose(0, 1)[None].contiguous(), None

    AttentionInterface.register(_PEER_ATTENTION, function)
    AttentionMaskInterface.register(_PEER_ATTENTION, lambda **_: None)


def _peak(run: Callable[[int], Tensor], num_tokens: int) -> int:
    """Peak memory of one pass above what was resident before it, in bytes."""
    release_free_memory()
    reset_peak_memory()
    resident = peak_memory_bytes()
    run(num_tokens)
    return peak_memory_bytes() - resident


def bench_peers(local: LocalModel | None, settings: PeerSettings, *, report: Callable[[str], None]) -> Report:
    """Everything `longdoc bench peers` shows; without a model, attention alone."""
    facts = machine_facts() | {
        "tokens": settings.tokens,
        "dtype": settings.dtype,
        "repeats": settings.repeats,
        "rings": f"{NUM_RANKS} processes × 1 thread, gloo",
        "transformers sdpa": f"1 process × {settings.plain_threads} threads",
        "model": None if local is None else local.name,
    }
    works = ("attention", "forward") if local else ("attention",)
    with ExitStack() as stack:
        reasons: dict[str, str] = {}
        running: dict[str, Contestant] = {}
        for name in settings.engines:
            report(f"starting {name}")
            try:
                running[name] = stack.enter_context(_contestant(ENGINES[name], local, settings))
                running[name].call("attention", 2 * NUM_RANKS, False)
            except LongdocError as error:
                reasons[name] = str(error)
                if name in running:
                    running.pop(name).close()
        expected = {work: _expected(work, local, settings, report) for work in works}
        tables = tuple(_table(work, running, reasons, expected[work], settings, report) for work in works)
    return Report(bench="peers", facts=facts, tables=tables, notes=(_NOTE,))


def _contestant(engine: Engine, local: LocalModel | None, settings: PeerSettings) -> Contestant:
    num_ranks, num_threads = (1, settings.plain_threads) if engine.alone else (NUM_RANKS, 1)
    return Contestant(
        engine.name,
        build_peer,
        engine.name,
        local,
        settings.dtype,
        num_ranks=num_ranks,
        num_threads=num_threads,
        ring=not engine.alone,
    )


def _expected(work: Work, local: LocalModel | None, settings: PeerSettings, report: Callable[[str], None]) -> Tensor:
    """The float64 result of the whole: out_NHD of attention, states_NC of a forward pass."""
    report(f"{work} in float64")
    if work == "attention" or local is None:
        return defined_attention(*_draw(settings.tokens, settings.dtype)).transpose(0, 1)
    with Contestant("float64", build_plain, local, "float64", num_threads=settings.plain_threads) as plain:
        return torch.from_numpy(plain.call(settings.tokens, True)[0]).double()


def _table(
    work: Work,
    running: dict[str, Contestant],
    reasons: dict[str, str],
    expected: Tensor,
    settings: PeerSettings,
    report: Callable[[str], None],
) -> Table:
    errors, costs = {}, {}
    for name, contestant in running.items():
        report(f"{work}, {name}: error and cost")
        errors[name] = _error(ENGINES[name], contestant.call(work, settings.tokens, True), expected)
        costs[name] = _costs(contestant, work, settings.tokens)
    seconds = interleaved(
        {name: partial(contestant.seconds, work, settings.tokens, False) for name, contestant in running.items()},
        settings.repeats,
        lambda name, repeat, spent: report(f"{work} {repeat + 1}/{settings.repeats} {name}: {spent:.2f} s"),
    )
    rows = []
    for name in settings.engines:
        engine = ENGINES[name]
        head: tuple[Cell, ...] = (name, package_version(engine.package) or "", engine.layout)
        if name in reasons:
            rows.append((*head, None, None, None, None, f"does not run: {reasons[name]}"))
            continue
        time = ratio(seconds[name], seconds[_PLAIN]) if _PLAIN in seconds else None
        rows.append((*head, errors[name], time, *costs[name], engine.remark))
    title = {"attention": f"Causal attention, {_NUM_HEADS} query and {_NUM_KV_HEADS} key-value heads of {HEAD_DIM}"}
    return Table(title=title.get(work, "Forward pass of the base model"), columns=_COLUMNS, rows=tuple(rows))


_COLUMNS = (
    Column(name="engine"),
    Column(name="version"),
    Column(name="layout"),
    Column(name="error", spec="{:.1e}"),
    Column(name="time", spec="{:.2f}"),
    Column(name="sent MiB", spec="{:.2f}"),
    Column(name="peak MiB", spec="{:.0f}"),
    Column(name="remark"),
)


def _costs(contestant: Contestant, work: Work, num_tokens: int) -> tuple[Cell, Cell]:
    """MiB sent and MiB of peak memory in one pass, of the rank that has most."""
    # Asked for apart: when all ranks have answered, all have received, so nothing is left in anybody's socket.
    before = contestant.call("sent")
    peaks = contestant.call("peak", work, num_tokens)
    after = contestant.call("sent")
    sent = [stop - start for start, stop in zip(before, after, strict=True) if None not in (start, stop)]
    return max(sent) / 2**20 if sent else None, max(peaks) / 2**20


def _error(engine: Engine, parts: list[Floats], expected: Tensor) -> float:
    """max|Δ| / max|expected| of the ranks' rows, put in the order of the document."""
    layout = Layout(kind=engine.layout, num_tokens=len(expected), num_ranks=len(parts))
    difference = max(
        float((torch.from_numpy(part).double() - expected[torch.from_numpy(layout.positions(rank))]).abs().max())
        for rank, part in enumerate(parts)
    )
    return difference / float(expected.abs().max())
