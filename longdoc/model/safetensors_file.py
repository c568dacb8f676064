"""The safetensors format, as much of it as is needed to write a model tensor by tensor and to count parameters.

The library's own writer wants every tensor in memory twice, and its header may change from version to version; here a
model of any size passes one tensor at a time and the same tensors always give the same bytes, so the digest of a
built-in model is the same on every machine. Reading weights is left to the library.

Format: 8 bytes little-endian length of the header, the header as JSON, the tensors' bytes without gaps
(https://github.com/huggingface/safetensors, README, section "Format").
"""

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from longdoc.errors import ModelError, ensure
from longdoc.records import display

Float32s = npt.NDArray[np.float32]
_ALIGNMENT = 8
_LARGEST_HEADER = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyTensor:
    """A float32 tensor that is made when it is written. `make` returns exactly `shape`."""

    name: str
    shape: tuple[int, ...]
    make: Callable[[], Float32s] = field(repr=False)


def write_safetensors(path: Path, tensors: Sequence[LazyTensor]) -> None:
    """Write float32 tensors in the order given. Raises `OSError` where the disk does; never overwrites."""
    header = _header(tensors)
    with path.open("xb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for tensor in tensors:
            values = tensor.make()
            ensure(values.shape == tensor.shape, f"{tensor.name} is {values.shape}, not {tensor.shape}")
            file.write(np.ascontiguousarray(values, dtype="<f4").tobytes())


def _header(tensors: Sequence[LazyTensor]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    start = 0
    for tensor in tensors:
        stop = start + 4 * math.prod(tensor.shape)
        entries[tensor.name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [start, stop]}
        start = stop
    raw = json.dumps(entries, separators=(",", ":")).encode("ascii")
    # The format allows trailing spaces, so that the tensors that follow are aligned.
    return raw + b" " * (-len(raw) % _ALIGNMENT)


def tensor_sizes(path: Path) -> dict[str, int]:
    """How many numbers each tensor of a safetensors file holds, from its header. Raises `ModelError` for anything else.

    A file that a broken download cut off has a whole header, so its size is held against what the header says.
    """
    shown = display(str(path))
    try:
        with path.open("rb") as file:
            num_bytes = int.from_bytes(file.read(8), "little")
            if not 2 <= num_bytes <= _LARGEST_HEADER:
                raise ValueError(f"a header of {num_bytes} bytes")
            header = json.loads(file.read(num_bytes))
            found = os.fstat(file.fileno()).st_size
        tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
        expected = 8 + num_bytes + max((int(entry["data_offsets"][1]) for entry in tensors.values()), default=0)
        sizes = {name: int(math.prod(entry["shape"])) for name, entry in tensors.items()}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ModelError(f"{shown}: not a safetensors file ({error}); copy or download it again") from None
    except OSError as error:
        raise ModelError(f"{shown}: cannot be read ({error.strerror or error}); give read access to it") from None
    if found != expected:
        raise ModelError(
            f"{shown}: has {found:,} bytes and its header says {expected:,}: it is damaged or was not copied whole; "
            "copy or download it again"
        )
    return sizes
