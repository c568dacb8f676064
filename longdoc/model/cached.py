"""The cache of models: one folder a model, which appears whole or not at all, and says where it came from.

Owns the marker file in each folder, the table of what a name stood for when it was pulled, and the one step by which a
folder appears. A folder is made under another name and renamed, so any number of pulls at the same time are safe and a
killed one leaves nothing that could be mistaken for a model.
"""

import contextlib
import importlib.metadata
import json
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from longdoc.errors import ModelError
from longdoc.files import fsync_path, make_folder, replace_file, write_new
from longdoc.model.registry import MARKER, models_folder
from longdoc.records import display

#: Called with a line at each step that takes long.
Report = Callable[[str], None]

_STALE_SECONDS = 24 * 3600
_TEMPORARY = (".pull-*", ".partial-*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a cached model came from. `source` names an exact version; `source_sha256` is that of what was fetched."""

    name: str
    source: str
    source_sha256: str


@contextlib.contextmanager
def appearing(target: Path, provenance: Provenance) -> Iterator[Path]:
    """A folder to fill, which becomes `target` in one step at the end, or goes away where anything fails."""
    with scratch() as folder:
        yield folder
        publish(folder, target, provenance)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder beside the models that is gone when the block ends."""
    make_folder(models_folder())
    _remove_stale(models_folder())
    folder = models_folder() / f".pull-{secrets.token_hex(8)}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(folder: Path, target: Path, provenance: Provenance) -> None:
    """Mark a filled folder and give it its name. Where somebody else was first, theirs stays: it is the same."""
    write_new(folder / MARKER, json_bytes(asdict(provenance) | {"versions": _versions()}))
    fsync_path(folder)
    try:
        folder.rename(target)
    except OSError:
        if not (target / MARKER).is_file():
            raise
    fsync_path(target.parent)


def provenance_of(folder: Path) -> Provenance | None:
    """Where a cached model came from; None for a folder that no pull has finished."""
    try:
        stored = json.loads((folder / MARKER).read_bytes())
        return Provenance(**{name: str(stored[name]) for name in ("name", "source", "source_sha256")})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def cached_models() -> Iterator[tuple[Path, Provenance]]:
    """Every whole model of the cache with its provenance, by folder name."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for folder in sorted(models_folder().iterdir()):
            if provenance := None if folder.name.startswith(".") else provenance_of(folder):
                yield folder, provenance


def remember(asked: str, folder: Path) -> None:
    """From now on `asked` stands for this folder, until it is pulled anew."""
    replace_file(_choice(asked), folder.name.encode("utf-8"))


def remembered(asked: str) -> Path | None:
    """The cached folder that a name stood for when it was pulled last; None where there is none, or it is gone."""
    try:
        folder = models_folder() / _choice(asked).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return folder if provenance_of(folder) else None


@contextlib.contextmanager
def writing(name: str) -> Iterator[None]:
    """Say which cache cannot be written, and what to do, in place of an `OSError`."""
    try:
        yield
    except OSError as error:
        cache = display(str(models_folder()))
        raise ModelError(
            f"model {name}: the cache at {cache} cannot be written ({error.strerror or error}); "
            "make room there, or set LONGDOC_CACHE to a folder with room for the model"
        ) from None


def json_bytes(value: dict[str, Any]) -> bytes:
    """JSON as it is written into the cache: the same bytes on every machine."""
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode("utf-8")


def _choice(asked: str) -> Path:
    return models_folder() / ".names" / quote(asked, safe="")


def _versions() -> dict[str, str]:
    return {package: importlib.metadata.version(package) for package in ("longdoc", "gguf", "numpy")}


def _remove_stale(parent: Path) -> None:
    """What killed pulls left behind more than a day ago; a younger folder may belong to a pull that is running."""
    for left in (path for pattern in _TEMPORARY for path in parent.glob(pattern)):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
