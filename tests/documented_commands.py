"""Commands that a page shows: found in its `sh` blocks, and parsed as the command line itself would parse them."""

import contextlib
import re
import shlex
from unittest.mock import patch

import click

from longdoc.cli.main import cli

_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shell_lines(page: str) -> list[str]:
    """The command lines of a page's `sh` blocks, joined where a backslash continues them, without comments."""
    lines = "".join(_BLOCK.findall(page)).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def words_of(line: str) -> list[str]:
    """The words of a command line; a comment at its end is none of them."""
    return shlex.split(line, comments=True)


def longdoc_commands(page: str) -> list[list[str]]:
    """The arguments of every `longdoc` in a page's `sh` blocks."""
    return [words[1:] for words in map(words_of, shell_lines(page)) if words[0] == "longdoc"]


def check_command(arguments: list[str]) -> None:
    """Raise `click.ClickException` for a command, option or choice that does not exist, or an argument too many.

    Only what stands in the line is parsed: files that it names need not be there.
    """
    command: click.Command = cli
    ctx = click.Context(cli, info_name="longdoc")
    rest = list(arguments)
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(ctx, rest)
        assert found is not None, arguments
        command, ctx = found, click.Context(found, info_name=name, parent=ctx)
    with contextlib.ExitStack() as stack:
        for parameter in command.params:
            if parameter.name == "config":
                stack.enter_context(patch.object(parameter, "callback", None))
        command.make_context(ctx.info_name, rest, parent=ctx.parent)
