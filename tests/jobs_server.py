"""A server on loopback that answers like Ray's Jobs API, for tests: what it is asked is recorded, what it says is set.

Its routes, states and answers are those of Ray's documented REST API. It runs nothing: a test moves its jobs on.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VERSION = {"version": "4", "ray_version": "2.60.0", "ray_commit": "x", "session_name": "session_x"}


@dataclass(kw_only=True)
class JobsServer:
    """`on_submit` may change a job that arrives; `fails` says, per request (method, path), an answer of its own."""

    url: str = ""
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    packages: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str, bytes, dict[str, str]]] = field(default_factory=list)
    on_submit: Callable[["JobsServer", dict[str, Any]], None] = lambda server, job: None
    on_ask: Callable[["JobsServer", str], None] = lambda server, path: None
    fails: Callable[[str, str], tuple[int, str] | None] = lambda method, path: None
    version: Any = field(default_factory=lambda: dict(VERSION))

    def add(self, job_id: str, **values: Any) -> dict[str, Any]:
        job = {
            "type": "SUBMISSION", "submission_id": job_id, "job_id": None, "status": "PENDING", "entrypoint": "x",
            "message": "Job has not started yet.", "error_type": None, "start_time": 1_760_000_000_000,
            "end_time": None, "metadata": {}, "runtime_env": {}, "driver_exit_code": None,
        }  # fmt: skip
        self.jobs[job_id] = job | values
        return self.jobs[job_id]

    def end(self, job_id: str, code: int | None = 0, *, status: str | None = None, message: str = "") -> None:
        status = status or ("SUCCEEDED" if code == 0 else "FAILED")
        self.jobs[job_id] |= {"status": status, "driver_exit_code": code, "message": message}
        self.jobs[job_id]["end_time"] = 1_760_000_100_000

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, str]:
        if (failed := self.fails(method, path)) is not None:
            return failed
        self.on_ask(self, path)
        parts = path.strip("/").split("/")
        if parts == ["api", "version"]:
            return 200, json.dumps(self.version)
        if parts[:3] == ["api", "packages", "gcs"]:
            if method == "PUT":
                self.packages[parts[3]] = body
            return (200, "") if parts[3] in self.packages else (404, "does not exist")
        if path == "/api/jobs/" and method == "POST":
            return self._submitted(json.loads(body))
        if path == "/api/jobs/":
            return 200, json.dumps(list(self.jobs.values()))
        return self._job(parts)

    def _submitted(self, request: dict[str, Any]) -> tuple[int, str]:
        job = self.add(request["submission_id"], **{name: request[name] for name in ("entrypoint", "metadata")})
        job["runtime_env"] = request["runtime_env"]
        self.on_submit(self, job)
        return 200, json.dumps({"job_id": None, "submission_id": request["submission_id"]})

    def _job(self, parts: list[str]) -> tuple[int, str]:
        job = self.jobs.get(parts[2]) if parts[:2] == ["api", "jobs"] else None
        if job is None:
            return 404, f"Job {parts[-1]} does not exist"
        if parts[3:] == ["logs"]:
            return 200, json.dumps({"logs": self.logs.get(parts[2], "")})
        if parts[3:] == ["stop"]:
            self.end(parts[2], None, status="STOPPED")
            return 200, json.dumps({"stopped": True})
        return 200, json.dumps(job)


@contextlib.contextmanager
def jobs_server(**settings: Any) -> Iterator[JobsServer]:
    """Serve on a port that the system picks until the block ends."""
    server = JobsServer(**settings)

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            server.requests.append((self.command, self.path, body, dict(self.headers.items())))
            status, text = server.answer(self.command, self.path, body)
            if status == 0:  # the connection breaks off
                self.close_connection = True
                return
            content = text.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = _serve

        def log_message(self, *arguments: Any) -> None:
            return

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    server.url = f"http://127.0.0.1:{listening.server_port}"
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()
