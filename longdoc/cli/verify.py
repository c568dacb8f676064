"""`longdoc verify OUT`: is everything in an output as promised?"""

import json
from dataclasses import asdict

import click

from longdoc.cli.printing import plural, printable
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
        # Names that are not UTF-8 hold lone surrogates, which JSON can escape and no terminal can print.
        click.echo(json.dumps(asdict(report), indent=2, ensure_ascii=True))
    else:
        for fault in report.faults:
            click.echo(printable(str(fault)))
        click.echo(f"{printable(output)}: checked {summary(report)}")
    if report.faults:
        number = plural(len(report.faults), "fault")
        raise CheckFailed(f"{printable(output)} does not hold what was promised: {number}.")
    if not as_json:
        click.echo("Everything is as promised.")


def summary(report: VerifyReport) -> str:
    """What was looked at, in one line."""
    told = [f"{report.counts.get(name, 0):,} {name}" for name in _ORDER]
    return ", ".join(told) + f"; {report.counts.get('bytes', 0):,} bytes hashed."
