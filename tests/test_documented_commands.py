"""Every command that a page shows is one that the command line takes, options and all."""

from pathlib import Path

import click
import pytest
from documented_commands import check_command, longdoc_commands

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["README.md", "samples/README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_is_one_that_exists(page: str) -> None:
    for arguments in longdoc_commands((ROOT / page).read_text()):
        try:
            check_command(arguments)
        except click.ClickException as error:
            pytest.fail(f"{page}: longdoc {' '.join(arguments)}: {error.format_message()}")


def test_the_pages_for_beginners_show_commands() -> None:
    assert {arguments[0] for arguments in longdoc_commands((ROOT / "README.md").read_text())} >= {
        "run",
        "plan",
        "verify",
    }


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["rum", "book.txt"], "No such command 'rum'"),
        (["run", "book.txt", "-o", "out", "--ringsize", "2"], "No such option"),
        (["run", "book.txt", "-o", "out", "--layout", "spiral"], "'spiral' is not one of"),
        (["verify"], "Missing parameter: output"),
        (["models", "lost"], "No such command 'lost'"),
    ],
)
def test_a_command_that_does_not_exist_would_be_found(arguments: list[str], told: str) -> None:
    with pytest.raises(click.ClickException, match=told):
        check_command(arguments)
