"""`longdoc submit`: the same run on a Ray cluster, through its Jobs API."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from longdoc.cli.jobs import address_option, client_of, watch
from longdoc.cli.options import config_option, model_options, run_options, source_options, take_selection
from longdoc.cli.printing import plural, printable

if TYPE_CHECKING:
    from longdoc.submission.cargo import Cargo
    from longdoc.submission.package import Package
    from longdoc.submission.submit import Submitted

_NUM_LISTED = 10


@click.command()
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@address_option
@run_options
@model_options
@source_options
@click.option(
    "--remote-path",
    "remote_paths",
    multiple=True,
    metavar="PATH",
    help="A source by its whole path on the cluster's nodes, read there and not shipped; may be repeated.",
)
@click.option(
    "--cluster-python",
    default="python",
    show_default=True,
    metavar="COMMAND",
    help="The Python on the cluster's nodes that has longdoc.",
)
@config_option
@click.option("--wait", is_flag=True, help="Follow the job and exit with its code, as longdoc jobs wait does.")
@click.option("--json", "as_json", is_flag=True, help="Print what was submitted as JSON.")
@click.pass_context
def submit(
    ctx: click.Context,
    /,
    sources: tuple[str, ...],
    *,
    address: str | None,
    remote_paths: tuple[str, ...],
    cluster_python: str,
    wait: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Run every SOURCE on a Ray cluster: the options of longdoc run, and the address of the cluster's Jobs API.

    Books, folders of books, lists, standard input and repositories of this machine are shipped, repositories at an
    address go by their address, and OUT is a folder that all nodes share. The documents keep the addresses that they
    have here, so a run here and one there are the same work. What would be uploaded is listed first; the cluster is
    asked whether it can run the job before anything is.

    \b
    Examples:
      longdoc submit alice.txt -o /shared/out --address http://head:8265
      longdoc submit @repositories.txt -o /shared/index --address http://head:8265 --wait
      longdoc submit --remote-path /shared/books -o /shared/out
    """
    from longdoc.cli.sources import find_packer
    from longdoc.errors import StartError
    from longdoc.submission.submit import Order
    from longdoc.submission.submit import submit as submit_order

    if options["output"] is None:
        raise StartError("no output is named; add --output OUT.")
    selection = take_selection(options)
    order = Order(
        arguments=sources, remote_paths=remote_paths, selection=selection, options=options, python=cluster_python
    )
    client = client_of(address)
    submitted = submit_order(client, order, find_packer(), packed=_print_package)
    if as_json:
        click.echo(json.dumps(_as_json(submitted), indent=2))
    else:
        _print_submitted(submitted)
    if wait:
        ctx.exit(watch(client, submitted.job_id, to_stderr=as_json))


def _print_package(cargo: "Cargo", package: "Package") -> None:
    """What would be uploaded, the largest first, before it is."""
    from longdoc.sizes import format_bytes

    for path, reason in cargo.skipped:
        click.echo(printable(f"skipped {path}: {reason}"), err=True)
    click.echo(f"To upload: {plural(len(package.files), 'file')}, {format_bytes(package.num_bytes)}", err=True)
    for file in package.files[:_NUM_LISTED]:
        click.echo(printable(f"  {format_bytes(file.num_bytes_packed):>10}  {file.label}"), err=True)
    if len(package.files) > _NUM_LISTED:
        click.echo(f"  and {plural(len(package.files) - _NUM_LISTED, 'smaller file')}", err=True)


def _print_submitted(submitted: "Submitted") -> None:
    answer, job_id = submitted.answer, submitted.job_id
    on = f"Ray {answer.ray}, Python {answer.python}, longdoc {answer.longdoc}, {plural(answer.num_nodes, 'node')}"
    click.echo(printable(f"Job {job_id} was submitted to {submitted.address} ({on})."))
    for verb, what in (("wait", "follow it to its end"), ("logs", "what it has written"), ("stop", "stop it")):
        click.echo(f"  longdoc jobs {verb} {job_id} --address {submitted.address}   # {what}")


def _as_json(submitted: "Submitted") -> dict[str, Any]:
    package = submitted.package
    return {
        "job_id": submitted.job_id,
        "address": submitted.address,
        "num_sources": submitted.num_sources,
        "package": {
            "name": package.name,
            "num_bytes": package.num_bytes,
            "files": [asdict(file) for file in package.files],
        },
        "cluster": {name: value for name, value in asdict(submitted.answer).items() if name != "problems"},
    }
