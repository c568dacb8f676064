"""The one door to Ray's Jobs HTTP API: packages, jobs, logs.

Ray's own client (`ray.job_submission`) waits without end for a server that does not answer, lets RAY_ADDRESS override
the address it is given, and drops what .gitignore names from what it uploads; so this speaks the API itself
(https://docs.ray.io/en/latest/cluster/running-applications/job-submission/rest.html), needs no more than Python, and
gives every request a time. Refuses addresses that carry a password, redirects, and answers that are not Ray's.
The token of a cluster with authentication is found where Ray finds it, sent in a header, and shown nowhere; to another
machine it is sent where RAY_AUTH_MODE=token says so, as Ray's own client does.
"""

import http.client
import json
import os
import re
import shlex
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

from longdoc.cluster.address import is_of_this_machine
from longdoc.errors import InfrastructureError, LongdocError, StartError
from longdoc.records import display, without_credentials

#: Seconds for one short request, for a submission (Ray looks for an agent for that long), and for an upload.
REQUEST_SECONDS, SUBMIT_SECONDS, UPLOAD_SECONDS = 15.0, 60.0, 600.0
#: States from which a job does not move on.
ENDED = ("STOPPED", "SUCCEEDED", "FAILED")
_ADDRESS = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]/:@?#\s]+)(?::(?P<port>\d{1,5}))?(?P<path>/[^?#\s]*)?"
)
_LARGEST_ANSWER = 256 << 20
# Bad gateway, unavailable, gateway timeout: RFC 9110, 15.6.
_OF_A_PROXY = (502, 503, 504)
_HOW_TO_SET = (
    "Set RAY_AUTH_MODE=token, and put the cluster's token into ~/.ray/auth_token, a file that RAY_AUTH_TOKEN_PATH "
    "names, or RAY_AUTH_TOKEN"
)


class UnreachableError(StartError):
    """Nothing answers at the address, or what does broke off: it may answer later."""


class NoSuchJobError(StartError):
    """The cluster knows no job of this id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as Ray tells it. Times are seconds since 1970; `exit_code` is the driver's, None while there is none."""

    job_id: str
    status: str
    message: str
    entrypoint: str
    error_type: str | None
    started_at: float | None
    ended_at: float | None
    exit_code: int | None
    metadata: Mapping[str, str]

    @property
    def has_ended(self) -> bool:
        """Whether it is over, however it ended."""
        return self.status in ENDED


def entrypoint_of(command: Sequence[str]) -> str:
    """A command as the shell gets it with which Ray starts it: the shell becomes the command.

    A stop reaches the processes that are there when it comes. A shell that was just about to fork would end alone, Ray
    would call the job stopped, and the command would run on.
    """
    return f"exec {shlex.join(command)}"


def parse_address(address: str) -> str:
    """The address of a Jobs API without a slash at its end. Raises `StartError` for anything else, with the reason."""
    shown = display(without_credentials(address)) or "''"
    if "@" in address.partition("://")[2].partition("/")[0]:
        raise StartError(f"--address {shown} carries a name or a password. Leave them out. {_HOW_TO_SET}.")
    if address.startswith("ray://"):
        cause = "is the address of Ray Client, and jobs are submitted to the dashboard of the head node"
        raise StartError(f"--address {shown} {cause}. Use http://HOST:8265.")
    found = _ADDRESS.fullmatch(address)
    if found is None or int(found["port"] or 1) not in range(1, 1 << 16):
        cause = "is not the address of a Jobs API"
        raise StartError(
            f"--address {shown} {cause}. Use http://HOST:8265, or https:// where a proxy stands before it."
        )
    return address.rstrip("/")


class JobsClient:
    """Ray's Jobs API at one address.

    Every method raises `UnreachableError` where nothing answers in time, `StartError` where the answer is a refusal or
    not Ray's, and `InfrastructureError` for a fault inside the cluster.
    """

    def __init__(self, address: str, *, seconds: float = REQUEST_SECONDS) -> None:
        self.address = parse_address(address)
        self._seconds = seconds
        self._parts = _ADDRESS.fullmatch(self.address)
        assert self._parts is not None
        self._token = _token(self._parts["host"].strip("[]"))

    def ray_version(self) -> str:
        """The version of the cluster's Ray. Raises `StartError` where the address is no Ray's."""
        answer = self._json("GET", "/api/version")
        version = answer.get("ray_version") if isinstance(answer, dict) else None
        if not isinstance(version, str):
            self._foreign("its answer to /api/version names no version of Ray")
        return version

    def has_package(self, name: str) -> bool:
        """Whether the cluster holds a package; one that it holds is kept for the next ten minutes."""
        status, _ = self._request("GET", f"/api/packages/gcs/{name}", accept=(200, 404))
        return status == 200

    def upload(self, name: str, content: bytes) -> None:
        """Store a package. Raises `StartError` where the cluster, or a proxy before it, finds it too large."""
        status, _ = self._request(
            "PUT", f"/api/packages/gcs/{name}", body=content, seconds=UPLOAD_SECONDS, accept=(200, 413)
        )
        if status == 413:
            cause = f"takes no package of {len(content):,} bytes (413): its own limit, or a proxy's, is smaller"
            raise StartError(f"{self.address} {cause}. Ship less: name sources by address, or with --remote-path.")

    def submit(
        self, job_id: str, *, entrypoint: str, runtime_env: Mapping[str, Any], metadata: Mapping[str, str]
    ) -> None:
        """Start a job. Where the answer is lost, looks whether the job arrived, so that none is started twice.

        Raises `InfrastructureError` with the job's id where that cannot be found out.
        """
        request = {"submission_id": job_id, "entrypoint": entrypoint, "runtime_env": dict(runtime_env)}
        request["metadata"] = dict(metadata)
        try:
            self._json("POST", "/api/jobs/", body=json.dumps(request).encode(), seconds=SUBMIT_SECONDS)
        except (UnreachableError, InfrastructureError) as error:
            try:
                self.job(job_id)
            except NoSuchJobError:
                raise error from None
            except LongdocError:
                unsure = f"Job {job_id} may have been started all the same: look with `longdoc jobs list`"
                raise InfrastructureError(f"{error} {unsure}, before submitting again.") from None

    def job(self, job_id: str) -> Job:
        """One job. Raises `NoSuchJobError`."""
        return self._job(self._json("GET", f"/api/jobs/{quote(job_id, safe='')}", job_id=job_id))

    def jobs(self) -> list[Job]:
        """Every job that was submitted, newest first; drivers that were started otherwise are left out."""
        answer = self._json("GET", "/api/jobs/")
        if not isinstance(answer, list):
            self._foreign("its list of jobs is none")
        found = [self._job(entry) for entry in answer if isinstance(entry, dict) and entry.get("submission_id")]
        return sorted(found, key=lambda job: job.started_at or 0.0, reverse=True)

    def logs(self, job_id: str) -> str:
        """What a job has written so far, standard output and standard error together."""
        answer = self._json("GET", f"/api/jobs/{quote(job_id, safe='')}/logs", job_id=job_id)
        logs = answer.get("logs") if isinstance(answer, dict) else None
        return logs if isinstance(logs, str) else ""

    def stop(self, job_id: str) -> None:
        """Ask a job to stop; `job` tells when it has."""
        self._json("POST", f"/api/jobs/{quote(job_id, safe='')}/stop", job_id=job_id)

    def _job(self, entry: Any) -> Job:
        try:
            return Job(
                job_id=str(entry["submission_id"]),
                status=str(entry["status"]),
                message=str(entry.get("message") or ""),
                entrypoint=str(entry.get("entrypoint") or ""),
                error_type=entry.get("error_type"),
                started_at=_seconds(entry.get("start_time")),
                ended_at=_seconds(entry.get("end_time")),
                exit_code=entry.get("driver_exit_code"),
                metadata={str(name): str(value) for name, value in (entry.get("metadata") or {}).items()},
            )
        except (KeyError, TypeError, AttributeError, ValueError):
            self._foreign("what it says of a job is not what Ray says")

    def _json(
        self, method: str, path: str, *, body: bytes | None = None, seconds: float | None = None, job_id: str = ""
    ) -> Any:
        accept = (200, 404) if job_id else (200,)
        status, answer = self._request(method, path, body=body, seconds=seconds, accept=accept)
        if status == 404:
            raise NoSuchJobError(
                f"{self.address} knows no job {display(job_id)}. `longdoc jobs list` shows those that it knows."
            )
        try:
            return json.loads(answer)
        except ValueError:
            self._foreign(f"its answer to {path.partition('?')[0]} is no JSON")

    def _request(
        self,
        method: str,
        path: str,
        *,
        accept: tuple[int, ...],
        body: bytes | None = None,
        seconds: float | None = None,
    ) -> tuple[int, bytes]:
        """One request over a connection of its own: the status, one of `accept`, and the whole answer."""
        connection = self._connection(self._seconds if seconds is None else seconds)
        headers = {"Accept": "application/json"} | ({"Content-Type": "application/json"} if method == "POST" else {})
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        assert self._parts is not None
        try:
            connection.request(method, (self._parts["path"] or "").rstrip("/") + path, body=body, headers=headers)
            response = connection.getresponse()
            status, answer = response.status, response.read(_LARGEST_ANSWER + 1)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            connection.close()
        if len(answer) > _LARGEST_ANSWER:
            self._foreign(f"it answers with more than {_LARGEST_ANSWER:,} bytes")
        if status not in accept:
            self._refused(status, answer)
        return status, answer

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        assert self._parts is not None
        host, port = self._parts["host"].strip("[]"), self._parts["port"]
        kind = http.client.HTTPSConnection if self._parts["scheme"] == "https" else http.client.HTTPConnection
        return kind(host, int(port) if port else None, timeout=seconds)

    def _unreachable(self, error: Exception) -> StartError:
        """The cause in words, and what to look at; the kinds are those of `http.client`, `socket` and `ssl`."""
        if isinstance(error, ssl.SSLCertVerificationError):
            cause = f"its certificate is not trusted here ({error.verify_message})"
            return StartError(f"{self.address}: {cause}. Name its authority's file in SSL_CERT_FILE.")
        if isinstance(error, ssl.SSLError):
            return StartError(f"{self.address} does not speak TLS as https:// asks ({error.reason}). Try http://.")
        if isinstance(error, http.client.BadStatusLine) and not isinstance(error, http.client.RemoteDisconnected):
            return StartError(f"{self.address} answers, but not with HTTP. Use the address of Ray's dashboard.")
        if isinstance(error, socket.gaierror):
            cause = "no such host is known here"
        elif isinstance(error, TimeoutError):
            cause = "no answer in time"
        else:
            cause = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
        action = "Check the address, that the cluster runs with its dashboard (ray[default]), and the way to it"
        return UnreachableError(f"{self.address} does not answer: {cause}. {action}.")

    def _refused(self, status: int, answer: bytes) -> NoReturn:
        if status in (401, 403):
            what = "asks for a token, and none was sent" if self._token is None else "does not take the token"
            raise StartError(f"{self.address} {what} ({status}). {_HOW_TO_SET}.")
        said = display(answer.decode("utf-8", errors="replace").strip().rpartition("\n")[2][:300])
        if status in _OF_A_PROXY:
            raise UnreachableError(f"{self.address} does not answer: what stands before it says {status}. Try again.")
        if status >= 500:
            cause = f"cannot do it ({status}): {said or 'it does not say why'}"
            raise InfrastructureError(
                f"{self.address} {cause}. Look at the dashboard's log on the head node; try again."
            )
        if status == 400:
            raise StartError(f"{self.address} refuses the request: {said}.")
        self._foreign(f"it answers {status}")

    def _foreign(self, cause: str) -> NoReturn:
        raise StartError(f"{self.address} is no Jobs API of Ray: {cause}. Use the address of Ray's dashboard.")


def _seconds(milliseconds: Any) -> float | None:
    return None if not milliseconds else float(milliseconds) / 1000


def _token(host: str) -> str | None:
    """The token for a host, as Ray's clients find it: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token."""
    mode = os.environ.get("RAY_AUTH_MODE", "").lower()
    if mode != "token" and (mode or not is_of_this_machine(host)):
        return None
    if token := os.environ.get("RAY_AUTH_TOKEN", "").strip():
        return token
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(named).expanduser() if named else Path.home() / ".ray" / "auth_token"
    try:
        return path.read_text().strip() or None
    except (OSError, ValueError) as error:
        if named:
            raise StartError(f"RAY_AUTH_TOKEN_PATH: {display(named)} cannot be read: {type(error).__name__}.") from None
        return None
