"""What is checked of a submission on this machine, before the cluster is asked anything.

The options are those of a run and are refused in the same words, but for what only the machine that computes can
tell (its GPUs). Refuses paths that mean something on this machine alone.
"""

import os
import re
from collections.abc import Mapping
from importlib.metadata import requires
from pathlib import Path
from typing import Any

from longdoc.config import RunConfig
from longdoc.errors import ModelError, OutputError, StartError
from longdoc.model.registry import BUILT_INS
from longdoc.model.sources import check_name
from longdoc.records import display
from longdoc.store.publish import local_folder

_RAY = re.compile(r"ray(?:\[[^\]]*\])?\s*>=\s*(?P<least>[0-9]+(?:\.[0-9]+)*)")
_NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+)*")


def check_options(options: Mapping[str, Any]) -> None:
    """Raise what `RunConfig` raises for them, whatever GPUs this machine has; and for an output only it would have."""
    # With an address, the device is one of the cluster's nodes.
    RunConfig(**{**options, "address": "auto"})
    check_output(str(options["output"]))


def check_output(output: str) -> None:
    """Raise `OutputError` unless the output is named from the root: a job's own folder goes with the job."""
    local_folder(output)
    if not os.path.isabs(output):  # noqa: PTH117
        cause = f"{display(output)} is relative, and a submitted job runs in a folder that goes with it."
        raise OutputError(
            f"{cause} Name a folder that all nodes of the cluster share by its whole path, with --output."
        )


def check_model(name: str) -> str | None:
    """The path on the cluster that a model's name is, or None for a name that the cluster pulls by.

    Raises `ModelError` for an unknown name and for a folder or file of this machine.
    """
    if os.path.isabs(name):  # noqa: PTH117
        return name
    if name not in BUILT_INS and (name.startswith((".", "~")) or _is_here(name)):
        cause = f"model {display(name)} is a folder or file of this machine, and models are not shipped."
        raise ModelError(
            f"{cause} Put it where the cluster's nodes see it and name its whole path, or use hf:ORG/NAME."
        )
    check_name(name)
    return None


def check_ray(address: str, found: str) -> None:
    """Raise `StartError` where the cluster's Ray is older than the one that longdoc needs."""
    least = next(match["least"] for each in requires("longdoc") or () if (match := _RAY.match(each)))
    numbers = _NUMBERS.match(found)
    if numbers is None or _parts(numbers.group()) < _parts(least):
        cause = f"{address} runs Ray {display(found)}, and longdoc needs {least} or newer."
        raise StartError(f"{cause} Submit to a cluster of a newer Ray.")


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _is_here(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        return False
