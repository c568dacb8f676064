"""What must hold on every node that may hold a rank, found out before any document is read.

Owns three questions: is the software the same, is the output the same folder, is the model there. Each is asked of all
nodes at once, and a node that does not fit is named with both sides. Weights never travel: a node has the model, or
fetches it by its name.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import Any

from longdoc.cluster.nodes import Node, ask
from longdoc.cluster.placement import GPU_RESERVE_BYTES
from longdoc.errors import LongdocError, ModelError, OutputError, StartError
from longdoc.files import fsync_path, write_new
from longdoc.model.local import LocalModel
from longdoc.records import display
from longdoc.store.places import Places
from longdoc.store.publish import local_folder

#: What must be equal on all nodes, by the names of its packages. The builds of one version (+cpu, +cu130) may differ.
PACKAGES = ("longdoc", "ray", "torch", "transformers")
#: How long a shared folder may take to show on one node what another one wrote, in seconds.
SIGHT_SECONDS = 10.0
#: How long a node may take to fetch a model.
_FETCH_SECONDS = 3600.0
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What a node says of itself: cores of the machine, memory for ranks, that of its fullest GPU (0 without one)."""

    num_cores: int
    free_bytes: int
    gpu_bytes: int


def check_software(nodes: Sequence[Node]) -> dict[str, NodeFacts]:
    """The facts of each node, by node id. Raises `StartError` where versions differ or longdoc cannot be imported."""
    questioner = _questioner()
    here = questioner(PACKAGES)
    problems, facts = [], {}
    for node_id, told in ask(nodes, questioner, lambda _: (PACKAGES,), doing="telling its versions").items():
        node = next(node for node in nodes if node.node_id == node_id)
        if isinstance(told, LongdocError):
            problems.append(f"{told}".rstrip("."))
        else:
            problems += _differences(node, told, here)
            facts[node_id] = told["machine"]
    if problems:
        raise StartError(
            "; ".join(problems) + ". A ring computes with one version of everything: install the same on every node, "
            "and run again."
        )
    return facts


def _differences(node: Node, told: dict[str, Any], here: dict[str, Any]) -> Iterator[str]:
    for name, version in here["versions"].items():
        if (theirs := told["versions"][name]) != version:
            yield f"{node.name} has {f'{name} {theirs}' if theirs else f'no {name}'}, this one has {version}"
    if told["problem"] is not None:
        yield f"{node.name} cannot import longdoc: {told['problem']}"
    elif told["code"] != here["code"] and told["versions"] == here["versions"]:
        yield f"{node.name} has another longdoc {here['versions']['longdoc']}: its code differs from this one's"


def _questioner() -> Callable[[tuple[str, ...]], dict[str, Any]]:
    """The question as a function that travels whole: a node without longdoc must be able to say so."""

    def tell(packages: tuple[str, ...]) -> dict[str, Any]:
        import importlib.metadata
        import platform

        versions: dict[str, str | None] = {"Python": platform.python_version()}
        for name in packages:
            try:
                versions[name] = importlib.metadata.version(name).partition("+")[0]
            except importlib.metadata.PackageNotFoundError:
                versions[name] = None
        told: dict[str, Any] = {"versions": versions, "problem": None, "code": None, "machine": None}
        try:
            from longdoc.cluster import preflight

            told |= {"code": preflight.own_code(), "machine": preflight.own_facts()}
        except Exception as error:
            told["problem"] = f"{type(error).__name__}: {error}"
        return told

    return tell


def own_code() -> str:
    """A digest of what ranks run: between two releases the code changes, and the version does not."""
    from longdoc.kept import code_sha256

    return code_sha256(("cluster", "model", "outputs", "ring", "store", "tokenization"))


def own_facts() -> NodeFacts:
    """This node's facts. Its GPUs are all those of the machine: Ray hides them from a task that reserves none."""
    from longdoc.gpus import installed_gpus
    from longdoc.machine import bytes_for_a_rank, num_cores

    free = min((gpu.free_bytes for gpu in installed_gpus()), default=0)
    return NodeFacts(num_cores=num_cores(), free_bytes=bytes_for_a_rank(1), gpu_bytes=max(0, free - GPU_RESERVE_BYTES))


def check_shared(output: str, nodes: Sequence[Node]) -> None:
    """Raise `OutputError` naming the nodes that see another folder than this one under the output's name.

    This process writes a file below the output, each node answers with another beside it. A node that does not see
    the first makes nothing, and nothing stays behind here.
    """
    folder = Places(root=local_folder(output)).internal
    with _question(output, folder) as (name, token):
        told = ask(
            nodes,
            answer_beside,
            lambda node: (str(folder), name, token, f".{node.node_id[:32]}.{token}"),
            doing=f"looking at {display(output)}",
        )
        problems = []
        for node in (node for node in nodes if node.node_id in told):
            problem = told[node.node_id]
            if problem is None and not _appears(folder / f".{node.node_id[:32]}.{token}", token):
                problem = "what it wrote there does not appear here"
            if problem is not None:
                problems.append(f"{node.name}: {problem}")
    if problems:
        raise OutputError(
            f"{display(output)} is not one folder for all nodes that may hold a rank ({'; '.join(problems)}). Ranks "
            "write there: choose shared storage with --output."
        )


@contextlib.contextmanager
def _question(output: str, folder: Path) -> Iterator[tuple[str, str]]:
    """A file below the output for others to find: its name and what it holds. Afterwards all is as it was."""
    token = token_hex(8)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_new(folder / f".shared.{token}", token.encode())
        fsync_path(folder)
        yield f".shared.{token}", token
    except OSError as error:
        raise OutputError(
            f"{display(output)} is not writable: {error.strerror or error}. Choose another folder with --output."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            for path in folder.glob(f".*.{token}"):
                path.unlink(missing_ok=True)
            for path in made:
                path.rmdir()


def answer_beside(folder: str, name: str, token: str, answer: str) -> str | None:
    """On a node: write the token back beside the file that holds it; why that cannot be done, or None."""
    if not _appears(Path(folder) / name, token):
        return "it does not see what this one writes there"
    try:
        write_new(Path(folder) / answer, token.encode())
    except OSError as error:
        return f"it cannot write there: {error.strerror or error}"
    return None


def _appears(path: Path, token: str) -> bool:
    """Whether a file holds the token, now or soon: shared storage may be late."""
    deadline = time.monotonic() + SIGHT_SECONDS
    while True:
        with contextlib.suppress(OSError):
            if path.read_bytes() == token.encode():
                return True
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)


def check_model(asked: str, model: LocalModel, nodes: Sequence[Node]) -> dict[str, LocalModel]:
    """The model as each node has it, by node id: the same files, perhaps in another folder.

    Raises `ModelError` naming the nodes that do not have it and cannot fetch it.
    """
    told = ask(
        nodes,
        find_there,
        lambda _: (_absolute(asked), model),
        doing=f"looking for model {model.name}",
        seconds=_FETCH_SECONDS,
    )
    there = [node for node in nodes if node.node_id in told]
    problems = [f"{node.name}: {told[node.node_id]}" for node in there if isinstance(told[node.node_id], LongdocError)]
    if problems:
        raise ModelError(
            f"model {model.name} is not on every node that may hold a rank ({'; '.join(problems)}). Put it into the "
            "same folder on each, or name one that can be fetched there (see `longdoc models list`)."
        )
    return {node.node_id: replace(model, folder=Path(told[node.node_id])) for node in there}


def find_there(asked: str, model: LocalModel) -> str:
    """On a node: the folder of this very model, fetched where it is not there. Raises `ModelError`."""
    from longdoc.model.identity import model_digest, model_files
    from longdoc.model.sources import find_model

    with contextlib.suppress(ModelError, OSError):
        if model_digest(model_files(model.folder)) == model.digest:
            return str(model.folder)
    found = find_model(asked)
    if found.digest != model.digest:
        raise ModelError(f"{asked} is another model there ({found.digest[:12]}, here {model.digest[:12]})")
    return str(found.folder)


def _absolute(asked: str) -> str:
    """A path means the same on every node only from the root."""
    path = Path(asked).expanduser()
    return str(path.resolve()) if path.exists() else asked
