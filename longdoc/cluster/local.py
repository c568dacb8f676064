"""An embedded Ray instance for one run: on loopback, of a size that is stated, gone when the run ends.

Never attaches to a cluster that happens to be named by RAY_ADDRESS, sends no usage statistics, and removes its session
folder, except after a failure, when its logs are worth keeping.
"""

import contextlib
import logging
import os
import shutil
import signal
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

from longdoc.errors import InfrastructureError

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "GLOO_SOCKET_IFNAME": "lo",
}


@contextlib.contextmanager
def local_ray(*, num_cpus: int) -> Iterator[None]:
    """Start Ray on this machine with `num_cpus` cores, and stop it however the block ends."""
    folder = Path(tempfile.mkdtemp(prefix="longdoc-", dir=_short_temporary_folder()))
    keep = False
    with _environment(_QUIET):
        try:
            _start(folder, num_cpus)
            yield
        except InfrastructureError as error:
            keep = True
            raise InfrastructureError(f"{error} Ray's logs are kept in {folder}.") from error.__cause__
        finally:
            with _interrupts_ignored():
                _stop()
                if not keep:
                    shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path, num_cpus: int) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    logging.getLogger("ray").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray

        try:
            ray.init(
                address="local",
                num_cpus=num_cpus,
                num_gpus=0,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _temp_dir=str(folder),
                _node_ip_address="127.0.0.1",
            )
        except Exception as error:
            raise InfrastructureError(f"Ray does not start on this machine: {error}.") from error
        finally:
            # Ray takes SIGTERM for itself, and its handler dumps a stack and aborts instead of cleaning up.
            if threading.current_thread() is threading.main_thread():
                for number, handler in before.items():
                    signal.signal(number, handler)


def _stop() -> None:
    import ray

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.shutdown()


def _short_temporary_folder() -> str | None:
    # Ray puts Unix sockets below it, whose paths must stay under about 100 characters.
    return "/tmp" if os.name == "posix" and os.access("/tmp", os.W_OK) else None  # noqa: S108


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update({name: value for name, value in values.items() if before[name] is None})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """A second Ctrl-C must not stop the stopping."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
