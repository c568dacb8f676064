"""Connectors depend on five small modules of longdoc; the contract that says so forbids every other one."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KNOWN = {"encodings", "errors", "files", "records", "sizes"}


def test_the_contract_of_connectors_names_every_other_module() -> None:
    modules = {path.stem for path in (ROOT / "longdoc").iterdir() if not path.name.startswith(("_", "."))} - KNOWN
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = [contract for contract in contracts if contract["source_modules"] == ["connectors"]]
    assert set(contract["forbidden_modules"]) == {"pipelines", *(f"longdoc.{module}" for module in modules)}
