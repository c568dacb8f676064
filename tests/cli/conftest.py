"""Fixtures of the command-line tests."""

from pathlib import Path

import pytest
from command_line import Ended, git

from longdoc.cli.main import call


@pytest.fixture
def here(capsys):
    """Run `longdoc` in this process: for commands that end before any work starts."""

    def run(*arguments: object) -> Ended:
        code = call([str(argument) for argument in arguments])
        caught = capsys.readouterr()
        return Ended(code=code, out=caught.out, err=caught.err)

    return run


@pytest.fixture
def git_repository(tmp_path: Path):
    """Make a repository with one commit of the given files; without files, one without a commit."""

    def make(name: str, files: dict[str, bytes]) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        git(folder, "init", "-q", "-b", "main")
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        if files:
            git(folder, "add", ".")
            git(folder, "commit", "-q", "-m", "one")
        return folder

    return make
