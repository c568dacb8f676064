"""The one door to nvidia-smi: which GPUs this process may use, and how much of their memory is free.

Opens no device: a driver that looked through CUDA would leave some hundred MB on every GPU that its ranks need.
"""

import functools
import os
import subprocess
from dataclasses import dataclass

_QUERY = ("nvidia-smi", "--query-gpu=index,uuid,name,memory.total,memory.free", "--format=csv,noheader,nounits")
_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, by its physical index."""

    index: int
    uuid: str
    name: str
    total_bytes: int
    free_bytes: int


def visible_gpus() -> tuple[Gpu, ...]:
    """The GPUs of this machine that CUDA_VISIBLE_DEVICES leaves; none where there is no NVIDIA driver."""
    return chosen(installed_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))


def installed_gpus() -> tuple[Gpu, ...]:
    """All GPUs of this machine, whoever may use them; none where there is no NVIDIA driver."""
    try:
        told = subprocess.run(_QUERY, capture_output=True, text=True, check=True, timeout=_SECONDS).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return parse(told)


def parse(told: str) -> tuple[Gpu, ...]:
    """What nvidia-smi prints for `_QUERY`: a line for each GPU, memory in MiB. Lines that say something else are none.

    Columns: `nvidia-smi --help-query-gpu`.
    """
    found = []
    for line in told.splitlines():
        columns = [column.strip() for column in line.split(",")]
        if len(columns) != 5 or not all(columns[place].isdigit() for place in (0, 3, 4)):
            continue
        index, uuid, name, total, free = columns
        found.append(
            Gpu(index=int(index), uuid=uuid, name=name, total_bytes=int(total) << 20, free_bytes=int(free) << 20)
        )
    return tuple(found)


def chosen(gpus: tuple[Gpu, ...], visible: str | None) -> tuple[Gpu, ...]:
    """Those that a value of CUDA_VISIBLE_DEVICES leaves, in its order, up to the first entry that names none.

    Source: CUDA C++ programming guide, "CUDA environment variables".
    """
    if visible is None:
        return gpus
    left = []
    for entry in filter(None, (entry.strip() for entry in visible.split(","))):
        named = [gpu for gpu in gpus if entry == str(gpu.index) or (entry[:4] == "GPU-" and gpu.uuid.startswith(entry))]
        if len(named) != 1:
            break
        left += named
    return tuple(left)


@functools.cache
def cuda_problem() -> str | None:
    """Why no ring can compute on CUDA here, or None where one can. Imports torch only where there is a GPU."""
    if not visible_gpus():
        return "nvidia-smi finds no GPU that this process may use"
    import torch

    if not torch.cuda.is_available():
        built = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
        return f"torch {torch.__version__}, built {built}, sees no GPU"
    return None
