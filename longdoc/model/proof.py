"""The proof that a model may run on a ring, kept: the same model, code, dtype, kernel and device is proved once.

Owns what a proof depends on: the model's digest, longdoc's version and the text of the modules that compute, the
versions of torch and transformers, dtype, kernel and device. `longdoc.kept` holds the proofs, below `checks/`.
"""

import importlib.metadata
from collections.abc import Callable

import longdoc
from longdoc.kept import code_sha256, keep, kept
from longdoc.model.gates import Gate, check_shardable
from longdoc.model.load import RingModel
from longdoc.ring.kernels import Kernel

#: Packages below longdoc/ whose text a proof depends on.
_CODE = ("model", "ring")
_KIND = "checks"


def proved_error(model: RingModel, kernel: Kernel, kernel_name: str) -> float:
    """The error of `check_shardable`, as measured now or when the same was proved before. Raises `ModelError`."""
    error = _kept_error(_subject(model, kernel_name))
    return prove(model, kernel, kernel_name) if error is None else error


def prove(
    model: RingModel, kernel: Kernel, kernel_name: str, report: Callable[[Gate], None] = lambda gate: None
) -> float:
    """The error of `check_shardable`, measured now and kept. Raises `ModelError`; a refusal is not kept."""
    error = check_shardable(model, kernel, report=report)
    keep(_KIND, _subject(model, kernel_name), error=error)
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


def _code_sha256() -> str:
    return code_sha256(_CODE)


def _kept_error(subject: dict[str, str]) -> float | None:
    try:
        return float((kept(_KIND, subject) or {})["error"])
    except (ValueError, KeyError, TypeError):
        return None
