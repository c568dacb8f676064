"""docs/cluster.md says what is so: its commands exist, its unit starts one, its messages are in the code."""

import configparser
import re
import shlex
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from documented_commands import check_command, shell_lines, words_of

from longdoc.scheduling.schedule_file import TAKEOVER_SECONDS, read_schedule

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "cluster.md").read_text()
#: What the page's shell lines may begin with; tests elsewhere look into `longdoc` and `docker`.
PROGRAMS = {"longdoc", "docker", "ray", "export", "python3.11", "/opt/longdoc/bin/pip", "sudo"}


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return found


def test_every_shell_line_is_of_a_program_that_is_checked() -> None:
    assert {words_of(line)[0] for line in shell_lines(PAGE)} == PROGRAMS


def test_commands_of_ray_exist_with_their_options() -> None:
    from ray.scripts.scripts import cli

    lines = [words_of(line)[1:] for line in shell_lines(PAGE) if words_of(line)[0] == "ray"]
    assert [words[0] for words in lines] == ["get-auth-token", "start", "start"]
    for words in lines:
        cli.commands[words[0]].make_context(words[0], words[1:])


def test_environment_variables_are_ones_that_ray_or_longdoc_reads() -> None:
    exported = {words_of(line)[1].partition("=")[0] for line in shell_lines(PAGE) if words_of(line)[0] == "export"}
    assert exported == {"RAY_AUTH_MODE", "RAY_API_SERVER_ADDRESS"}


def test_the_installation_names_an_extra_that_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (line,) = [line for line in shell_lines(PAGE) if line.startswith("/opt/longdoc/bin/pip")]
    (extra,) = re.findall(r"\.\[(\w+)\]", line)
    assert extra in project["optional-dependencies"]
    assert "--constraint constraints.txt" in line


def test_the_unit_starts_a_command_that_exists() -> None:
    unit = configparser.ConfigParser()
    unit.optionxform = str
    unit.read_string(block("ini"))
    program, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name == "longdoc"
    check_command(arguments)


def test_the_schedule_of_the_page_is_one(tmp_path: Path) -> None:
    (tmp_path / "repositories.txt").write_text("https://example.org/a/b\n")
    # The page's output is a folder of the cluster.
    (tmp_path / "schedule.toml").write_text(block("toml").replace('"/shared/index"', f'"{tmp_path}/index"'))
    (entry,) = read_schedule(tmp_path / "schedule.toml", datetime.now(UTC)).entries
    assert (entry.name, entry.cron.zone.key, entry.options["address"]) == ("code", "Europe/Berlin", "auto")
    assert f"({TAKEOVER_SECONDS} unless" in PAGE


def messages() -> list[str]:
    """The first column of the table of messages; `…` stands between two pieces of one."""
    rows = re.findall(r"^\| (`.*?) \| ", PAGE[PAGE.index("| message |") :], re.MULTILINE)
    return [piece for row in rows for piece in re.findall(r"`([^`]+)`", row)]


def source() -> str:
    """The code with the seams of its strings closed, so that a message that runs over two lines is in one piece."""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "longdoc").rglob("*.py")))
    return re.sub(r'"\s*\n\s*f?"', "", text)


@pytest.fixture(scope="module")
def code() -> str:
    return source()


@pytest.mark.parametrize("message", messages())
def test_a_message_that_is_explained_is_one_that_is_given(message: str, code: str) -> None:
    assert message in code


def test_there_are_messages_to_look_for() -> None:
    assert len(messages()) >= 12
