"""A submission, from the options of a run to a job of a Ray cluster, told once.

Owns the order: nothing leaves this machine before every option is checked, nothing is uploaded before the cluster said
that it can run the job. The job is the ordinary command line in a working folder that holds its job file and what was
shipped, so the same run differs by one word. The user's environment is not sent.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longdoc import __version__
from longdoc.cluster.jobs import JobsClient, entrypoint_of
from longdoc.errors import StartError
from longdoc.records import Selection
from longdoc.submission.cargo import Cargo, CargoFile, Packer
from longdoc.submission.checks import check_model, check_options, check_ray
from longdoc.submission.job_file import job_file
from longdoc.submission.package import Package, build, working_folder
from longdoc.submission.preflight import OWNER, ask
from longdoc.submission.probe import Answer, Question

JOB_FILE = "job.toml"
#: Metadata of a submitted run, for `longdoc jobs`.
OUTPUT, MODEL, SOURCES = "longdoc_output", "longdoc_model", "longdoc_sources"
# Ray gives a job this long between SIGTERM and SIGKILL; its own 3 s are short for a run that lets go of a cluster.
_STOP_SECONDS = 20

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be run. `options` are those of `RunConfig`; `remote_paths` and `python` mean the cluster's nodes."""

    arguments: Sequence[str]
    remote_paths: Sequence[str]
    selection: Selection
    options: Mapping[str, Any]
    python: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A job that was handed over."""

    job_id: str
    address: str
    num_sources: int
    package: Package
    answer: Answer


def submit(client: JobsClient, order: Order, packer: Packer, *, packed: Callable[[Cargo, Package], None]) -> Submitted:
    """Check, pack, ask, upload, start. `packed` is told what would be uploaded, before anything is.

    Raises `StartError` for all that is wrong on either side, and `InfrastructureError` for a fault of the cluster.
    """
    if not order.arguments and not order.remote_paths:
        raise StartError("no source is named; name a book file, a folder of books or a git repository.")
    check_options(order.options)
    model_path = check_model(order.options["model"])
    check_ray(client.address, client.ray_version())
    with working_folder() as folder:
        cargo = packer(order.arguments, order.remote_paths, order.selection, folder)
        content = job_file(job_options(order, cargo))
        job_toml = CargoFile(name=JOB_FILE, label="the job file", content=content)
        package = build([job_toml, *cargo.files], folder / "package.zip")
        packed(cargo, package)
        question = Question(
            output=order.options["output"],
            device=order.options["device"],
            ring_size=order.options["ring_size"],
            sources=cargo.named,
            selection=order.selection,
            model_path=model_path,
        )
        answer = ask(client, question, python=order.python)
        if not client.has_package(package.name):
            client.upload(package.name, package.path.read_bytes())
    job_id = _start(client, order, cargo, package)
    return Submitted(
        job_id=job_id, address=client.address, num_sources=cargo.num_sources, package=package, answer=answer
    )


def job_options(order: Order, cargo: Cargo) -> dict[str, Any]:
    """Every option of the run by its name in a job file, the sources as they are called in the working folder."""
    chosen = order.selection
    options = {name: value for name, value in order.options.items() if name not in ("address", "ring_size")}
    return {
        "sources": cargo.arguments,
        **options,
        "ring_size": "auto" if order.options["ring_size"] is None else order.options["ring_size"],
        "kind": chosen.kind,
        "include": chosen.include or None,
        "exclude": chosen.exclude or None,
        "revision": chosen.revision,
        "submodules": chosen.submodules,
        "lfs": chosen.lfs,
    }


def _start(client: JobsClient, order: Order, cargo: Cargo, package: Package) -> str:
    job_id = f"longdoc-{secrets.token_hex(4)}"
    command = [order.python, "-m", "longdoc", "run", "--config", JOB_FILE, "--address", "auto"]
    client.submit(
        job_id,
        entrypoint=entrypoint_of(command),
        runtime_env={
            "working_dir": f"gcs://{package.name}",
            "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_SECONDS)},
        },
        metadata={
            OWNER: __version__,
            OUTPUT: str(Path(order.options["output"])),
            MODEL: order.options["model"],
            SOURCES: str(cargo.num_sources),
        },
    )
    return job_id
