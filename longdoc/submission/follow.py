"""Following a job from outside: its new lines as they come, its end, and what its end means.

Owns the patience with a cluster that does not answer for a while, the pace of asking (the log comes whole each time, so
a long one is asked for less often), and the exit code. Stops nothing: whoever ends the following leaves the job alone.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from longdoc.cluster.jobs import Job, JobsClient, NoSuchJobError, UnreachableError
from longdoc.errors import InfrastructureError, Interrupted, LongdocError, StartError
from longdoc.records import display

#: Seconds between two questions, and for how long a cluster that does not answer is asked again.
POLL_SECONDS, PATIENCE_SECONDS = 1.0, 120.0
#: Bytes of log a second that following may cost; a longer log is asked for less often.
_BYTES_PER_SECOND = 200_000
_SLOWEST_POLL = 30.0
#: The exit codes that `longdoc run` gives by itself, and what they say.
_OWN_CODES = {
    0: "everything is committed",
    2: "it could not start, see its log",
    3: "some documents are quarantined",
    4: "incomplete for infrastructure reasons; what it had committed stays, submit it again",
    Interrupted.exit_code: "interrupted; what it had committed stays, submit it again",
}

Answered = TypeVar("Answered")


@dataclass(slots=True, kw_only=True)
class Follower:
    """One job, followed. `line` gets each new line of its log, `note` what is to be known of the following itself."""

    client: JobsClient
    job_id: str
    line: Callable[[str], None]
    note: Callable[[str], None]
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    patience: float = PATIENCE_SECONDS
    _num_told: int = 0
    _status: str = ""

    def follow(self) -> Job:
        """Tell every line until the job has ended. Raises `InfrastructureError` where job or cluster are gone."""
        while True:
            # A dashboard that fails, as one does while its GCS starts anew, says nothing about the job.
            job = self._asked(lambda: self.client.job(self.job_id), (UnreachableError, InfrastructureError))
            if job.status != self._status and job.status == "PENDING":
                # Ray begins its reason with these words.
                reason = display(job.message.removeprefix("Job has not started yet.").strip()) or "Ray does not say why"
                self.note(f"Job {job.job_id} has not started yet: {reason}")
            self._status = job.status
            size = self._tell(is_last=job.has_ended)
            if job.has_ended:
                return job
            self.sleep(max(POLL_SECONDS, min(_SLOWEST_POLL, size / _BYTES_PER_SECOND)))

    def _tell(self, *, is_last: bool) -> int:
        """Hand on the lines that are new, whole ones only while more can come; returns the log's size."""
        try:
            told = self._asked(lambda: self.client.logs(self.job_id), (UnreachableError,))
        except InfrastructureError as error:
            if not is_last:
                return 0  # the node that keeps the log may be starting; the job's state says whether it lives
            self.note(f"the log cannot be read: {error}")
            return 0
        stop = len(told) if is_last else told.rfind("\n") + 1
        for line in told[self._num_told : stop].splitlines():
            self.line(line)
        self._num_told = max(self._num_told, stop)
        return len(told)

    def _asked(self, question: Callable[[], Answered], passing: tuple[type[LongdocError], ...]) -> Answered:
        """An answer, after some tries where the cluster fails in a way that may pass."""
        deadline, is_told = self.clock() + self.patience, False
        while True:
            try:
                return question()
            except NoSuchJobError:
                cause = f"{self.client.address} does not know job {self.job_id} any more"
                action = "It was deleted, or the cluster was started anew. What it had committed stays; submit it again"
                raise InfrastructureError(f"{cause}. {action}.") from None
            except passing as error:
                if self.clock() >= deadline:
                    cause = f"{error} It was asked for {self.patience:g} s. The job may still run"
                    action = f"come back with: {come_back(self.client, self.job_id)}"
                    raise InfrastructureError(f"{cause}; {action}") from None
                if not is_told:
                    self.note(f"{error} Asking again for {self.patience:g} s.")
                    is_told = True
                self.sleep(POLL_SECONDS)


def exit_code_of(job: Job) -> int:
    """The code that a job that has ended stands for: the run's own, 130 where it was stopped, 4 where it was lost."""
    if job.status == "STOPPED":
        return Interrupted.exit_code
    if job.exit_code in _OWN_CODES and (job.status == "SUCCEEDED" or job.exit_code):
        return int(job.exit_code)
    return 0 if job.status == "SUCCEEDED" else InfrastructureError.exit_code


def how_it_ended(job: Job) -> str:
    """The end of a job in a sentence, without the log that Ray adds to its message."""
    if job.status == "SUCCEEDED":
        return f"Job {job.job_id} is done: {_OWN_CODES[0]}."
    if job.status == "STOPPED":
        return f"Job {job.job_id} was stopped. What it had committed stays; submitting it again takes up the rest."
    if job.exit_code in _OWN_CODES and job.exit_code:
        return f"Job {job.job_id} ended with exit code {job.exit_code}: {_OWN_CODES[job.exit_code]}."
    first = job.message.partition("\n")[0].partition(", last available logs")[0]
    said = display(first[:500]).rstrip(". ") or "Ray does not say why"
    return f"Job {job.job_id} was lost: {said}. What it had committed stays; submit it again."


def find_job(client: JobsClient, asked: str) -> Job:
    """The job of an id, or of the beginning of one. Raises `StartError` where that is none or several."""
    try:
        return client.job(asked)
    except NoSuchJobError:
        found = [job for job in client.jobs() if _begins(job.job_id, asked)]
        if len(found) == 1:
            return found[0]
        if not found:
            raise
    names = ", ".join(display(job.job_id) for job in found)
    raise StartError(f"{display(asked)} begins {len(found)} jobs: {names}. Write more of it.")


def _begins(job_id: str, asked: str) -> bool:
    return bool(asked) and (job_id.startswith(asked) or job_id.removeprefix("longdoc-").startswith(asked))


def come_back(client: JobsClient, job_id: str) -> str:
    """The command that follows a job again."""
    return f"longdoc jobs wait {job_id} --address {client.address}"
