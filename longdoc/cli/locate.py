"""`longdoc locate OUT DOC POSITION`: where a token, or a byte of the text, came from."""

import json
import sys
from dataclasses import asdict
from typing import Any

import click

from longdoc.cli.printing import printable, printable_lines
from longdoc.locate import CONTEXT_CHARS, Excerpt, Location, Unit
from longdoc.locate import locate as locate_position


class Position(click.ParamType[tuple[Unit, int]]):
    """`1234` or `token:1234`, or `byte:1234`."""

    name = "position"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Unit, int]:
        """Raises a usage error for anything else."""
        if isinstance(value, tuple):
            return value
        unit, _, number = str(value).rpartition(":")
        digits = number.replace(",", "").replace("_", "")
        if not (digits.isascii() and digits.isdigit()) or unit not in ("", "token", "byte"):
            self.fail(f"{value!r} is no position: write a token's number, such as 1234, or byte:1234.", param, ctx)
        return ("byte" if unit == "byte" else "token", int(digits))


@click.command()
@click.argument("output", metavar="OUT")
@click.argument("document", metavar="DOC")
@click.argument("position", type=Position(), metavar="TOKEN|byte:N")
@click.option(
    "--context",
    type=click.IntRange(0, 100_000),
    default=CONTEXT_CHARS,
    show_default=True,
    metavar="CHARS",
    help="Characters of text to show on each side.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def locate(output: str, document: str, position: tuple[Unit, int], *, context: int, as_json: bool) -> None:
    """Show where token TOKEN, or byte N of the text, of document DOC in the output OUT came from.

    DOC is a document's title, the name of its file, its address (source_uri), its doc_id, or the beginning of its
    doc_key. Of several versions of a source the newest is meant, unless a doc_key names another. Tokens and bytes count
    from 0, as `position` and `text_byte_start` of the tables do; lines and columns from 1, as editors do.

    For a repository: file, line, column and commit. For a book: chapter, page or element where the format has them, and
    character. Both with the text around, where the output holds text.

    \b
    Examples:
      longdoc locate out "Alice's Adventures in Wonderland" 12345
      longdoc locate out alice.txt byte:51200
      longdoc locate out 3f9c2a 12345 --json
    """
    unit, number = position
    found = locate_position(output, document, unit, number, context_chars=context)
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2))
        return
    for line in _lines(found):
        click.echo(printable(line))
    click.echo()
    click.echo("This output holds no text (--no-text)." if found.excerpt is None else _shown(found.excerpt))


def _lines(found: Location) -> list[str]:
    commit = f"commit {found.commit_id}" if found.commit_id else None
    revision = f"revision {found.revision}" if found.revision else None
    start, stop = found.text_byte_start, found.text_byte_stop
    return [
        _joined(found.title, found.kind, found.source_uri, commit, revision),
        _joined(f"token {found.token:,}", f"id {found.token_id}", f"bytes {start:,} to {stop:,} of the text"),
        _joined(*_place(found)),
    ]


def _place(found: Location) -> list[str | None]:
    is_file = found.path is not None
    line = _line(found)
    where = found.path if is_file else found.section_title
    # As editors and compilers write it; a transformed text has lines of its own, not those of its file.
    if is_file and found.transform is None and found.column is not None:
        where, line = f"{found.path}:{found.line}:{found.column}", None
    return [
        where,
        found.section_title if is_file else None,
        found.segment_kind,
        None if found.place is None else f"begins at {found.place}",
        line,
        None if found.char_in_segment is None else f"character {found.char_in_segment:,} of it",
        None if found.char is None else f"{found.char:,} of the text",
    ]


def _line(found: Location) -> str | None:
    if found.line is None or found.last_line is None:
        return None
    if found.line != found.last_line:
        return f"lines {found.line:,} to {found.last_line:,}"
    return f"line {found.line:,}" + (f", column {found.column:,}" if found.column else "")


def _joined(*facts: str | None) -> str:
    return " · ".join(fact for fact in facts if fact)


def _shown(excerpt: Excerpt) -> str:
    """The text; the token stands out on a terminal by its colours, elsewhere between brackets."""
    marked = _visible(excerpt.marked)
    marked = click.style(marked, reverse=True) if sys.stdout.isatty() else f"⟦{marked}⟧"
    before = ("…" if excerpt.is_cut_before else "") + printable_lines(excerpt.before)
    return before + marked + printable_lines(excerpt.after) + ("…" if excerpt.is_cut_after else "")


def _visible(text: str) -> str:
    """A token that is nothing but white space would stand out as nothing."""
    return printable(text) if not text.strip() else printable_lines(text)
