"""A sound output, made once, and copies of it to tamper with."""

import shutil
from pathlib import Path

import pytest
from synthetic_output import make_output


@pytest.fixture(scope="session")
def sound_output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("sound") / "out"
    make_output(output)
    return output


@pytest.fixture
def output(sound_output: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound_output, tmp_path / "out"))
