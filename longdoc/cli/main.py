"""The command line: one group, one module a command. Turns every foreseeable failure into a message and an exit code.

Commands are imported when they are called, so that `longdoc --help` needs neither torch nor Ray.
"""

import contextlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType
from typing import Any

import click

from longdoc import __version__
from longdoc.cli.lazy import LazyGroup
from longdoc.cli.printing import printable_lines, without_passwords
from longdoc.errors import InfrastructureError, Interrupted, LongdocError

#: Command -> (module, attribute, one line of help).
COMMANDS = {
    "run": ("longdoc.cli.run", "run", "Read sources with a model and write embeddings and scores to Parquet."),
    "plan": ("longdoc.cli.plan", "plan", "Count tokens and memory of sources and name the ring; runs nothing."),
    "verify": ("longdoc.cli.verify", "verify", "Check every promise about an output, from its files alone."),
    "inspect": ("longdoc.cli.inspect", "inspect", "Show where every byte of a source goes."),
    "locate": ("longdoc.cli.locate", "locate", "Show where a token or a byte of a document's text came from."),
    "submit": ("longdoc.cli.submit", "submit", "Run sources on a Ray cluster, through its Jobs API."),
    "jobs": ("longdoc.cli.jobs", "jobs", "List, follow and stop the runs that were submitted."),
    "schedule": ("longdoc.cli.schedule", "schedule", "Run longdoc by the clock, from a file of entries."),
    "models": ("longdoc.cli.models", "models", "List, fetch and check models."),
    "bench": ("longdoc.cli.bench", "bench", "Measure speed and exactness on this machine, side by side with others."),
}

_EPILOG = """\b
Start here:
  longdoc run book.txt -o out          a book, with the default model
  longdoc run path/to/repo -o out      a git repository at HEAD
  longdoc verify out                   check what was written
"""


@click.group(cls=LazyGroup, table=COMMANDS, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="longdoc")
def cli() -> None:
    """Read whole books and whole git repositories with a pretrained model, however long they are.

    One exact forward pass over each document on a ring of workers; embeddings and scores go to Parquet, and every
    byte of the source is accounted for.

    Exit codes: 0 all committed, 1 a check said no, 2 cannot start, 3 some documents quarantined, 4 incomplete for
    infrastructure reasons (run again), 5 an enforced target was missed, 130 interrupted.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point: run the command line and exit with the designed code."""
    code = call(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Python would complain once more while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def call(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        outcome: Any = cli.main(args=arguments, prog_name="longdoc", standalone_mode=False)
    except click.ClickException as error:
        with io.StringIO() as told:
            error.show(told)
            _say(told.getvalue().rstrip("\n"))
        return 2
    except (KeyboardInterrupt, click.Abort, Interrupted):
        _say("\nInterrupted. What a run had committed stays; the same command takes up the rest.")
        return Interrupted.exit_code
    except LongdocError as error:
        _say("\n".join([f"Error: {error}", *getattr(error, "__notes__", ())]))
        return error.exit_code
    except SystemExit:
        # click's answer to a closed pipe: whoever read our output has seen enough. A run keeps its own exit code.
        return 0
    except MemoryError:
        _say("Error: this process ran out of memory. Use a machine with more of it.")
        return InfrastructureError.exit_code
    except Exception:
        _say(f"{traceback.format_exc()}\nError: this is a fault in longdoc; please report the lines above.")
        return InfrastructureError.exit_code
    return outcome if isinstance(outcome, int) else 0


def _say(message: str) -> None:
    """A message on standard error, if anybody reads it; it drives no terminal and repeats no password of an address."""
    with contextlib.suppress(BrokenPipeError):
        print(printable_lines(without_passwords(message)), file=sys.stderr, flush=True)  # noqa: T201


def _terminate(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
