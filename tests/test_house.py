"""The files around the code agree with each other: packages, pins, image, samples, documentation."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().split()
    return {name.lower().replace("_", "-"): version for name, version in (line.split("==") for line in lines)}


def test_every_package_is_listed_and_nothing_else_is() -> None:
    folders = {"longdoc", "pipelines", "connectors"}
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for folder in folders
        for path in (ROOT / folder).rglob("__init__.py")
    }
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == found


@pytest.mark.parametrize("group", ["dependencies", "query", "dev"])
def test_every_requirement_is_pinned_within_its_range(group: str) -> None:
    project = PROJECT["project"]
    requirements = project["dependencies"] if group == "dependencies" else project["optional-dependencies"][group]
    for requirement in map(Requirement, requirements):
        if requirement.name != "longdoc":
            assert Version(pins()[requirement.name.lower()]) in requirement.specifier, requirement


def test_the_tested_versions_are_the_pinned_ones() -> None:
    from importlib.metadata import version

    for requirement in map(Requirement, PROJECT["project"]["dependencies"]):
        assert Version(version(requirement.name)).public == pins()[requirement.name.lower()], requirement


def test_the_image_installs_the_pins_and_copies_what_exists() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert "--constraint constraints.txt" in dockerfile
    for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
    copied = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    assert {"longdoc", "pipelines", "connectors", "pyproject.toml", "constraints.txt"} <= copied
    assert PROJECT["project"]["requires-python"] == ">=3.11"
    assert "python:3.11-slim" in dockerfile


def test_the_sample_job_names_only_known_options() -> None:
    from longdoc.config import read_job_file

    job = read_job_file(ROOT / "samples" / "job.toml")
    assert [(ROOT / source).is_file() for source in job["sources"]] == [True]


def test_the_sample_book_is_a_book() -> None:
    from connectors.books import read_book

    path = ROOT / "samples" / "the-lighthouse-ledger.md"
    chapters = [segment for segment in read_book(path.read_bytes(), path=path).segments if segment.kind == "chapter"]
    assert len(chapters) == 5


def test_every_option_of_the_readme_exists() -> None:
    from longdoc.cli.main import COMMANDS, cli

    helps = {}
    for name in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-m", "longdoc", name, "--help"], capture_output=True, text=True, check=True
        )
        helps[name] = done.stdout
    shell = "".join(re.findall(r"^```sh$(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL))
    for name, options in re.findall(r"^longdoc (\w+) (.*?)(?:#.*)?$", shell, re.MULTILINE):
        assert name in helps
        for option in re.findall(r"(?<!\S)(--?[a-z-]+)", options):
            assert re.search(rf"(?<!\S){option}\b", helps[name]), (name, option)
    assert cli.name


def test_links_between_pages_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "samples" / "README.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), (page.name, target)
