"""Which files make a model, and the one digest that says that two models are the same.

Owns the list of files that longdoc reads from a model's folder and their hashes. Refuses folders with a piece
missing, and weights in pickles: loading one runs whatever code it carries.
"""

import contextlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from longdoc.errors import ModelError
from longdoc.files import cache_folder, replace_file, sha256_file
from longdoc.records import display, fingerprint

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
#: The small files that longdoc may read of a model; those of sentence-transformers state how states become embeddings.
DESCRIPTIONS = (
    "config.json",
    "tokenizer.json",
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
)
_MODULE_FILE = re.compile(r"\d+_\w+/(config\.json|model\.safetensors)", re.ASCII)
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """The files of one model: config.json, tokenizer.json, and the weights in the order of their names."""

    config: Path
    tokenizer: Path
    weights: tuple[Path, ...]

    @property
    def all(self) -> tuple[Path, ...]:
        """Every file whose content is part of the model's identity."""
        return (self.config, self.tokenizer, *self.weights)


def model_files(folder: Path) -> ModelFiles:
    """Find the files of a model. Raises `ModelError` naming every piece that is missing."""
    missing = [name for name in ("config.json", "tokenizer.json") if not (folder / name).is_file()]
    weights = _weights(folder)
    if not weights:
        missing.append("*.safetensors")
    if missing:
        pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
        advice = (
            f"{pickles[0]} is a pickle and is never loaded: convert it to safetensors (save_pretrained does)"
            if pickles and not weights
            else "a model is config.json, tokenizer.json and *.safetensors; add what is missing"
        )
        raise ModelError(f"model {display(str(folder))}: no {' and no '.join(missing)}; {advice}")
    return ModelFiles(config=folder / "config.json", tokenizer=folder / "tokenizer.json", weights=weights)


def _weights(folder: Path) -> tuple[Path, ...]:
    """The single file, else the shards that the index names: what transformers would load, and nothing beside it."""
    single, index = folder / SINGLE, folder / INDEX
    if single.is_file():
        return (single,)
    if not index.is_file():
        return ()
    shown = display(str(folder))
    try:
        names = sorted({str(name) for name in json.loads(index.read_bytes())["weight_map"].values()})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ModelError(f"model {shown}: {INDEX} is not an index of weights; copy or download it again") from None
    absent = [name for name in names if not (folder / name).is_file()]
    if absent:
        raise ModelError(
            f"model {shown}: {INDEX} names {len(names)} files and {len(absent)} are missing, "
            f"the first is {absent[0]}; copy or download them"
        )
    return tuple(folder / name for name in names)


def is_module_file(name: str) -> bool:
    """Whether a path below a model's folder belongs to a module of sentence-transformers, such as `1_Pooling`."""
    return _MODULE_FILE.fullmatch(name) is not None


def is_part_of_a_model(name: str) -> bool:
    """Whether longdoc could read the file of this path below a model's folder."""
    at_top = "/" not in name and (name in DESCRIPTIONS or name == INDEX or name.endswith(".safetensors"))
    return at_top or is_module_file(name)


def model_digest(files: ModelFiles) -> str:
    """SHA-256 over the names and contents of a model's files, hexadecimal.

    Hashing gigabytes takes seconds, so the result is remembered in the cache under every file's size and time of
    change: a file that was touched is hashed again.
    """
    return _once(files.all, lambda: fingerprint((path.name, sha256_file(path)) for path in files.all))


def remembered_sha256(path: Path) -> str:
    """SHA-256 of one file's bytes, hexadecimal, remembered as `model_digest` is."""
    return _once((path,), lambda: sha256_file(path))


def _once(paths: tuple[Path, ...], digest_of: Callable[[], str]) -> str:
    stamps = [(str(path.resolve()), path.stat()) for path in paths]
    key = fingerprint((name, f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ino}") for name, stat in stamps)
    known = cache_folder() / "digests" / key
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if len(digest := known.read_text("ascii")) == len(key):
            return digest
    digest = digest_of()
    # A cache that cannot be written costs time, never a result.
    with contextlib.suppress(OSError):
        replace_file(known, digest.encode("ascii"))
    return digest
