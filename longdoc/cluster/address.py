"""The cluster that `--address` names, looked at before Ray is asked to join it: Ray itself would wait for minutes.

Owns what the option may say and the questions that tell a cluster from what is none. Refuses an address where nothing
answers, where something else than Ray's GCS does, another Ray or Python, a token that is missing or wrong, and a
cluster that has no node on this machine. RAY_ADDRESS counts for `auto` alone.
"""

import contextlib
import ipaddress
import json
import os
import re
import socket
import subprocess
import sys
from typing import Any

import psutil

from longdoc.errors import StartError
from longdoc.records import display

#: How long a connection may take, and Ray's answer once its client is loaded, in seconds.
CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 10.0
# Loading Ray takes a second, on a busy machine many.
_LOAD_SECONDS = 20.0
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]/:@?#\s]+):(?P<port>\d{1,5})")
# RFC 9113, 3.4: what a client of HTTP/2 says first, with an empty SETTINGS frame; the server's first frame is one too.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS = 4
_TAKES = "--address takes HOST:PORT of a cluster's GCS (the port of `ray start --head --port`, 6379 by default)"
_SHOW_IT = (
    "Set RAY_AUTH_MODE=token, and put the cluster's token into ~/.ray/auth_token, a file that RAY_AUTH_TOKEN_PATH "
    "names, or RAY_AUTH_TOKEN."
)


def find_cluster(asked: str) -> str:
    """HOST:PORT of the cluster, once it is known that this process can join it. Raises `StartError`."""
    address = resolved(asked)
    host, _, port = address.rpartition(":")
    _check_answers(host.strip("[]"), int(port), address)
    if asked == "auto" or is_of_this_machine(host.strip("[]")):
        # As Ray does for `auto`. A token is not shown to another machine unless RAY_AUTH_MODE says so.
        use_own_token()
    check_told(ask_gcs(address), address)
    return address


def resolved(asked: str) -> str:
    """HOST:PORT behind what `--address` says. Raises `StartError` where it says nothing of the kind."""
    if asked == "auto":
        found = os.environ.get("RAY_ADDRESS") or _last_started()
        if not found or found in ("auto", "local"):
            raise StartError(
                "--address auto: RAY_ADDRESS names no Ray cluster, and no `ray start` of this machine is on record. "
                "Start one (`ray start --head`), name one (--address HOST:PORT), or leave --address out."
            )
        return check_form(found, "RAY_ADDRESS" if os.environ.get("RAY_ADDRESS") else "--address auto")
    return check_form(asked)


def check_form(address: str, option: str = "--address") -> str:
    """The address, if it is HOST:PORT. Raises `StartError` for anything else; asks nobody."""
    parts = _ADDRESS.fullmatch(address)
    if parts is not None and 0 < int(parts["port"]) < 65536:
        return address
    if address.startswith("ray://"):
        why = "Ray Client (ray://) cannot drive a run"
    elif address.startswith(("http://", "https://")):
        why = "http is the Jobs API's, which `longdoc submit` takes"
    else:
        why = "this is neither HOST:PORT nor auto"
    # It may hold a password.
    shown = "" if "@" in address else " " + (display(address) or "''")
    raise StartError(f"{option}{shown}: {why}. {_TAKES}; run on one of its nodes, or use `longdoc submit`.")


def _last_started() -> str | None:
    """The cluster that `ray start` joined last on this machine; Ray keeps its address in a file."""
    # A Ray that keeps it elsewhere has nothing on record here.
    with contextlib.suppress(OSError, ImportError):
        from ray._private.services import find_bootstrap_address

        found: str | None = find_bootstrap_address(None)
        return found
    return None


def _check_answers(host: str, port: int, address: str) -> None:
    """Raise `StartError` unless something that speaks HTTP/2, as gRPC does, listens there."""
    try:
        with socket.create_connection((host, port), timeout=CONNECT_SECONDS) as connection:
            if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
                return
            connection.sendall(_PREFACE)
            start = connection.recv(9)
    except socket.gaierror as error:
        raise StartError(f"--address {address}: no host of this name ({error.strerror}). {_TAKES}.") from None
    except TimeoutError:
        raise StartError(
            f"--address {address}: no answer within {CONNECT_SECONDS:.0f} s. {_TAKES}; is it running and reachable?"
        ) from None
    except OSError as error:
        raise StartError(
            f"--address {address}: nothing answers ({error.strerror or error}). {_TAKES}; is it running?"
        ) from None
    if len(start) < 9 or start[3] != _SETTINGS:
        is_http = start.startswith((b"HTTP/", b"<!DOCTYPE"))
        kind = "an HTTP server, perhaps Ray's dashboard," if is_http else "something else than Ray"
        raise StartError(f"--address {address}: {kind} answers there. {_TAKES}.")


def is_of_this_machine(host: str) -> bool:
    """Whether a host is this machine, by any of its addresses."""
    with contextlib.suppress(OSError, ValueError):
        address = socket.gethostbyname(host) if ":" not in host else host
        own = {entry.address for entries in psutil.net_if_addrs().values() for entry in entries}
        return ipaddress.ip_address(address).is_loopback or address in own
    return False


def use_own_token() -> None:
    """Take the token that this user has, if any, unless RAY_AUTH_MODE says what to do."""
    try:
        from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available
    except ImportError:
        return  # a Ray before 2.59 asks RAY_AUTH_MODE alone

    maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


def ask_gcs(address: str) -> dict[str, Any]:
    """What Ray's GCS says of itself, see `longdoc.cluster.gcs_probe`; no answer in time is a `problem` too."""
    command = [sys.executable, "-m", "longdoc.cluster.gcs_probe", address]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=_LOAD_SECONDS + ANSWER_SECONDS, check=True
        )
        told: dict[str, Any] = json.loads(ended.stdout)
    except subprocess.TimeoutExpired as error:
        return {"problem": f"no answer within {error.timeout:.0f} s"}
    except (subprocess.CalledProcessError, ValueError):
        return {"problem": "Ray's client failed"}
    return told


def check_told(told: dict[str, Any], address: str) -> None:
    """Raise `StartError` where the answer says that this process cannot join the cluster."""
    import platform

    import ray

    if "refused" in told:
        raise StartError(f"--address {address}: the cluster wants another token than this process has. {_SHOW_IT}")
    if "problem" in told:
        raise StartError(f"--address {address}: no Ray cluster answers there ({told['problem']}). {_TAKES}.")
    for name, theirs, ours in (
        ("Ray", told["ray"], ray.__version__),
        ("Python", told["python"], platform.python_version()),
    ):
        if theirs != ours:
            raise StartError(
                f"--address {address}: the cluster runs {name} {theirs}, this process {ours}. Ray joins equal versions "
                f"only: use an environment with {name} {theirs}."
            )
    if not told["is_here"]:
        raise StartError(
            f"--address {address}: none of the cluster's nodes runs on this machine, and a run is driven from one of "
            "them. Run there, or use `longdoc submit`."
        )
