"""Running the command as a user does, and looking at what is left on a cluster."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ray_nodes import RayNodes

TIMEOUT_SECONDS = 600


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def longdoc(*arguments: object, cwd: Path | None = None, **environment: str) -> Ended:
    """Run `longdoc` to its end in a process of its own."""
    settings = {
        name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")
    }
    done = subprocess.run(
        [sys.executable, "-m", "longdoc", *map(str, arguments)],
        cwd=cwd,
        env=settings | environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    return Ended(code=done.returncode, out=done.stdout, err=done.stderr)


# Run in a process of its own: Ray's state API leaves threads behind.
_LEFT = """
import json, sys
from longdoc.cluster.address import use_own_token
use_own_token()
from ray.util.state import list_actors, list_placement_groups, list_tasks
asked = {"address": sys.argv[1], "limit": 1000}
left = [f"actor {each.class_name} {each.state}" for each in list_actors(**asked) if each.state != "DEAD"]
left += [f"group {each.state}" for each in list_placement_groups(**asked) if each.state != "REMOVED"]
left += [f"task {each.name}" for each in list_tasks(**asked) if each.state not in ("FINISHED", "FAILED")]
print(json.dumps(left))
"""


def left_on(nodes: RayNodes) -> list[str]:
    """Actors that live, placement groups that hold something and tasks that go on, by Ray's own state API."""
    command = [sys.executable, "-c", _LEFT, nodes.jobs_url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    left: list[str] = json.loads(done.stdout.splitlines()[-1])
    return left
