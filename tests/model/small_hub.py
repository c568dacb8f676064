"""A hub on loopback with the few routes that huggingface_hub uses, and faults that a test may plant.

Routes: /api/models/REPO/revision/REV (listing with sizes and hashes) and /REPO/resolve/REV/FILE (HEAD and GET, with
ETag, X-Repo-Commit and Range). No LFS server: a file that is marked as large states a SHA-256 in place of a blob id.
"""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


def blob_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


@dataclass
class Repository:
    """Files by name at each commit, and the commit of each branch."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    token: str | None = None
    is_gated: bool = False

    def commit(self, files: dict[str, bytes], branch: str = "main") -> str:
        commit = hashlib.sha1(repr(sorted(files.items())).encode(), usedforsecurity=False).hexdigest()
        self.commits[commit] = files
        self.branches[branch] = commit
        return commit


@dataclass
class SmallHub:
    """`requests` are "METHOD path"; `tokens` what they authenticated with. `damaged` and `short` name planted files."""

    endpoint: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)
    damaged: set[str] = field(default_factory=set)
    short: set[str] = field(default_factory=set)
    status: int | None = None

    def answer(self, method: str, path: str, token: str | None) -> tuple[int, dict[str, str], bytes]:
        self.requests.append(f"{method} {path}")
        self.tokens.add(token)
        if self.status is not None:
            return self.status, {}, b""
        parts = path.strip("/").split("/")
        is_api = parts[:2] == ["api", "models"]
        repo_parts = parts[2:4] if is_api else parts[:2]
        repository = self.repositories.get("/".join(repo_parts))
        if repository is None:
            return 404, {"X-Error-Code": "RepoNotFound"}, b""
        if (
            repository.token is not None
            and token != f"Bearer {repository.token}"
            and not (is_api and repository.is_gated)
        ):
            return 401, {"X-Error-Code": "GatedRepo" if repository.is_gated else "RepoNotFound"}, b""
        revision, name = (parts[5], "") if is_api else (parts[3], "/".join(parts[4:]))
        commit = repository.branches.get(revision, revision)
        if commit not in repository.commits:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        files = repository.commits[commit]
        if is_api:
            return 200, {"Content-Type": "application/json"}, self.listing("/".join(repo_parts), commit, files)
        if name not in files:
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        content = files[name]
        served = bytes([content[0] ^ 1]) + content[1:] if name in self.damaged else content
        headers = {"ETag": f'"{blob_id(content)}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        return 200, headers, served

    def listing(self, repository: str, commit: str, files: dict[str, bytes]) -> bytes:
        siblings = [
            {"rfilename": name, "size": len(content), "blobId": blob_id(content)}
            | (
                {"lfs": {"size": len(content), "sha256": hashlib.sha256(content).hexdigest(), "pointerSize": 134}}
                if name.endswith(".safetensors")
                else {}
            )
            for name, content in files.items()
        ]
        return json.dumps({"id": repository, "modelId": repository, "sha": commit, "siblings": siblings}).encode()


@contextmanager
def small_hub() -> Iterator[SmallHub]:
    hub = SmallHub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def _serve(self, method: str) -> None:
            path = unquote(urlsplit(self.path).path)
            status, headers, content = hub.answer(method, path, self.headers.get("Authorization"))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            is_short = method == "GET" and Path(path).name in hub.short
            if is_short:
                self.send_header("Connection", "close")
            self.end_headers()
            if method == "GET":
                self.wfile.write(content[: len(content) // 2] if is_short else content)
            self.close_connection = is_short

        def do_HEAD(self) -> None:
            self._serve("HEAD")

        def do_GET(self) -> None:
            self._serve("GET")

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hub.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
