"""A proof is made once for the same model, code, dtype, kernel and device, and never taken for another's."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from longdoc.errors import NotShardableError
from longdoc.model import proof
from longdoc.model.load import RingModel, load_model
from longdoc.model.local import LocalModel
from longdoc.ring.kernels.reference import reference_kernel


@pytest.fixture
def model(tiny_model: LocalModel) -> RingModel:
    return load_model(tiny_model, dtype=torch.float32)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The kernels of the checks that were really made, in an empty cache; each measures its own number."""
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path))
    made: list[str] = []

    def check(model: RingModel, kernel: object, *, report: object) -> float:
        made.append(str(model.dtype))
        return len(made) / 8

    monkeypatch.setattr(proof, "check_shardable", check)
    return made


def test_the_same_is_proved_once_and_its_error_kept(model: RingModel, checks: list[str]) -> None:
    errors = [proof.proved_error(model, reference_kernel, "reference") for _ in range(3)]
    assert errors == [1 / 8] * 3
    assert checks == ["torch.float32"]


@pytest.mark.parametrize(
    "change",
    [
        lambda patch, model: patch.setattr(proof.longdoc, "__version__", "9"),
        lambda patch, model: patch.setattr(proof, "_code_sha256", lambda: "another"),
        lambda patch, model: patch.setattr(torch, "__version__", "9"),
        lambda patch, model: patch.setattr(proof.importlib.metadata, "version", lambda name: "9"),
        lambda patch, model: model.module.to(torch.float64),
        lambda patch, model: patch.setattr(model, "local", dataclasses.replace(model.local, digest="another")),
    ],
    ids=["version", "code", "torch", "transformers", "dtype", "model"],
)
def test_whatever_a_check_depends_on_makes_it_anew(
    change: Callable[[pytest.MonkeyPatch, RingModel], None],
    model: RingModel,
    checks: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proof.proved_error(model, reference_kernel, "reference")
    change(monkeypatch, model)
    assert proof.proved_error(model, reference_kernel, "reference") == 2 / 8


def test_another_kernel_is_proved_by_itself(model: RingModel, checks: list[str]) -> None:
    assert [proof.proved_error(model, reference_kernel, name) for name in ("reference", "torch", "reference")] == [
        1 / 8,
        2 / 8,
        1 / 8,
    ]


def test_prove_always_checks_and_leaves_its_error_to_the_next_run(model: RingModel, checks: list[str]) -> None:
    assert [proof.prove(model, reference_kernel, "reference") for _ in range(2)] == [1 / 8, 2 / 8]
    assert proof.proved_error(model, reference_kernel, "reference") == 2 / 8


@pytest.mark.parametrize("content", ["", "[]", '{"error": 0.0}', '{"subject": {}, "error": 0.0}'])
def test_a_damaged_proof_counts_for_nothing(content: str, model: RingModel, checks: list[str], tmp_path: Path) -> None:
    proof.proved_error(model, reference_kernel, "reference")
    (path,) = (tmp_path / "checks").iterdir()
    assert json.loads(path.read_text())["error"] == 1 / 8
    path.write_text(content)
    assert proof.proved_error(model, reference_kernel, "reference") == 2 / 8


def test_a_refusal_is_not_kept(model: RingModel, checks: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> float:
        raise NotShardableError("no")

    kept = proof.check_shardable
    monkeypatch.setattr(proof, "check_shardable", refuse)
    with pytest.raises(NotShardableError, match="no"):
        proof.proved_error(model, reference_kernel, "reference")
    monkeypatch.setattr(proof, "check_shardable", kept)
    assert proof.proved_error(model, reference_kernel, "reference") == 1 / 8


def test_a_cache_that_cannot_be_written_only_costs_a_check(
    model: RingModel, checks: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "file" / "cache"))
    assert [proof.proved_error(model, reference_kernel, "reference") for _ in range(2)] == [1 / 8, 2 / 8]
