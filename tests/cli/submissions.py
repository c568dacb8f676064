"""What the tests of submit and jobs share: a cluster that says yes, and the parts of what it was sent."""

import io
import zipfile
from typing import Any

from jobs_server import JobsServer

from longdoc import __version__
from longdoc.submission.probe import MARK, Answer

FACTS = {"python": "3.11.2", "ray": "2.60.0", "longdoc": __version__, "num_nodes": 3, "problems": ()}


def probed(server: JobsServer, job: dict[str, Any], **facts: Any) -> bool:
    """Answer a probe; False where the job is none."""
    if job["metadata"].get("longdoc_kind") != "probe":
        return False
    server.logs[job["submission_id"]] = f"Running entrypoint\n\n{MARK}{Answer(**FACTS | facts).to_json()}\n"
    server.end(job["submission_id"])
    return True


def willing(server: JobsServer, job: dict[str, Any]) -> None:
    """A cluster that can do it, and has done so at once."""
    if not probed(server, job):
        server.logs[job["submission_id"]] = "alice.txt: 50%, layer 1/2 hop 1/2\nalice.txt: committed\n"
        server.end(job["submission_id"], 0)


def archive(server: JobsServer) -> dict[str, bytes]:
    (content,) = server.packages.values()
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def sent(server: JobsServer) -> bytes:
    """Everything that left this machine."""
    return b"\n".join(f"{path} {headers}".encode() + body for _, path, body, headers in server.requests)
