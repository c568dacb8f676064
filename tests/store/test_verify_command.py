"""`longdoc verify` on the command line: what it prints, as what, and with which exit code."""

import json
import os
import subprocess
import sys
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


def add_awkward_names(output: Path) -> None:
    """A name that would clear a terminal, and one that is not UTF-8."""
    (output / "tokens" / "x\x1b[2J\n.json").touch()
    (output / "tokens" / os.fsdecode(b"\xff.json")).touch()


def test_names_of_files_do_not_reach_the_terminal_raw(output: Path) -> None:
    add_awkward_names(output)
    done = run_strictly(output)
    assert (done.returncode, done.stderr) == (1, f"Error: {output} does not hold what was promised: 2 faults.\n")
    lines = done.stdout.splitlines()
    assert all(line.isprintable() for line in lines)
    assert [line.partition(": is not")[0] for line in lines[:2]] == [
        r"tokens: tokens/x\x1b[2J\n.json",
        r"tokens: tokens/\xff.json",
    ]


def test_names_of_files_survive_json(output: Path) -> None:
    add_awkward_names(output)
    done = run_strictly(output, "--json")
    faults = json.loads(done.stdout)["faults"]
    assert [os.fsencode(fault["subject"]) for fault in faults] == [b"tokens/x\x1b[2J\n.json", b"tokens/\xff.json"]


def run_strictly(output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The command in a process whose output takes UTF-8 and nothing else."""
    return subprocess.run(
        [sys.executable, "-m", "longdoc", "verify", str(output), *options],
        capture_output=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONIOENCODING": "utf-8:strict", "PYTHONUTF8": "1"},
    )
