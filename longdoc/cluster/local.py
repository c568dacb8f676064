"""An embedded Ray instance for one run: of a size that is stated, for this machine only, gone when the run ends.

Never attaches to a cluster that happens to be named by RAY_ADDRESS, sends no usage statistics, keeps Ray's own prints
off standard output, and removes its session folder, except after a failure of Ray or a rank, when the logs are worth
keeping. Ray's services accept calls with this user's token only (Ray's token authentication, on by default).
"""

import contextlib
import logging
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import psutil

from longdoc.cluster.signals import signals_held, signals_ignored
from longdoc.errors import InfrastructureError, RingError, StartError

#: Exact values for the time of a run, whatever the user's environment says: each is promised above or needed.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Ray's agents outlive a driver that was killed by as long as they hope for its return: 60 s by default.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "5",
}
_FOLDER_PREFIX = "longdoc-"


@contextlib.contextmanager
def local_ray(*, num_cpus: int, num_gpus: int = 0) -> Iterator[None]:
    """Start Ray on this machine with so many cores and GPUs, and stop it however the block ends.

    Raises `StartError` where this process is connected to a Ray already, `RingError` where Ray does not start.
    """
    import ray

    if ray.is_initialized():
        raise StartError("this process is connected to a Ray cluster already; disconnect with ray.shutdown() first.")
    _sweep()
    folder = _session_folder()
    keep = False
    with _environment(_ENVIRONMENT), contextlib.redirect_stdout(sys.stderr):
        try:
            _start(folder, num_cpus, num_gpus)
            yield
        except RingError as error:
            keep = True
            with contextlib.suppress(OSError):
                (folder / "kept").touch()
            error.add_note(f"Ray's logs are kept in {folder}.")
            raise
        finally:
            with signals_ignored():
                _stop()
                if not keep:
                    shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path, num_cpus: int, num_gpus: int) -> None:
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    with signals_held(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ray.init(
                address="local",
                num_cpus=num_cpus,
                num_gpus=num_gpus,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _temp_dir=str(folder),
                _node_ip_address="127.0.0.1",
            )
        except Exception as error:
            raise RingError(f"Ray does not start on this machine: {error}.") from error


def _stop() -> None:
    import ray

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.shutdown()


def _session_folder() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix=f"{_prefix()}{os.getpid()}-", dir=_temporary_folder()))
    except OSError as error:
        raise InfrastructureError(
            f"no temporary folder can be made for Ray: {error.strerror}. Free some space."
        ) from error


def _prefix() -> str:
    """Names of session folders start with the process namespace, since a process number means something only there."""
    try:
        return f"{_FOLDER_PREFIX}{Path('/proc/self/ns/pid').stat().st_ino}-"
    except OSError:
        return _FOLDER_PREFIX


def _temporary_folder() -> str | None:
    # Ray puts Unix sockets below it, whose paths must stay under about 100 characters.
    return "/tmp" if os.name == "posix" and os.access("/tmp", os.W_OK) else None  # noqa: S108


def _sweep() -> None:
    """Remove what runs left behind that were killed: folders whose process is gone."""
    for folder in Path(_temporary_folder() or tempfile.gettempdir()).glob(f"{_prefix()}*-*"):
        pid = folder.name.removeprefix(_prefix()).partition("-")[0]
        if pid.isdigit() and not psutil.pid_exists(int(pid)) and not (folder / "kept").exists():
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
