"""A running Ray cluster, joined for one run and left as it was found.

Never starts a cluster and never stops one: leaving it only disconnects, and what a run made on it (actors, placement
groups, tasks) ends with the run. Names are looked up in a namespace of its own, workers' prints stay in Ray's logs.
"""

import contextlib
import logging
import secrets
import sys
import warnings
from collections.abc import Iterator

from longdoc.cluster.address import find_cluster
from longdoc.cluster.lifeline import watched_head
from longdoc.cluster.signals import signals_held, signals_ignored
from longdoc.errors import StartError


@contextlib.contextmanager
def joined(asked: str) -> Iterator[str]:
    """Join the cluster that `--address` names and leave it however the block ends; gives its HOST:PORT.

    Raises `StartError` where it cannot be joined, or this process is connected to a Ray already.
    """
    import ray

    if ray.is_initialized():
        raise StartError("this process is connected to a Ray cluster already; disconnect with ray.shutdown() first.")
    logging.getLogger("ray").setLevel(logging.ERROR)
    with contextlib.redirect_stdout(sys.stderr):
        address = find_cluster(asked)
        try:
            _join(address)
            with watched_head(address):
                yield address
        finally:
            with signals_ignored(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ray.shutdown()


def _join(address: str) -> None:
    import ray

    with signals_held(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ray.init(
                address=address,
                namespace=f"longdoc-{secrets.token_hex(8)}",
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except Exception as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise StartError(
                f"--address {address}: the Ray cluster cannot be joined ({reason[0]}). Look at it with `ray status`, "
                "and run again."
            ) from error
