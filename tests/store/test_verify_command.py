"""`longdoc verify` on the command line: what it prints, as what, and with which exit code."""

import json
from pathlib import Path

from click.testing import CliRunner
from verify_actions import part

from longdoc.cli.verify import verify as verify_command
from longdoc.errors import CheckFailed, OutputError


def test_the_command_says_that_all_is_well(output: Path) -> None:
    done = CliRunner().invoke(verify_command, [str(output)])
    assert done.exit_code == 0
    assert done.output.splitlines()[-1] == "Everything is as promised."
    assert "checked 2 documents, 12 segments, " in done.output


def test_the_command_names_faults_and_fails(output: Path) -> None:
    part(output, "spans").unlink()
    done = CliRunner().invoke(verify_command, [str(output)])
    assert isinstance(done.exception, CheckFailed)
    assert done.exception.exit_code == 1
    assert str(done.exception) == f"{output} does not hold what was promised: 1 fault."
    assert "is missing; a committed document names it" in done.output


def test_the_command_reports_as_json(output: Path) -> None:
    part(output, "spans").unlink()
    report = json.loads(CliRunner().invoke(verify_command, [str(output), "--json"]).stdout)
    assert [fault["table"] for fault in report["faults"]] == ["spans"]
    assert report["counts"]["documents"] == 2


def test_the_command_refuses_what_is_no_output(tmp_path: Path) -> None:
    done = CliRunner().invoke(verify_command, [str(tmp_path)])
    assert isinstance(done.exception, OutputError)
    assert done.exception.exit_code == 2
