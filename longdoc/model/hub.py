"""The one door to the Hugging Face hub: `hf:ORG/NAME[@REVISION]`, pinned to a commit, into the cache.

Downloads config, tokenizer and safetensors, and nothing else: a repository with pickles or GGUF only is refused, and no
code of a repository is ever run. HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE mean what they mean everywhere. Files that
came whole stay for the next try when a pull fails; they count only once all are there and their hashes are the hub's.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longdoc.errors import ModelError
from longdoc.files import make_folder, sha256_file
from longdoc.model.cached import Provenance, Report, publish, remember, writing
from longdoc.model.hub_errors import explained, quiet
from longdoc.model.identity import DESCRIPTIONS, INDEX, SINGLE, is_module_file
from longdoc.model.local import configurations
from longdoc.model.refusals import refuse_by_configuration
from longdoc.model.registry import MARKER, models_folder
from longdoc.records import display, fingerprint
from longdoc.sizes import format_bytes

PREFIX = "hf:"
_REPOSITORY = r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?"
_NAME = re.compile(rf"hf:(?P<repository>{_REPOSITORY})(?:@(?P<revision>[^/@\s]+))?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HubName:
    """What `hf:ORG/NAME[@REVISION]` says. `revision` is a branch, a tag or a commit id; None for `main`."""

    asked: str
    repository: str
    revision: str | None

    @classmethod
    def parse(cls, asked: str) -> "HubName":
        """Raises `ModelError` where the text is of another form; an `@` counts only after the last `/`."""
        found = _NAME.fullmatch(asked)
        if found is None:
            raise ModelError(
                f"model {display(asked)}: not of the form hf:ORG/NAME[@REVISION]; correct it (name a revision with a "
                "slash by its commit id)"
            )
        return cls(asked=asked, **found.groupdict())

    def folder(self, commit: str) -> Path:
        """Where the cache holds the model at a commit."""
        return models_folder() / f"hf-{self.repository.replace('/', '--')}-{commit[:12]}"

    @property
    def pinned_folder(self) -> Path | None:
        """The folder of a name that states a commit id, if the cache holds it."""
        if self.revision is None or not _COMMIT.fullmatch(self.revision):
            return None
        folder = self.folder(self.revision)
        return folder if (folder / MARKER).is_file() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """A repository at one commit: each file's size and hash where the hub states them."""

    commit: str
    files: dict[str, Any]

    def num_bytes(self, names: list[str]) -> int:
        return sum(self.files[name].size or 0 for name in names)


def pull_hub(wanted: HubName, report: Report) -> Path:
    """The cache folder of a model of the hub, at the commit that its revision stands for now. Raises `ModelError`."""
    if folder := wanted.pinned_folder:
        return folder
    _refuse_offline(wanted)
    with writing(wanted.asked), explained(wanted.asked, wanted.revision), quiet():
        listing = _list(wanted)
        target = wanted.folder(listing.commit)
        if not (target / MARKER).is_file():
            with _partial(target) as folder:
                # Another process may have finished while this one waited for its turn.
                if not (target / MARKER).is_file():
                    _fill(folder, target, wanted, listing, report)
        remember(wanted.asked, target)
    return target


def _refuse_offline(wanted: HubName) -> None:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or os.environ.get("HF_HUB_OFFLINE", "").upper() in constants.ENV_VARS_TRUE_VALUES:
        raise ModelError(
            f"model {wanted.asked}: HF_HUB_OFFLINE forbids to ask the hub for it; unset that, or name a model that "
            "`longdoc models list` shows"
        )


def _api() -> Any:
    from huggingface_hub import HfApi

    return HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)


def _list(wanted: HubName) -> _Listing:
    info = _api().model_info(
        wanted.repository, revision=wanted.revision or "main", files_metadata=True, timeout=_SECONDS
    )
    if not isinstance(info.sha, str) or not _COMMIT.fullmatch(info.sha):
        raise ModelError(f"model {wanted.asked}: the hub names no commit for it; check HF_ENDPOINT")
    return _Listing(commit=info.sha, files={file.rfilename: file for file in info.siblings or ()})


def _fill(folder: Path, target: Path, wanted: HubName, listing: _Listing, report: Report) -> None:
    """Fetch what describes the model, refuse what cannot be used, then fetch the weights."""
    from longdoc.tokenization.vocabulary import Vocabulary  # not at the top: listing models needs no tokenizer

    described = [name for name in listing.files if name in (*DESCRIPTIONS, INDEX) or _is_small_module_file(name)]
    missing = [name for name in ("config.json", "tokenizer.json") if name not in described]
    if missing:
        raise ModelError(f"model {wanted.asked}: its repository has no {' and no '.join(missing)}; name another model")
    report(f"{wanted.asked} is commit {listing.commit}")
    _download(folder, wanted, listing, described, report)
    weights = _weights(folder, wanted, listing)
    whole_config, _ = configurations(folder)
    refuse_by_configuration(whole_config, wanted.repository)
    Vocabulary.load(folder)
    _check_room(folder, wanted, listing, weights)
    _download(folder, wanted, listing, weights, report)
    files = sorted([*described, *weights])
    _verify(folder, wanted, listing, files)
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    sha256 = fingerprint((name, sha256_file(folder / name)) for name in files)
    source = f"{PREFIX}{wanted.repository}@{listing.commit}"
    publish(folder, target, Provenance(name=wanted.repository, source=source, source_sha256=sha256))


def _is_small_module_file(name: str) -> bool:
    return is_module_file(name) and name.endswith(".json")


def _weights(folder: Path, wanted: HubName, listing: _Listing) -> list[str]:
    """The weights that longdoc would load, and those of modules behind the model. Raises `ModelError` without any."""
    modules = [name for name in listing.files if is_module_file(name) and not name.endswith(".json")]
    if SINGLE in listing.files:
        return [SINGLE, *modules]
    if INDEX in listing.files:
        try:
            shards = sorted(set(json.loads((folder / INDEX).read_bytes())["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ModelError(
                f"model {wanted.asked}: its {INDEX} is not an index of weights; name another revision"
            ) from None
        absent = [name for name in shards if name not in listing.files]
        if absent:
            raise ModelError(
                f"model {wanted.asked}: its {INDEX} names {absent[0]}, which the repository does not have; "
                "name another revision"
            )
        return [*shards, *modules]
    raise ModelError(f"model {wanted.asked}: {_why_no_weights(list(listing.files))}")


def _why_no_weights(names: list[str]) -> str:
    pickles = [name for name in names if name.endswith((".bin", ".pt", ".pth", ".ckpt"))]
    if pickles:
        return (
            f"it has {pickles[0]} and no safetensors, and pickles are never loaded: they run whatever code they carry; "
            "name a revision with safetensors (often refs/pr/N, by its commit id), or convert it and name the folder"
        )
    if ggufs := [name for name in names if name.endswith(".gguf")]:
        return f"it has {ggufs[0]} and no safetensors; download that file and name its path"
    return "it has no safetensors; name another model"


def _check_room(folder: Path, wanted: HubName, listing: _Listing, names: list[str]) -> None:
    needed = listing.num_bytes([name for name in names if not (folder / name).is_file()])
    free = _free_bytes(folder)
    if needed > free:
        raise ModelError(
            f"model {wanted.asked}: it takes {format_bytes(needed)} and {display(str(models_folder()))} has "
            f"{format_bytes(free)} free; make room, or set LONGDOC_CACHE to a folder that has it"
        )


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _download(folder: Path, wanted: HubName, listing: _Listing, names: list[str], report: Report) -> None:
    api = _api()
    for name in names:
        if (size := listing.files[name].size or 0) > 10_000_000 and not (folder / name).is_file():
            report(f"downloading {name} ({size / 1e6:,.0f} MB)")
        # Into a folder, a file that is whole is not fetched again.
        api.hf_hub_download(wanted.repository, name, revision=listing.commit, local_dir=folder)


def _verify(folder: Path, wanted: HubName, listing: _Listing, names: list[str]) -> None:
    """Compare each file with the hash that the hub states: SHA-256 of large files, git's object id of the others."""
    for name in names:
        path, file = folder / name, listing.files[name]
        if file.lfs is not None:
            wanted_hash, found = file.lfs.sha256, sha256_file(path)
        elif file.blob_id:
            wanted_hash, found = file.blob_id, _git_object_id(path)
        else:  # a mirror that states none; the library has compared the sizes
            continue
        if found != wanted_hash:
            path.unlink()
            raise ModelError(
                f"model {wanted.asked}: checksum mismatch of {name}: the hub states {wanted_hash}, got {found}; the "
                "file was removed and not used. Pull again; if that does not help, check HF_ENDPOINT and proxies"
            )


def _git_object_id(path: Path) -> str:
    """SHA-1 over `blob SIZE NUL content`, as git names it (gitformat-pack; git-hash-object)."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


@contextlib.contextmanager
def _partial(target: Path) -> Iterator[Path]:
    """The folder in which a model comes together, for one process at a time; it stays where the block fails."""
    folder = target.with_name(f".partial-{target.name}")
    make_folder(target.parent)
    with (target.parent / f".lock-{target.name}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        make_folder(folder)
        yield folder
        shutil.rmtree(folder, ignore_errors=True)
