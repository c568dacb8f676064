"""A Ray cluster on this machine, for tests: a head with the Jobs API and workers, each in processes of its own.

Owns their lives: ports that the system picks, a temporary folder for each node, an end by process id, and the check
that nothing is left. Nodes differ in their loopback address (127.0.0.2, 127.0.0.3, ...), as nodes of a real cluster do.
Nothing here calls `ray stop`, which would end every Ray of this machine.
"""

import contextlib
import json
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
_STARTED = "To terminate the Ray runtime"
_TOO_SLOW = "The current node timed out during startup"
_HAS_TOKEN = "Token authentication is enabled"
_JOBS = re.compile(r"RAY_API_SERVER_ADDRESS='(http://[^']+)'")


@dataclass(slots=True, kw_only=True)
class RayNode:
    """One node: the `ray start --block` process whose end is the node's end, and its host address."""

    host: str
    command: list[str]
    settings: dict[str, str] = field(repr=False)
    log: Path
    process: subprocess.Popen[str] = field(init=False)

    def start(self) -> None:
        """Start it; `wait` says when it is there."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("w") as file:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                text=True,
                env=self.settings,
                start_new_session=True,
            )

    def wait(self) -> str:
        """What it has printed, once it is part of the cluster. Raises `RuntimeError` where it never is."""
        deadline = time.monotonic() + _START_SECONDS
        while _STARTED not in (told := self.log.read_text()):
            has_ended = self.process.poll() is not None
            if has_ended and _TOO_SLOW in told and time.monotonic() < deadline:
                # Ray gives a node 30 s to start, which a busy machine may not.
                self.start()
            elif has_ended or time.monotonic() > deadline:
                raise RuntimeError(f"the Ray node at {self.host} did not start:\n{told[-3000:]}")
            time.sleep(0.05)
        return told

    def stop(self) -> None:
        """End the node as an operator does: the cluster knows at once that it is gone."""
        self.process.terminate()
        self.process.wait(_END_SECONDS)

    def kill(self) -> None:
        """End the node without a word, as a machine that loses power: every process of it, the raylet first."""
        family = [self.process, *psutil.Process(self.process.pid).children(recursive=True)]
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                member.kill()
        self.process.wait(_END_SECONDS)


@dataclass(slots=True, kw_only=True)
class RayNodes:
    """A running cluster. `address` is what `--address` takes, `jobs_url` what a submission takes.

    `settings` is the environment of its processes.
    """

    address: str
    jobs_url: str
    folder: Path
    settings: dict[str, str] = field(repr=False)
    nodes: list[RayNode]

    @property
    def head(self) -> RayNode:
        """The node with the GCS and the Jobs API; a driver on this machine belongs to it."""
        return self.nodes[0]

    @property
    def workers(self) -> list[RayNode]:
        """The other nodes."""
        return self.nodes[1:]

    def add_workers(self, cpus: Sequence[float], *, before: Sequence[str] = ()) -> list[RayNode]:
        """Start workers at the same time and wait for them; `before` is a command that runs each, such as `unshare`."""
        started = []
        for count in cpus:
            number = len(self.nodes)
            options = (f"--address={self.address}",)
            command = _command(f"127.0.0.{number + 2}", count, self.folder / str(number), options, before)
            log = self.folder / f"{number}.log"
            node = RayNode(host=f"127.0.0.{number + 2}", command=command, settings=self.settings, log=log)
            self.nodes.append(node)
            started.append(node)
            node.start()
        for node in started:
            node.wait()
        return started

    def left_behind(self) -> list[str]:
        """What jobs left on the cluster: actors that live or wait, placement groups, reserved resources. In words."""
        asked = subprocess.run(
            [sys.executable, "-c", _LEFT, self.address],
            env=self.settings | {"RAY_ADDRESS": self.address},
            capture_output=True,
            text=True,
            timeout=_START_SECONDS,
            check=False,
        )
        if asked.returncode:
            raise RuntimeError(f"the cluster cannot be asked:\n{asked.stderr}")
        left: list[str] = json.loads(asked.stdout.splitlines()[-1])
        return left


# Asked for a while: what a job held is let go soon after it, not with it.
_LEFT = """
import json, sys, time
import ray
from ray._private import state
from ray.util import placement_group_table

ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
deadline = time.monotonic() + 30
while True:
    left = [f"actor {actor['ActorClassName']} {actor['State']}" for actor in state.actors().values()
            if actor["State"] != "DEAD"]
    left += [f"placement group {group['state']}" for group in placement_group_table().values()
             if group["state"] != "REMOVED"]
    totals, free = state.total_resources_per_node(), state.available_resources_per_node()
    left += [f"{total[name] - free.get(node, {}).get(name, 0):g} {name} on {node}" for node, total in totals.items()
             for name in ("CPU", "GPU") if total.get(name, 0) - free.get(node, {}).get(name, 0) > 1e-3]
    if not left or time.monotonic() > deadline:
        break
    time.sleep(0.2)
print(json.dumps(left))
"""


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
    settings = os.environ | _ENVIRONMENT | {_MARK: mark} | (environment or {})
    settings.pop("RAY_ADDRESS", None)
    settings["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), settings.get("PYTHONPATH")]))
    nodes: list[RayNode] = []
    try:
        command = _command("127.0.0.2", cpus[0], folder / "0", _HEAD)
        nodes.append(RayNode(host="127.0.0.2", command=command, settings=settings, log=folder / "0.log"))
        nodes[0].start()
        told = nodes[0].wait()
        if _HAS_TOKEN in told:
            # A head takes the token that this user has; a worker does so only when it is told to.
            settings["RAY_AUTH_MODE"] = "token"
        cluster = RayNodes(
            address=_found(_GCS, told), jobs_url=_found(_JOBS, told), folder=folder, settings=settings, nodes=nodes
        )
        cluster.add_workers(cpus[1:])
        yield cluster
    finally:
        _end(nodes, mark)
        shutil.rmtree(folder, ignore_errors=True)


_HEAD = ("--head", "--port=0", "--dashboard-host=127.0.0.1", "--dashboard-port=0", "--include-dashboard=true")


def _command(host: str, cpus: float, folder: Path, options: Sequence[str], before: Sequence[str] = ()) -> list[str]:
    return [
        *(*before, sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", *options),
        *(f"--node-ip-address={host}", f"--num-cpus={cpus:g}", "--num-gpus=0", f"--temp-dir={folder}"),
        *(f"--object-store-memory={_OBJECT_STORE_BYTES}", "--log-style=record"),
        *("--no-monitor", "--include-log-monitor=false", "--dashboard-agent-listen-port=0"),
    ]


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
