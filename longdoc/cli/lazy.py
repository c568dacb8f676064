"""A group of commands that imports a command's module when the command is asked for, so that --help needs no torch."""

import importlib
from collections.abc import Mapping
from typing import Any

import click

#: Command -> (module, attribute, one line of help). The help stands here so that listing imports nothing.
CommandTable = Mapping[str, tuple[str, str, str]]


class LazyGroup(click.Group):
    """A group over a table of commands."""

    def __init__(self, *args: Any, table: CommandTable, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command, imported now."""
        if cmd_name not in self._table:
            return None
        module, attribute, _ = self._table[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands in --help."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, _, summary) in self._table.items()])
