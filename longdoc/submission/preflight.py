"""Asking the cluster before anything is sent there: a small job that uploads nothing and answers in one line.

Owns that job's life and what it means when it gives no answer. Refuses a cluster whose
longdoc is another, or that cannot reach what the job needs.
"""

import contextlib
import secrets
import time
from collections.abc import Callable

from longdoc import __version__
from longdoc.cluster.jobs import Job, JobsClient, entrypoint_of
from longdoc.errors import LongdocError, StartError
from longdoc.records import display
from longdoc.submission.probe import MARK, Answer, Question

#: Metadata of every job of longdoc: its version; of a probe, what it is.
OWNER, KIND = "longdoc", "longdoc_kind"
#: Seconds that a probe may take: it may have to wait for a node, and to fetch what a repository's commit lists.
PROBE_SECONDS = 600.0
_POLL_SECONDS = 0.3
_INSTALL = f"Install longdoc {__version__} on every node, or name the Python that has it with --cluster-python"


def ask(
    client: JobsClient,
    question: Question,
    *,
    python: str,
    seconds: float = PROBE_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
) -> Answer:
    """The cluster's answer. Raises `StartError` with every problem, or with the reason why there is none."""
    job_id = f"longdoc-probe-{secrets.token_hex(4)}"
    command = entrypoint_of([python, "-m", "longdoc.submission.probe", question.to_json()])
    client.submit(job_id, entrypoint=command, runtime_env={}, metadata={OWNER: __version__, KIND: "probe"})
    try:
        job = _ended(client, job_id, seconds, sleep)
        told = client.logs(job_id)
    finally:
        _let_go(client, job_id)
    found = _parsed(told)
    if found is None:
        raise _no_answer(client.address, python, job, told)
    if found.longdoc != __version__:
        cause = f"the cluster has longdoc {display(found.longdoc)}, and this is {__version__}"
        raise StartError(f"{client.address}: {cause}. {_INSTALL}.")
    if found.problems:
        raise StartError(f"{client.address} cannot run this job:\n" + "\n".join(f"  {each}" for each in found.problems))
    return found


def _ended(client: JobsClient, job_id: str, seconds: float, sleep: Callable[[float], None]) -> Job:
    deadline = time.monotonic() + seconds
    while not (job := client.job(job_id)).has_ended:
        if time.monotonic() > deadline:
            cause = f"the cluster did not answer what it has within {seconds:g} s; its probe is {job.status}"
            raise StartError(f"{client.address}: {cause}. See what keeps it busy, then submit again.")
        sleep(_POLL_SECONDS)
    return job


def _let_go(client: JobsClient, job_id: str) -> None:
    """Stop a probe that still runs. One that ended stays in Ray's list: deleted, it would be shown there as failed."""
    with contextlib.suppress(LongdocError):
        if not client.job(job_id).has_ended:
            client.stop(job_id)


def _parsed(told: str) -> Answer | None:
    lines = [line.removeprefix(MARK) for line in told.splitlines() if line.startswith(MARK)]
    if not lines:
        return None
    try:
        return Answer.from_json(lines[-1])
    except (ValueError, KeyError, TypeError):
        return None


def _no_answer(address: str, python: str, job: Job, told: str) -> StartError:
    """What a probe without an answer means. The shell exits with 127 for a command that it does not find."""
    if job.exit_code == 127:
        cause = f"the cluster's nodes have no command {display(python)}"
    elif "No module named longdoc" in told or "No module named 'longdoc" in told:
        cause = f"{display(python)} on the cluster has no longdoc, or an older one"
    elif MARK in told:
        cause = f"{display(python)} on the cluster has another longdoc than {__version__}"
    else:
        lines = [line for line in (told or job.message).splitlines() if line.strip()]
        said = display(lines[-1][:500]) if lines else "nothing"
        return StartError(f"{address}: the cluster could not say what it has; its probe ended {job.status}: {said}")
    return StartError(f"{address}: {cause}. {_INSTALL}.")
