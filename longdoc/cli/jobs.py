"""`longdoc jobs list|status|logs|stop|wait`: the submitted runs of a Ray cluster."""

import contextlib
import datetime as dt
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from longdoc.cli.printing import plural, printable
from longdoc.errors import InfrastructureError, Interrupted, StartError

if TYPE_CHECKING:
    from longdoc.cluster.jobs import Job, JobsClient

Command = TypeVar("Command", bound=Callable[..., Any])

_VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
#: Seconds that a job may take to stop; Ray kills what does not end by itself within 20.
STOP_SECONDS = 90.0
# What `longdoc run` says every ten seconds where no terminal is: the name, the share done, the place in the model.
_PROGRESS = re.compile(r".*: \d{1,3}%, layer \d+/\d+ hop \d+/\d+")


def address_option(command: Command) -> Command:
    """--address: where the Jobs API is."""
    return click.option(
        "--address",
        metavar="URL",
        help="The cluster's Jobs API, http://HOST:8265.  [default: RAY_API_SERVER_ADDRESS or RAY_ADDRESS, if a URL]",
    )(command)


def client_of(address: str | None) -> "JobsClient":
    """The Jobs API at an address, or at the one that Ray's own variables name. Raises `StartError` where none is."""
    from longdoc.cluster.jobs import JobsClient

    if address is not None:
        return JobsClient(address)
    for name in _VARIABLES:
        if os.environ.get(name, "").startswith(("http://", "https://")):
            client = JobsClient(os.environ[name])
            click.echo(f"{name} names {client.address}", err=True)
            return client
    raise StartError("no cluster is named; add --address http://HOST:8265, the address of its Jobs API.")


@click.group()
def jobs() -> None:
    """List, follow and stop the runs that were submitted to a Ray cluster.

    ID is what longdoc submit printed, or the beginning of it.
    """


@jobs.command("list", short_help="Show the runs that were submitted.")
@address_option
@click.option("--all", "show_all", is_flag=True, help="Show jobs that are not longdoc's too.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def list_command(address: str | None, show_all: bool, as_json: bool) -> None:
    """Show the submitted runs, the newest first: id, state, age, sources and output."""
    from longdoc.submission.preflight import KIND, OWNER

    found = client_of(address).jobs()
    shown = [job for job in found if show_all or (OWNER in job.metadata and KIND not in job.metadata)]
    if as_json:
        click.echo(json.dumps([_as_json(job) for job in shown], indent=2))
        return
    if not shown:
        others = f"; --all shows {plural(len(found), 'other job')}" if found else ""
        click.echo(f"No run was submitted{others}.")
    for job in shown:
        click.echo(printable("  ".join(_row(job))))


@jobs.command("status", short_help="Show how a run stands.")
@click.argument("job_id", metavar="ID")
@address_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status_command(job_id: str, address: str | None, as_json: bool) -> None:
    """Show how the run ID stands."""
    from longdoc.submission.follow import exit_code_of, find_job, how_it_ended

    job = find_job(client_of(address), job_id)
    if as_json:
        click.echo(json.dumps(_as_json(job), indent=2))
        return
    output, sources = _facts(job)
    rows = [("job", job.job_id), ("state", job.status), ("started", _time(job.started_at)), ("output", output)]
    rows += [("sources", sources)]
    if job.has_ended:
        rows += [("ended", _time(job.ended_at)), ("exit code", str(exit_code_of(job))), ("", how_it_ended(job))]
    for name, value in rows:
        click.echo(printable(f"{name:10}{value}"))


@jobs.command("logs", short_help="Show what a run has written.")
@click.argument("job_id", metavar="ID")
@address_option
@click.option(
    "--follow", "-f", is_flag=True, help="Go on until the run ends; the exit code stays that of this command."
)
def logs_command(job_id: str, address: str | None, follow: bool) -> None:
    """Show what the run ID has written: its progress, and its summary at the end."""
    from longdoc.submission.follow import find_job

    client = client_of(address)
    job = find_job(client, job_id)
    if follow:
        with _left_alone(client, job.job_id):
            _followed(client, job.job_id, _echo)
        return
    for line in client.logs(job.job_id).splitlines():
        _echo(line)


@jobs.command("stop", short_help="Stop a run.")
@click.argument("job_id", metavar="ID")
@address_option
def stop_command(job_id: str, address: str | None) -> None:
    """Stop the run ID and wait until it has stopped. What it has committed stays; nothing else is left of it."""
    from longdoc.submission.follow import find_job, how_it_ended

    client = client_of(address)
    job = find_job(client, job_id)
    if job.has_ended:
        click.echo(printable(f"{how_it_ended(job)} There is nothing to stop."))
        return
    client.stop(job.job_id)
    deadline = time.monotonic() + STOP_SECONDS
    while not (job := client.job(job.job_id)).has_ended:
        if time.monotonic() > deadline:
            cause = f"job {job.job_id} was asked to stop and is {job.status} after {STOP_SECONDS:g} s"
            raise InfrastructureError(f"{cause}. Ask again, or look at the node that runs it.")
        time.sleep(0.5)
    click.echo(printable(how_it_ended(job)))


@jobs.command("wait", short_help="Follow a run to its end.")
@click.argument("job_id", metavar="ID")
@address_option
@click.pass_context
def wait_command(ctx: click.Context, job_id: str, address: str | None) -> None:
    """Follow the run ID to its end and exit with its exit code. Ctrl-C ends the following and leaves the run alone."""
    from longdoc.submission.follow import find_job

    client = client_of(address)
    ctx.exit(watch(client, find_job(client, job_id).job_id, to_stderr=False))


def watch(client: "JobsClient", job_id: str, *, to_stderr: bool) -> int:
    """Show a job's lines until it ends; returns the exit code that it stands for. Ctrl-C leaves the job alone."""
    from rich.console import Console
    from rich.text import Text

    from longdoc.submission.follow import exit_code_of, how_it_ended

    console = Console(stderr=True, highlight=False, emoji=False)
    is_one_terminal = console.is_terminal and sys.stdout.isatty()

    def show(line: str) -> None:
        if is_one_terminal:  # above the line that moves, not through it
            console.print(printable(line.expandtabs()), soft_wrap=True, markup=False)
        else:
            _echo(line, to_stderr=to_stderr)

    with _left_alone(client, job_id):
        if not console.is_terminal:
            job = _followed(client, job_id, show)
        else:
            with console.status(f"job {job_id}") as status:

                def move(line: str) -> None:
                    if _PROGRESS.fullmatch(line):
                        status.update(Text(printable(line)))
                    else:
                        show(line)

                job = _followed(client, job_id, move)
    _note(how_it_ended(job))
    return exit_code_of(job)


def _followed(client: "JobsClient", job_id: str, line: Callable[[str], None]) -> "Job":
    from longdoc.submission.follow import Follower

    return Follower(client=client, job_id=job_id, line=line, note=_note).follow()


@contextlib.contextmanager
def _left_alone(client: "JobsClient", job_id: str) -> Iterator[None]:
    """Ctrl-C in the block ends the following: said once nothing moves on the terminal, which would break the line."""
    from longdoc.submission.follow import come_back

    try:
        yield
    except KeyboardInterrupt:
        _note(f"Job {job_id} runs on. Come back with: {come_back(client, job_id)}")
        # Not `Interrupted`: that is said of a run, and this one goes on.
        raise click.exceptions.Exit(Interrupted.exit_code) from None


def _echo(line: str, *, to_stderr: bool = False) -> None:
    click.echo(printable(line.expandtabs()), err=to_stderr)


def _note(message: str) -> None:
    print(printable(message), file=sys.stderr, flush=True)  # noqa: T201


def _row(job: "Job") -> tuple[str, ...]:
    output, sources = _facts(job)
    return (
        job.job_id,
        f"{job.status:9}",
        f"{_age(job):>6}",
        f"{sources:>4} {'source' if sources == '1' else 'sources'}",
        output or job.entrypoint,
    )


def _facts(job: "Job") -> tuple[str, str]:
    from longdoc.submission.submit import OUTPUT, SOURCES

    return job.metadata.get(OUTPUT, ""), job.metadata.get(SOURCES, "-")


def _age(job: "Job") -> str:
    if job.started_at is None:
        return "-"
    seconds = max(0.0, time.time() - job.started_at)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return dt.datetime.fromtimestamp(seconds, tz=dt.UTC).astimezone().isoformat(sep=" ", timespec="seconds")


def _as_json(job: "Job") -> dict[str, Any]:
    from longdoc.submission.follow import exit_code_of

    return asdict(job) | {"metadata": dict(job.metadata), "exit_code": exit_code_of(job) if job.has_ended else None}
