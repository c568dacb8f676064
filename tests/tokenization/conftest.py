"""Tokenizers of every supported shape, trained once, and their vocabularies; verdicts go to a cache of these tests."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from trained_tokenizers import SHAPES, ordinary, train

from longdoc.tokenization.vocabulary import Vocabulary


@pytest.fixture(scope="session")
def trained_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("trained")
    return {shape: train(shape, base / shape) for shape in SHAPES}


@pytest.fixture(scope="session")
def cache_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_cache(cache_of_tests: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "default_model" not in request.fixturenames:
        monkeypatch.setenv("LONGDOC_CACHE", str(cache_of_tests))


@pytest.fixture(scope="session", params=SHAPES)
def shape(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def folder(shape: str, trained_folders: dict[str, Path]) -> Path:
    return trained_folders[shape]


@pytest.fixture(scope="session")
def vocabulary(folder: Path, cache_of_tests: Path) -> Vocabulary:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LONGDOC_CACHE", str(cache_of_tests))
        return Vocabulary.load(folder)


@pytest.fixture(scope="session")
def oracle(folder: Path) -> Tokenizer:
    return ordinary(folder)
