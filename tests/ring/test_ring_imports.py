"""Importing has no side effects: planning needs no torch, and the hook touches transformers only when registered."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("longdoc.ring.plan", ["torch", "transformers", "ray"]),
        ("longdoc.ring.kernels", ["torch", "transformers", "ray"]),
        ("longdoc.ring.hook", ["transformers", "ray"]),
    ],
)
def test_importing_the_ring_loads_no_more_than_it_needs(module: str, absent: list[str]) -> None:
    code = f"import sys, {module}; sys.exit(any(name in sys.modules for name in {absent!r}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
