"""`longdoc models`: what it prints, what it returns, what it leaves in the cache."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from longdoc.cli.models import models
from longdoc.errors import CheckFailed, ModelError
from longdoc.model import gates
from longdoc.model.local import LocalModel


def test_list_json_has_name_source_sha256_and_path_or_null(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path))
    result = CliRunner().invoke(models, ["list", "--json"])
    assert result.exit_code == 0
    rows = json.loads(result.stdout)
    assert [sorted(row) for row in rows] == [["name", "path", "sha256", "source"]] * 2
    assert {row["name"]: row["path"] for row in rows} == {"smollm2-135m-instruct": None, "tiny-random": None}
    assert list(tmp_path.iterdir()) == [], "listing writes nothing"


def test_list_shows_where_a_pulled_model_is(tiny_model: LocalModel) -> None:
    result = CliRunner().invoke(models, ["list"])
    assert result.exit_code == 0
    assert f"  path    {tiny_model.folder}\n" in result.stdout
    rows = json.loads(CliRunner().invoke(models, ["list", "--json"]).stdout)
    assert {row["name"]: row["path"] for row in rows}["tiny-random"] == str(tiny_model.folder)


def test_list_says_how_to_get_what_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path))
    result = CliRunner().invoke(models, ["list"])
    assert "not pulled yet: longdoc models pull tiny-random" in result.stdout


def test_pull_prints_the_folder_and_the_facts(tiny_model: LocalModel) -> None:
    result = CliRunner().invoke(models, ["pull", "tiny-random"])
    assert result.exit_code == 0
    assert result.stdout == (
        f"tiny-random is in {tiny_model.folder}\n"
        f"  1.6 M parameters, 2 layers, trained to 8,192 tokens\n  digest {tiny_model.digest}\n"
    )


@pytest.mark.parametrize("command", ["pull", "check"])
def test_an_unknown_name_is_a_model_error_with_the_nearest_names(command: str) -> None:
    result = CliRunner().invoke(models, [command, "tiny-randon"])
    assert isinstance(result.exception, ModelError)
    assert str(result.exception).startswith("unknown model 'tiny-randon'; the nearest are tiny-random and ")
    assert result.exception.exit_code == 2


def test_check_says_yes_with_the_measured_error(tiny_model: LocalModel) -> None:
    result = CliRunner().invoke(models, ["check", str(tiny_model.folder)])
    assert result.exit_code == 0
    assert f"{tiny_model.folder.name} can run on a ring: largest difference of a log-probability " in result.stdout
    gates = [line.split()[0] for line in result.stdout.splitlines()[:4]]
    assert gates == ["configuration", "attention", "locality", "ring"]
    assert "called once a layer: 2 × causal" in result.stdout


def test_check_says_no_with_the_reason_and_another_code(
    tiny_model: LocalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "_MIXERS", ("LlamaMLP",))
    result = CliRunner().invoke(models, ["check", "tiny-random"])
    assert isinstance(result.exception, CheckFailed)
    assert result.exception.exit_code == 1
    assert "model tiny-random cannot run on a ring: it has LlamaMLP" in str(result.exception)


def test_list_shows_what_was_pulled_beside_the_built_in_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path))
    folder = tmp_path / "models" / "hf-acme--small-0123456789ab"
    folder.mkdir(parents=True)
    half_made = tmp_path / "models" / ".pull-0123"
    half_made.mkdir()
    marker = {"name": "acme/small", "source": f"hf:acme/small@{'01' * 20}", "source_sha256": "ab" * 32}
    for path in (folder, half_made):
        (path / "longdoc.json").write_text(json.dumps(marker))
    rows = json.loads(CliRunner().invoke(models, ["list", "--json"]).stdout)
    assert rows[2:] == [
        {"name": "acme/small", "source": marker["source"], "sha256": "ab" * 32, "path": str(folder)},
    ]
    shown = CliRunner().invoke(models, ["list"]).stdout
    assert f"acme/small\n  source  {marker['source']}\n  sha256  {'ab' * 32}\n  path    {folder}\n" in shown
