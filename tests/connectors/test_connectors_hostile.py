"""Repositories made to harm their reader: nothing in them is executed, fetched or written."""

import os
from pathlib import Path

import pytest
from git_plumbing import (
    REGULAR,
    SYMLINK,
    commit_entries,
    commit_files,
    content_segments,
    new_repository,
    read,
    run_git,
    write_blob,
)
from git_servers import serve

from connectors.address import parse_address
from connectors.repository import open_remote, open_repository
from longdoc.errors import SourceError
from longdoc.records import Selection


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache"


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A file that is there as soon as anything of the repository was executed."""
    return tmp_path / "canary"


def poison(folder: Path, canary: Path) -> None:
    """Everything in a repository's own configuration, attributes and hooks that makes git start a program."""
    script = folder / "evil"
    script.write_text(f'#!/bin/sh\necho "$0 $@" >> {canary}\nexit 1\n')
    script.chmod(0o755)
    git_dir = folder / ".git"
    for name in ("core.fsmonitor", "core.sshCommand", "core.gitProxy", "core.askPass", "core.pager", "core.editor"):
        run_git(folder, "config", name, str(script))
    for name in (
        "filter.evil.smudge",
        "filter.evil.clean",
        "filter.evil.process",
        "diff.evil.textconv",
        "diff.evil.command",
    ):
        run_git(folder, "config", name, str(script))
    for name in ("rev-parse", "ls-tree", "cat-file", "for-each-ref", "config", "fetch", "ls-remote"):
        run_git(folder, "config", f"alias.{name}", f"!{script}")
    run_git(folder, "config", "core.hooksPath", str(folder))
    run_git(folder, "config", "core.alternateRefsCommand", str(script))
    run_git(folder, "config", "remote.origin.url", f"ext::{script} x")
    run_git(folder, "config", "remote.origin.uploadpack", str(script))
    run_git(folder, "config", "remote.origin.promisor", "true")
    run_git(folder, "config", "extensions.partialClone", "origin")
    run_git(folder, "config", "credential.helper", f"!{script}")
    run_git(folder, "config", f"url.ext::{script} .insteadOf", "http://")
    run_git(folder, "config", "protocol.allow", "always")
    for hook in ("post-checkout", "reference-transaction", "post-index-change", "fsmonitor-watchman", "pre-auto-gc"):
        for place in (folder, git_dir / "hooks"):
            place.mkdir(exist_ok=True)
            (place / hook).write_text(script.read_text())
            (place / hook).chmod(0o755)


def test_nothing_of_a_local_repository_is_executed(tmp_path: Path, canary: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    commit_files(
        folder,
        {
            ".gitattributes": b"* filter=evil diff=evil\n",
            "a": b"1\n",
            ".gitmodules": b'[submodule "m"]\n\tpath = m\n\turl = ../x\n',
        },
    )
    commit = commit_entries(
        folder, {b"a": (REGULAR, write_blob(folder, b"1\n")), b"gone": (REGULAR, "1" * 40)}, branch="partial"
    )
    poison(folder, canary)
    assert b"File: a\n1\n" in read(folder, submodules=True, lfs=True).text
    missing = content_segments(read(folder, revision=commit))[b"gone"]
    assert missing.reason == "object_missing"
    with pytest.raises(SourceError):
        read(folder, revision="mian")
    assert not canary.exists()


def test_the_repository_one_stands_in_has_no_say_in_how_others_are_reached(
    tmp_path: Path, canary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = new_repository(tmp_path / "here")
    commit_files(new_repository(tmp_path / "served" / "repo"), {"a": b"1\n"})
    poison(here, canary)
    monkeypatch.chdir(here)
    with serve(tmp_path / "served") as server:
        ref = open_remote(parse_address(f"{server.url}/repo/.git"), Selection()).ref
        assert b"File: a\n1\n" in ref.read().text
    assert not canary.exists()


@pytest.mark.parametrize(
    "url",
    [
        "ext::sh -c 'touch {canary}'",
        "ext::{canary}",
        "-u{canary}",
        "--upload-pack={canary}",
        "ssh://-oProxyCommand={canary}/x",
        "a@-oProxyCommand={canary}:x",
        "fd::17",
        "ftp://h/x",
        "git@h:-x",
        "https://h/x\nfile:///y",
    ],
)
def test_addresses_that_would_run_something_are_refused(url: str, canary: Path) -> None:
    with pytest.raises(SourceError):
        parse_address(url.format(canary=canary))
    assert not canary.exists()


def test_links_are_read_as_links(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    (tmp_path / "private").write_text("secret")
    links = {
        b"loop": b"loop",
        b"out": b"../private",
        b"root": b"/etc/passwd",
        b".gitattributes": b"../private",
    }
    commit_entries(folder, {path: (SYMLINK, write_blob(folder, target)) for path, target in links.items()})
    document = read(folder, submodules=True, lfs=True)
    assert {path: document.segment_text(s) for path, s in content_segments(document).items()} == links


def test_paths_that_would_leave_a_folder_are_names_like_any_other(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    blob = write_blob(folder, b"x\n")
    # As no git would make it.
    entries = [b"100644 %s\0%s" % (name, bytes.fromhex(blob)) for name in (b"..", b".git", b"/etc/x", b"C:\\x")]
    make = ("hash-object", "-w", "-t", "tree", "--literally", "--stdin")
    tree = run_git(folder, *make, stdin=b"".join(entries)).decode().strip()
    run_git(folder, "update-ref", "refs/heads/main", run_git(folder, "commit-tree", tree, "-m", "x").decode().strip())
    document = read(folder)
    assert [s.path for s in document.segments if s.is_content][1:] == [b"..", b".git", b"/etc/x", b"C:\\x"]
    with serve(tmp_path) as server:
        assert (
            open_remote(parse_address(f"{server.url}/repo/.git"), Selection())
            .ref.read()
            .text.endswith(b"File: C:\\x\nx\n")
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "repo"]


def test_rules_made_to_cost_time_or_to_include_files(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "repo")
    (tmp_path / "more").write_text('[submodule "m"]\n\tpath = m\n\turl = https://h/x\n')
    commit_files(folder, {
        ".gitattributes": b"*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*ab text\n" * 200,
        ".gitmodules": f"[include]\n\tpath = {tmp_path / 'more'}\n".encode(),
        "a" * 200: b"1\n",
    })  # fmt: skip
    assert open_repository(str(folder), Selection(submodules=True)).ref.read().num_bytes_source > 2
