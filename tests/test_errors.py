"""Invariants are checked in production: where Python is told to leave `assert` out, none of them goes with it."""

import ast
from pathlib import Path

import pytest

from longdoc.errors import ensure

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted(path for package in ("connectors", "longdoc", "pipelines") for path in (ROOT / package).rglob("*.py"))


def test_what_holds_is_silent_and_what_does_not_is_raised() -> None:
    ensure([1], "never said")
    with pytest.raises(AssertionError, match=r"^3 of 4 came back$"):
        ensure([], "3 of 4 came back")


def narrows(test: ast.expr) -> bool:
    """Whether a condition tells the type checker something, and nothing else: `x is not None`, `isinstance(x, T)`."""
    if isinstance(test, ast.Compare):
        return isinstance(test.ops[0], ast.IsNot) and ast.unparse(test.comparators[0]) == "None"
    return isinstance(test, ast.Call) and ast.unparse(test.func) == "isinstance"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_assert_only_tells_types(path: Path) -> None:
    found = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Assert)]
    assert [ast.unparse(node) for node in found if not narrows(node.test)] == []
