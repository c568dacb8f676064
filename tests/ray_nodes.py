"""A Ray cluster on this machine, for tests: a head with the Jobs API and workers, each in processes of its own.

Owns their lives: ports that the system picks, a temporary folder for each node, an end by process id, and the check
that nothing is left. Nodes differ in their loopback address (127.0.0.2, 127.0.0.3, ...), as nodes of a real cluster do.
Nothing here calls `ray stop`, which would end every Ray of this machine.
"""

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

_START_SECONDS = 600.0
_END_SECONDS = 20.0
_OBJECT_STORE_BYTES = 150_000_000
_MARK = "LONGDOC_TEST_NODES"
# What a node's processes need: no statistics to anybody, no metrics, workers at the priority of the tests.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_worker_niceness": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "RAY_START_HOOK": "ray_nodes.without_client_server",
    # Both are 30 s by default, and this machine may be busy with other tests.
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_worker_register_timeout_seconds": "120",
}
_GCS = re.compile(r"ray start --address='([^']+)'")
_HAS_TOKEN = "Token authentication is enabled"
_JOBS = re.compile(r"RAY_API_SERVER_ADDRESS='(http://[^']+)'")


@dataclass(slots=True, kw_only=True)
class RayNode:
    """One node: the `ray start --block` process whose end is the node's end, and its host address."""

    host: str
    process: subprocess.Popen[str]
    log: Path

    def kill(self) -> None:
        """End the node without a word, as a machine that loses power: every process of it, the raylet first."""
        family = [self.process, *psutil.Process(self.process.pid).children(recursive=True)]
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                member.kill()
        self.process.wait(_END_SECONDS)


@dataclass(slots=True, kw_only=True)
class RayNodes:
    """A running cluster. `address` is what `--address` takes, `jobs_url` what a submission takes."""

    address: str
    jobs_url: str
    head: RayNode
    workers: list[RayNode] = field(default_factory=list)


def without_client_server(params: Any, is_head: bool) -> None:
    """Called by `ray start`: no server for Ray Client, whose port cannot be left to the system."""
    params.ray_client_server_port = None


@contextlib.contextmanager
def ray_nodes(cpus: Sequence[float] = (2, 2, 2), *, environment: dict[str, str] | None = None) -> Iterator[RayNodes]:
    """A head and `len(cpus) - 1` workers with so many logical CPUs each; all of them gone when the block ends.

    `environment` is added to every node's. Raises `RuntimeError` with the end of a node's log where one does not start,
    and where a process of the cluster outlives it.
    """
    mark = secrets.token_hex(8)
    folder = Path(tempfile.mkdtemp(prefix="rn-", dir="/tmp"))
    nodes: list[RayNode] = []
    settings = os.environ | _ENVIRONMENT | {_MARK: mark} | (environment or {})
    settings.pop("RAY_ADDRESS", None)
    settings["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), settings.get("PYTHONPATH")]))
    try:
        nodes.append(_start(folder / "0", "127.0.0.2", cpus[0], settings, _HEAD))
        told = _wait_for(nodes[0], "To terminate the Ray runtime")
        address, jobs_url = _found(_GCS, told), _found(_JOBS, told)
        if _HAS_TOKEN in told:
            # A head takes the token that this user has; a worker does so only when it is told to.
            settings["RAY_AUTH_MODE"] = "token"
        for number, count in enumerate(cpus[1:], 1):
            options = (f"--address={address}",)
            nodes.append(_start(folder / str(number), f"127.0.0.{number + 2}", count, settings, options))
        for node in nodes[1:]:
            _wait_for(node, "To terminate the Ray runtime")
        yield RayNodes(address=address, jobs_url=jobs_url, head=nodes[0], workers=nodes[1:])
    finally:
        _end(nodes, mark)
        shutil.rmtree(folder, ignore_errors=True)


_HEAD = ("--head", "--port=0", "--dashboard-host=127.0.0.1", "--dashboard-port=0", "--include-dashboard=true")


def _start(folder: Path, host: str, cpus: float, settings: dict[str, str], options: Sequence[str]) -> RayNode:
    folder.mkdir(parents=True)
    log = folder / "start.log"
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", *options),
        *(f"--node-ip-address={host}", f"--num-cpus={cpus:g}", "--num-gpus=0", f"--temp-dir={folder}"),
        *(f"--object-store-memory={_OBJECT_STORE_BYTES}", "--log-style=record"),
        *("--no-monitor", "--include-log-monitor=false", "--dashboard-agent-listen-port=0"),
    ]
    with log.open("w") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, text=True, env=settings, start_new_session=True
        )
    return RayNode(host=host, process=process, log=log)


def _wait_for(node: RayNode, line: str) -> str:
    """What the node has printed, once `line` is among it."""
    deadline = time.monotonic() + _START_SECONDS
    while line not in (told := node.log.read_text()):
        if node.process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the Ray node at {node.host} did not start:\n{told[-3000:]}")
        time.sleep(0.05)
    return told


def _found(pattern: re.Pattern[str], told: str) -> str:
    match = pattern.search(told)
    if match is None:
        raise RuntimeError(f"{pattern.pattern} is not in what the head printed:\n{told}")
    return match[1]


def _end(nodes: list[RayNode], mark: str) -> None:
    """End workers first, then the head; whatever carries the mark and is still there is killed and told."""
    for node in reversed(nodes):
        with contextlib.suppress(ProcessLookupError):
            node.process.send_signal(signal.SIGTERM)
    for node in nodes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            node.process.wait(_END_SECONDS)
    deadline = time.monotonic() + _END_SECONDS
    while (left := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    for node in nodes:
        node.process.wait(_END_SECONDS)
    if left:
        raise RuntimeError(f"processes of the cluster outlived it: {left}")


def _marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(_MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
