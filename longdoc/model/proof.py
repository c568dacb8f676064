"""The proof that a model may run on a ring, kept: the same model, code, dtype, kernel and device is proved once.

Owns the files under `checks/` in the cache folder. A proof counts only while everything that it depends on is the same:
the model's digest, longdoc's version and the text of the modules that compute, the versions of torch and transformers,
dtype, kernel and device. One that cannot be read counts for nothing; one that cannot be kept is made again next time.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import longdoc
from longdoc.errors import LongdocError
from longdoc.files import cache_folder, replace_file
from longdoc.model.gates import Gate, check_shardable
from longdoc.model.load import RingModel
from longdoc.ring.kernels import Kernel

#: Packages below longdoc/ whose text a proof depends on.
_CODE = ("model", "ring")


def proved_error(model: RingModel, kernel: Kernel, kernel_name: str) -> float:
    """The error of `check_shardable`, as measured now or when the same was proved before. Raises `ModelError`."""
    error = _kept(_subject(model, kernel_name))
    return prove(model, kernel, kernel_name) if error is None else error


def prove(
    model: RingModel, kernel: Kernel, kernel_name: str, report: Callable[[Gate], None] = lambda gate: None
) -> float:
    """The error of `check_shardable`, measured now and kept. Raises `ModelError`; a refusal is not kept."""
    error = check_shardable(model, kernel, report=report)
    _keep(_subject(model, kernel_name), error)
    return error


def _subject(model: RingModel, kernel_name: str) -> dict[str, str]:
    """Everything that the outcome of a check depends on."""
    import torch

    device = torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else model.device.type
    return {
        "model": model.local.digest,
        "longdoc": longdoc.__version__,
        "code": _code_sha256(),
        "torch": torch.__version__,
        "transformers": importlib.metadata.version("transformers"),
        "dtype": str(model.dtype),
        "kernel": kernel_name,
        "device": device,
    }


@functools.cache
def _code_sha256() -> str:
    """SHA-256 of the modules that compute: between two releases their text changes and the version does not."""
    root, digest = Path(longdoc.__file__).parent, hashlib.sha256()
    for path in sorted(path for package in _CODE for path in (root / package).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _path(subject: dict[str, str]) -> Path:
    return cache_folder() / "checks" / f"{hashlib.sha256(json.dumps(subject).encode()).hexdigest()[:32]}.json"


def _kept(subject: dict[str, str]) -> float | None:
    try:
        proof: dict[str, Any] = json.loads(_path(subject).read_text())
        return float(proof["error"]) if proof["subject"] == subject else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(subject: dict[str, str], error: float) -> None:
    # A cache that cannot be written costs a check in the next run, and nothing else.
    with contextlib.suppress(OSError, LongdocError):
        replace_file(_path(subject), json.dumps({"subject": subject, "error": error}, indent=2).encode())
