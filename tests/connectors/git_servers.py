"""Servers of git repositories for tests: smart HTTP on the loopback interface, LFS beside it, an ssh that is none."""

import base64
import contextlib
import hashlib
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

# A stand-in for ssh, for git and for whoever asks what it was asked: it runs the command on this machine.
_SSH = """#!/bin/sh
echo "$@" >> "{log}"
while :; do case "$1" in -G) exit 0;; -o|-p) shift 2;; -*) shift;; *) break;; esac; done
shift
exec sh -c "$*"
"""


@dataclass
class Server:
    """One server of all repositories below a folder, and what it was asked."""

    folder: Path
    login: str | None = None
    port: int = 0
    requests: list[str] = field(default_factory=list)
    passwords: list[str] = field(default_factory=list)
    lfs: dict[str, bytes] = field(default_factory=dict)
    lfs_href: str | None = None
    lfs_redirect: str | None = None
    moved: dict[str, str] = field(default_factory=dict)
    lfs_more: dict[str, object] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def add_lfs(self, content: bytes) -> bytes:
        """Store a content; the pointer to it."""
        oid = hashlib.sha256(content).hexdigest()
        self.lfs[oid] = content
        return pointer_to(content)


def pointer_to(content: bytes) -> bytes:
    oid = hashlib.sha256(content).hexdigest()
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(content)}\n".encode()


@contextlib.contextmanager
def serve(folder: Path, *, login: str | None = None) -> Iterator[Server]:
    """Serve the repositories below a folder; `login` is the name:password that is wanted."""
    server = Server(folder=folder, login=login)

    class Handler(_Handler):
        asked = server

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = False
        server.port = http.server_address[1]
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    asked: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _answer(self, body: bytes) -> None:
        server = self.asked
        server.requests.append(f"{self.command} {self.path}")
        server.passwords += [self.headers["Authorization"]] * ("Authorization" in self.headers)
        moved = next((old for old in server.moved if self.path.startswith(old)), None)
        if moved is not None:
            self._send(301, b"", {"Location": server.moved[moved] + self.path.removeprefix(moved)})
        elif server.login is not None and self.headers.get("Authorization") != f"Basic {_encoded(server.login)}":
            self._send(401, b"", {"WWW-Authenticate": 'Basic realm="x"'})
        elif self.path.endswith("/info/lfs/objects/batch"):
            self._send(200, self._batch(json.loads(body)), {"Content-Type": "application/vnd.git-lfs+json"})
        elif self.path.startswith("/lfs/") and server.lfs_redirect is not None:
            self._send(302, b"", {"Location": f"{server.lfs_redirect}{self.path}"})
        elif self.path.startswith("/lfs/"):
            self._send(200, server.lfs[self.path.rpartition("/")[2]], {})
        else:
            self._git(body)

    def _batch(self, question: dict[str, object]) -> bytes:
        objects = []
        for wanted in question["objects"]:  # type: ignore[attr-defined]  # what JSON holds
            oid = wanted["oid"]
            answer = {"oid": oid, "size": wanted["size"]}
            if oid in self.asked.lfs:
                href = self.asked.lfs_href or f"{self.asked.url}/lfs"
                answer["actions"] = {"download": {"href": f"{href}/{oid}"}}
            else:
                answer["error"] = {"code": 404, "message": "Object does not exist"}
            objects.append(answer | self.asked.lfs_more)
        return json.dumps({"transfer": "basic", "objects": objects}).encode()

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _git(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_CONFIG")}
        env |= {
            "GIT_PROJECT_ROOT": str(self.asked.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "REMOTE_ADDR": "127.0.0.1",
            "REMOTE_USER": "somebody",
        }
        done = subprocess.run(["git", "http-backend"], input=body, capture_output=True, env=env, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self._send(int(headers.pop("Status", "200").split()[0]), content, headers)


def _encoded(login: str) -> str:
    return base64.b64encode(login.encode()).decode()


def write_ssh(folder: Path) -> tuple[Path, Path]:
    """A program called ssh that runs commands on this machine, and the file in which it notes how it was called."""
    folder.mkdir()
    script, log = folder / "ssh", folder / "log"
    script.write_text(_SSH.format(log=log))
    script.chmod(0o755)
    return script, log
