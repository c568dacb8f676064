"""The files around the code agree with each other: packages, pins, documentation."""

import re
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


@pytest.mark.parametrize("group", ["dependencies", "cluster", "gpu", "query", "dev"])
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


def test_the_sample_book_is_a_book() -> None:
    from connectors.books import read_book

    path = ROOT / "samples" / "the-lighthouse-ledger.md"
    chapters = [segment for segment in read_book(path.read_bytes(), path=path).segments if segment.kind == "chapter"]
    assert len(chapters) == 5


def test_links_between_pages_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "samples" / "README.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), (page.name, target)
