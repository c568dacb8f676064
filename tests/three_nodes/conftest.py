"""Three Ray nodes on this machine, sources to submit there, and the same run on this machine alone."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray_nodes import RayNodes, ray_nodes


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    """A head with the Jobs API and two workers, two logical CPUs each."""
    with ray_nodes((2, 2, 2)) as started:
        yield started


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A book, a repository, and a book that holds nothing and so must be set aside."""
    folder = tmp_path_factory.mktemp("sources")
    chapter = "CHAPTER {}. The {}th Night\n\n“Öre,” she said, “count the lamps — all 212 of them.” φάρος\n\n"
    (folder / "night.txt").write_text("".join(chapter.format(n, n) for n in range(1, 8)))
    (folder / "empty.txt").write_bytes(b"")
    repository = folder / "tool"
    (repository / "src").mkdir(parents=True)
    (repository / "src" / "a.py").write_bytes(b"def a():\n    return 1\n")
    (repository / "logo.png").write_bytes(b"\x89PNG\0\0\0")
    # What git ignores and what a packer might leave out for it: both are part of the commit.
    (repository / ".gitignore").write_bytes(b"*.py\n")
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    for command in (["init", "-q", "-b", "main"], ["add", "--force", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run(["git", "-C", str(repository), *who, *command], check=True, capture_output=True)
    return [folder / "night.txt", repository, folder / "empty.txt"]
