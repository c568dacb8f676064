"""No password of an address is in anything that is printed, whatever command was given it and whatever became of it."""

import json
import subprocess
from pathlib import Path

import pytest

from longdoc.cli.main import call

SECRET = "s3cr3t"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache"


ADDRESSES = [
    f"https://me:{SECRET}@127.0.0.1:1/x.git",
    f"https://{SECRET}@127.0.0.1:1/x.git",
    f"http://me:{SECRET}@127.0.0.1:1/x.git@v1",
    f"http://me:{SECRET}@example.org/x.git",
    f"https://example.org/x.git?private_token={SECRET}",
    f"ssh://me:{SECRET}@example.org/x.git",
    f"me:{SECRET}@example.org/x.git",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_that_cannot_be_read_is_told_without_its_secret(
    address: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], cache: Path
) -> None:
    (tmp_path / "list.txt").write_text(f"{address}\n")
    listed = f"@{tmp_path / 'list.txt'}"
    for arguments in ([address], [address, "--json"], ["--kind", "book", address], [listed], [listed, "--json"]):
        assert call(["inspect", *arguments]) in (2, 3, 4)
        said = "".join(capfd.readouterr())
        assert said
        assert SECRET not in said
        assert "Traceback" not in said
    assert not [path for path in cache.rglob("*") if SECRET in str(path)]


def test_a_clone_that_remembers_a_password_shows_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "repo"
    who = ("-c", "user.name=A", "-c", "user.email=a@b.c")
    modules = '[submodule "m"]\n\tpath = m\n\turl = ../m.git\n'
    (tmp_path / "repo").mkdir()
    (folder / ".gitmodules").write_text(modules)
    for command in (
        ("init", "-q", "-b", "main"),
        ("remote", "add", "origin", f"https://me:{SECRET}@127.0.0.1:1/repo.git"),
        ("add", "."),
        ("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},m"),
        (*who, "commit", "-q", "-m", "x"),
    ):
        subprocess.run(["git", "-C", str(folder), *command], check=True)
    assert call(["inspect", str(folder), "--json"]) == 0
    (document,) = json.loads(capfd.readouterr().out)["documents"]
    assert SECRET not in json.dumps(document)
    assert call(["inspect", str(folder), "--submodules"]) == 2  # its address is the remote's, where nobody answers
    said = "".join(capfd.readouterr())
    assert "submodule m: https://127.0.0.1:1/m.git: " in said
    assert SECRET not in said
