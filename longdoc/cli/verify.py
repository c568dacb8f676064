"""`longdoc verify OUT`: is everything in an output as promised?"""

import json
from dataclasses import asdict

import click

from longdoc.errors import CheckFailed
from longdoc.verify import VerifyReport
from longdoc.verify import verify as check_output

_ORDER = ("documents", "segments", "spans", "tokens", "parts", "quarantine", "runs")


@click.command("verify")
@click.argument("output", metavar="OUT")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def verify(output: str, as_json: bool) -> None:
    """Check every file, row and hash in the output OUT, from its files alone.

    Reads everything, changes nothing. Exits with 1 and names each fault if there is one, with 2 if OUT is not an
    output of longdoc.
    """
    report = check_output(output)
    if as_json:
        click.echo(json.dumps(asdict(report), indent=2))
    else:
        for fault in report.faults:
            click.echo(fault)
        click.echo(f"{output}: checked {summary(report)}")
    if report.faults:
        number = len(report.faults)
        raise CheckFailed(f"{output} does not hold what was promised: {number} fault{'s' * (number > 1)}.")
    if not as_json:
        click.echo("Everything is as promised.")


def summary(report: VerifyReport) -> str:
    """What was looked at, in one line."""
    told = [f"{report.counts.get(name, 0):,} {name}" for name in _ORDER]
    return ", ".join(told) + f"; {report.counts.get('bytes', 0):,} bytes hashed."
