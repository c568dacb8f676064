"""Every option of a run and its default, once. The command line and job files only override.

Owns the names, the choices, reading a TOML job file, and the configuration's part of a document's identity.
Refuses an option it does not know, by name.
"""

import difflib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from longdoc.errors import StartError
from longdoc.gpus import cuda_problem
from longdoc.model.positions import EXTENSION_MODES, ExtensionMode
from longdoc.records import fingerprint, without_credentials
from longdoc.ring.kernels import CUDA_KERNELS, KERNELS
from longdoc.ring.layout import LAYOUTS, LayoutKind
from longdoc.store.schemas import OUTPUTS

DEVICES = ("auto", "cpu", "cuda")
DTYPES = ("auto", "float32", "bfloat16", "float64")
PoolingMode = Literal["auto", "mean", "last", "cls"]
POOLINGS: tuple[PoolingMode, ...] = ("auto", "mean", "last", "cls")

#: What the value of an option may be.
TEXT, TEXTS, COUNT, RING, FLAG = "a text", "a list of texts", "a whole number", "a whole number or auto", "a flag"
_IS_OF: dict[str, Callable[[Any], bool]] = {
    TEXT: lambda value: isinstance(value, str),
    TEXTS: lambda value: (
        isinstance(value, str) or (isinstance(value, list) and all(isinstance(entry, str) for entry in value))
    ),
    # In Python True is an int; in a job file it is a mistake.
    COUNT: lambda value: type(value) is int,
    RING: lambda value: type(value) is int or value == "auto",
    FLAG: lambda value: isinstance(value, bool),
}
#: Every name a job file may use, and what its value must be.
JOB_OPTIONS = {
    **dict.fromkeys(("sources", "include", "exclude", "outputs"), TEXTS),
    **dict.fromkeys(("output", "model", "device", "kernel", "dtype", "layout", "pooling"), TEXT),
    **dict.fromkeys(("context_extension", "kind", "revision", "address"), TEXT),
    **dict.fromkeys(("text", "retry_quarantine", "submodules", "lfs"), FLAG),
    "ring_size": RING,
    "span_tokens": COUNT,
}

#: Where CPU ranks start: a ring of two halves the memory of each and needs no tuning on a laptop.
CPU_RING_SIZE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """One run's options. `kernel`, `dtype` and `pooling` may be auto.

    None stands for what the device decides (`ring_size`), for all that the model gives (`outputs`) and for this machine
    (`address`). With an address the device is one of the cluster's nodes: what `auto` stands for is known when the
    cluster is, see `longdoc.runs.site`.
    """

    output: str
    model: str = "smollm2-135m-instruct"
    device: str = "auto"
    kernel: str = "auto"
    dtype: str = "auto"
    ring_size: int | None = None
    layout: LayoutKind = "zigzag"
    outputs: tuple[str, ...] | None = None
    pooling: PoolingMode = "auto"
    span_tokens: int = 256
    context_extension: ExtensionMode = "auto"
    text: bool = True
    retry_quarantine: bool = False
    address: str | None = None

    def __post_init__(self) -> None:
        _check_choice("--device", self.device, DEVICES)
        _check_choice("--kernel", self.kernel, KERNELS)
        _check_choice("--dtype", self.dtype, DTYPES)
        _check_choice("--layout", self.layout, LAYOUTS)
        _check_choice("--pooling", self.pooling, POOLINGS)
        _check_choice("--context-extension", self.context_extension, EXTENSION_MODES)
        for output in self.outputs or ():
            _check_choice("--outputs", output, OUTPUTS)
        if self.outputs == ():
            raise StartError(f"--outputs is empty; name at least one of {', '.join(OUTPUTS)}.")
        for name, value in (("--span-tokens", self.span_tokens), ("--ring-size", self.ring_size)):
            if value is not None and value < 1:
                raise StartError(f"{name} is {value}; it counts from 1.")
        if self.address is not None and self.device == "auto":
            return
        if self.device == "cuda" and self.address is None and (problem := cuda_problem()):
            raise StartError(f"--device cuda: {problem}; use --device cpu.")
        if self.kernel in CUDA_KERNELS and self.resolved_device != "cuda":
            raise StartError(f"--kernel {self.kernel} runs on CUDA only, and the device is cpu; use --kernel torch.")

    @property
    def resolved_device(self) -> str:
        """The device behind `auto`: CUDA where torch sees a GPU."""
        if self.device != "auto":
            return self.device
        return "cuda" if cuda_problem() is None else "cpu"

    @property
    def resolved_dtype(self) -> str:
        """bf16 on CUDA; float32 on a CPU, where bf16 would only speed up the linear layers."""
        if self.dtype != "auto":
            return self.dtype
        return "bfloat16" if self.resolved_device == "cuda" else "float32"

    @property
    def chosen_outputs(self) -> tuple[str, ...]:
        """The outputs, once they are decided; which ones the default stands for depends on the model."""
        assert self.outputs is not None, "outputs are decided with the model, see longdoc.outputs.convention"
        return self.outputs

    @property
    def resolved_ring_size(self) -> int:
        """The ring size behind `auto`; on CUDA the smallest there is, until the documents are known."""
        if self.ring_size is not None:
            return self.ring_size
        return 1 if self.resolved_device == "cuda" else CPU_RING_SIZE

    def fingerprint(self, *, model_digest: str, tokenizer_sha256: str, convention: str) -> str:
        """What the answer depends on, hashed: never a rank, a ring size, a layout or a kernel.

        `convention` says how embeddings are made; it changes nothing where there are none.
        """
        return fingerprint(
            [
                ("model", model_digest),
                ("tokenizer", tokenizer_sha256),
                ("dtype", self.resolved_dtype),
                # `auto` and `yarn` extend alike.
                ("context_extension", self.context_extension.replace("auto", "yarn")),
                ("outputs", ",".join(sorted(set(self.chosen_outputs)))),
                ("convention", convention if "embeddings" in self.chosen_outputs else ""),
                ("span_tokens", str(self.span_tokens)),
                ("text", str(self.text)),
            ]
        )

    def as_json(self) -> dict[str, Any]:
        """The options as plain values, for the runs table."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def document_key(*, doc_id: str, version: str, connector_version: str, configuration: str) -> str:
    """The identity of one document's result, known without reading the document: 64 hexadecimal digits."""
    return fingerprint(
        [
            ("doc_id", doc_id),
            ("version", version),
            ("connector_version", connector_version),
            ("configuration", configuration),
        ]
    )


def read_job_file(path: Path) -> dict[str, Any]:
    """A TOML job file as option values. Names are those of the command line, `-` or `_` alike.

    Raises `StartError` naming the file and the option for an unknown name or a value of another type.
    """
    subject = f"--config {path}"
    options: dict[str, Any] = {}
    for name, value in read_toml(path, subject).items():
        try:
            add_option(options, name, value)
        except StartError as error:
            raise StartError(f"{subject}: {error}") from None
    return options


def read_toml(path: Path, subject: str) -> dict[str, Any]:
    """What a TOML file holds. Raises `StartError` about `subject`, which names it."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise StartError(f"{subject}: no such file.") from None
    except OSError as error:
        raise StartError(f"{subject}: cannot be read: {error.strerror or error}.") from None
    except ValueError as error:
        # Both a syntax error and text that is not UTF-8 are ValueErrors.
        raise StartError(f"{subject}: cannot be read as TOML: {error}.") from None


def add_option(options: dict[str, Any], name: str, value: Any, known: Mapping[str, str] = JOB_OPTIONS) -> None:
    """Add an option of a TOML file, by its name with `_`. `known` maps names to what their values must be.

    Raises `StartError` for an unknown name, with the nearest one that is known, for a value of another type, and for an
    option that stands there twice, once with `-` and once with `_`.
    """
    plain = name.replace("-", "_")
    kind = known.get(plain)
    if kind is None:
        near = difflib.get_close_matches(plain, known, n=1)
        hint = f" Did you mean {near[0].replace('_', '-')}?" if near else ""
        raise StartError(f"unknown option {name}.{hint}")
    if plain in options:
        raise StartError(f"{plain.replace('_', '-')} stands there twice, with - and with _; leave one of them out.")
    if not _IS_OF[kind](value):
        raise StartError(f"{name} must be {kind}, not {_told(value)}.")
    options[plain] = [value] if kind == TEXTS and isinstance(value, str) else value


def _told(value: Any) -> str:
    """A value of the wrong type, for a message; of a list only what is no text, because a text may hold a password."""
    if isinstance(value, list):
        return repr([entry for entry in value if not isinstance(entry, str)] or "a list").strip("'")
    return without_credentials(repr(value))


def _check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise StartError(f"{option} {value}: not one of {', '.join(choices)}.")
