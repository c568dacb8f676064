"""Opening an output: what makes a folder one, and whether it is the one a run may write to.

Refuses folders that hold something else, folders that cannot be written, file systems without hard links, and outputs
of another schema version, model or set of outputs; each as an `OutputError` that names both sides.
"""

import errno
import json
from pathlib import Path
from secrets import token_hex
from typing import Any

from longdoc.errors import OutputError
from longdoc.files import link_exclusive, make_folder, write_new
from longdoc.records import display
from longdoc.store.places import Places
from longdoc.store.publish import local_folder, stand
from longdoc.store.schemas import SCHEMA_VERSION, OutputIdentity

# What link(2) and file systems without links answer: FAT and exFAT EPERM, SMB EOPNOTSUPP, FUSE ENOSYS.
_NO_LINKS = frozenset({errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK})


def open_output(output: str, identity: OutputIdentity) -> Places:
    """Create the output or open it for writing. Raises `OutputError`."""
    places = Places(root=local_folder(output))
    try:
        make_folder(places.root)
        _refuse_foreign(output, places)
        make_folder(places.scratch)
        _check_writable(output, places.scratch)
        held = stand(places.output_json, _dump(identity))
    except OSError as error:
        cause = error.strerror or str(error)
        raise OutputError(
            f"{display(output)} is not writable: {cause}. Choose another folder with --output."
        ) from error
    _refuse_other(output, _parse(output, held), identity)
    return places


def read_output(output: str) -> tuple[Places, OutputIdentity]:
    """The places and identity of an output that exists. Raises `OutputError` where it is none."""
    places = Places(root=local_folder(output))
    try:
        held = places.output_json.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        what = "is not an output of longdoc" if places.root.exists() else "does not exist"
        raise OutputError(f"{display(output)} {what}. Name the folder that `longdoc run --output` wrote.") from error
    except OSError as error:
        raise OutputError(f"{display(output)} cannot be read: {error.strerror}. Check its permissions.") from error
    return places, _parse(output, held)


def check_ours(output: str) -> None:
    """Raise `OutputError` where the output stands and a run could not go on with it; makes and writes nothing."""
    try:
        _refuse_foreign(output, Places(root=local_folder(output)))
    except FileNotFoundError:
        return
    except OSError as error:
        cause = error.strerror or str(error)
        raise OutputError(f"{display(output)} cannot be an output: {cause}. Choose another folder.") from error


def _refuse_foreign(output: str, places: Places) -> None:
    # A run killed while it made the output leaves `_longdoc` without output.json; that is still ours.
    names = {entry.name for entry in places.root.iterdir()}
    if not places.output_json.exists() and names - {places.internal.name}:
        raise OutputError(
            f"{display(output)} is not empty and not an output of longdoc. Choose an empty or new folder with --output."
        )


def _check_writable(output: str, folder: Path) -> None:
    # Asking by permission bits is wrong for root and for read-only mounts.
    probe = folder / f"probe.{token_hex(8)}"
    second = probe.with_suffix(probe.suffix + ".link")
    write_new(probe, b"")
    try:
        link_exclusive(probe, second)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        raise OutputError(
            f"{display(output)}: its file system has no hard links, which commits need; choose a folder on a local "
            "disk with --output."
        ) from error
    finally:
        for path in (probe, second):
            path.unlink(missing_ok=True)


def _dump(identity: OutputIdentity) -> bytes:
    return (json.dumps(identity.to_json(), indent=2, sort_keys=True) + "\n").encode()


def _parse(output: str, held: bytes) -> OutputIdentity:
    try:
        fields: dict[str, Any] = json.loads(held)
        version = int(fields["schema_version"])
        if version == SCHEMA_VERSION:
            return OutputIdentity.from_json(fields)
    except (ValueError, TypeError, KeyError) as error:
        raise OutputError(
            f"{display(output)}/_longdoc/output.json is damaged: {error}. Restore it, or choose another folder with "
            "--output."
        ) from error
    raise OutputError(
        f"{display(output)} has schema version {version}, this longdoc has version {SCHEMA_VERSION}. "
        "Use the longdoc that wrote it, or choose another folder with --output."
    )


def _refuse_other(output: str, held: OutputIdentity, wanted: OutputIdentity) -> None:
    if (held.model_digest, held.tokenizer_sha256) != (wanted.model_digest, wanted.tokenizer_sha256):
        raise OutputError(
            f"{display(output)} holds model {_model(held)}, this run uses {_model(wanted)}. An output holds one model: "
            f"choose another folder with --output, or use --model {held.model}."
        )
    if held.outputs != wanted.outputs:
        raise OutputError(
            f"{display(output)} holds {_outputs(held)}, this run computes {_outputs(wanted)}. An output holds one set: "
            f"choose another folder with --output, or use --outputs {','.join(held.outputs)}."
        )
    if held.embedding_size != wanted.embedding_size:
        raise OutputError(
            f"{display(output)} holds embeddings of {held.embedding_size} numbers, this run's have "
            f"{wanted.embedding_size}. Choose another folder with --output."
        )


def _model(identity: OutputIdentity) -> str:
    return f"{identity.model} ({identity.model_digest[:12]})"


def _outputs(identity: OutputIdentity) -> str:
    return "the outputs " + (",".join(identity.outputs) or "none")
