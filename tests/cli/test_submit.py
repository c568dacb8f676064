"""`longdoc submit` against a server that answers like Ray's Jobs API."""

import json
import os
import tomllib

import pytest
from jobs_server import jobs_server
from submissions import archive, probed, sent, willing

from longdoc.submission import package

SECRET = "s3cr3t"


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    """A home folder of one's own with a book, no token, no cluster in the environment."""
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "alice.txt").write_text("Down the hole\n")


def submitted(server):
    (job,) = [job for job in server.jobs.values() if "longdoc_output" in job["metadata"]]
    return job


def test_the_same_arguments_as_run_become_a_job_that_runs_them(here, tmp_path) -> None:
    with jobs_server(on_submit=willing) as server:
        options = (
            "--model",
            "tiny-random",
            "--ring-size",
            3,
            "--outputs",
            "embeddings",
            "--no-text",
            "--device",
            "cuda",
        )
        ended = here("submit", "alice.txt", "-o", "/shared/out", "--address", server.url, *options)
        job = submitted(server)
        files = archive(server)
    job_id = job["submission_id"]
    assert ended.code == 0
    assert job["entrypoint"] == "exec python -m longdoc run --config job.toml --address auto"
    assert job["runtime_env"]["working_dir"] == f"gcs://{next(iter(server.packages))}"
    assert set(job["runtime_env"]["env_vars"]) == {"RAY_JOB_STOP_WAIT_TIME_S"}
    assert ended.out.split("\n") == [
        f"Job {job_id} was submitted to {server.url} (Ray 2.60.0, Python 3.11.2, longdoc 0.1.0, 3 nodes).",
        f"  longdoc jobs wait {job_id} --address {server.url}   # follow it to its end",
        f"  longdoc jobs logs {job_id} --address {server.url}   # what it has written",
        f"  longdoc jobs stop {job_id} --address {server.url}   # stop it",
        "",
    ]
    first, *listed = ended.err.split("\n")
    assert first.startswith("To upload: 3 files, ")
    assert any(line.endswith(f" {tmp_path}/alice.txt") for line in listed)
    assert set(files) == {"job.toml", "sources/0001/longdoc-shipped.json", "sources/0001/000001"}
    assert files["sources/0001/000001"] == b"Down the hole\n"
    assert tomllib.loads(files["job.toml"].decode()) == {
        "sources": ["sources/0001"], "output": "/shared/out", "model": "tiny-random", "kernel": "auto",
        "outputs": ["embeddings"], "pooling": "auto", "text": False, "retry-quarantine": False, "device": "cuda",
        "dtype": "auto", "layout": "zigzag", "context-extension": "auto", "span-tokens": 256, "ring-size": 3,
        "kind": "auto", "submodules": False, "lfs": False,
    }  # fmt: skip


def test_a_probe_asks_first_and_uploads_nothing(here) -> None:
    with jobs_server(on_submit=willing) as server:
        here("submit", "alice.txt", "-o", "/shared/out", "--address", server.url, "--model", "tiny-random")
        steps = [(method, path.split("/")[2]) for method, path, *_ in server.requests]
        assert [job["metadata"].get("longdoc_kind") for job in server.jobs.values()] == ["probe", None]
    writes = [step for step in steps if step[0] != "GET"]
    assert writes == [("POST", "jobs"), ("PUT", "packages"), ("POST", "jobs")]


def test_an_archive_that_the_cluster_holds_is_not_sent_again(here) -> None:
    arguments = ("submit", "alice.txt", "-o", "/shared/out", "--model", "tiny-random", "--address")
    with jobs_server(on_submit=willing) as server:
        assert [here(*arguments, server.url).code, here(*arguments, server.url).code] == [0, 0]
        assert [method for method, *_ in server.requests].count("PUT") == 1


def test_a_job_file_and_flags_mean_what_they_mean_to_run(here, tmp_path) -> None:
    (tmp_path / "my.toml").write_text(
        'sources = ["alice.txt"]\noutput = "/shared/a"\nmodel = "tiny-random"\nspan-tokens = 64\ninclude = []\n'
    )
    with jobs_server(on_submit=willing) as server:
        ended = here("submit", "--config", "my.toml", "-o", "/shared/b", "--address", server.url, "--json")
        job = tomllib.loads(archive(server)["job.toml"].decode())
    assert ended.code == 0
    assert (job["output"], job["span-tokens"], job["model"]) == ("/shared/b", 64, "tiny-random")
    told = ended.json
    assert told["address"] == server.url
    assert told["num_sources"] == 1
    assert told["package"]["num_bytes"] == len(next(iter(server.packages.values())))
    assert told["cluster"] == {"python": "3.11.2", "ray": "2.60.0", "longdoc": "0.1.0", "num_nodes": 3}


def test_wait_follows_and_ends_with_the_code_of_the_run(here) -> None:
    def partly(server, job) -> None:
        if not probed(server, job):
            server.logs[job["submission_id"]] = "bad.txt: quarantined\n"
            server.end(job["submission_id"], 3)

    with jobs_server(on_submit=partly) as server:
        ended = here("submit", "alice.txt", "-o", "/o", "--model", "tiny-random", "--address", server.url, "--wait")
    assert ended.code == 3
    assert "bad.txt: quarantined\n" in ended.out
    assert ended.err.endswith("ended with exit code 3: some documents are quarantined.\n")


def test_the_address_of_the_environment_is_taken_and_said(here, monkeypatch) -> None:
    with jobs_server(on_submit=willing) as server:
        monkeypatch.setenv("RAY_ADDRESS", server.url)
        ended = here("submit", "alice.txt", "-o", "/o", "--model", "tiny-random")
    assert ended.code == 0
    assert f"RAY_ADDRESS names {server.url}\n" in ended.err


@pytest.mark.parametrize("value", [None, "auto", "127.0.0.1:6379"])
def test_without_an_address_of_a_jobs_api_nothing_starts(here, monkeypatch, value) -> None:
    if value:
        monkeypatch.setenv("RAY_ADDRESS", value)
    ended = here("submit", "alice.txt", "-o", "/o")
    assert (ended.code, ended.err) == (
        2,
        "Error: no cluster is named; add --address http://HOST:8265, the address of its Jobs API.\n",
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no source is named"),
        (("alice.txt", "--model", "tiny-randon"), "unknown model 'tiny-randon'"),
        (("alice.txt", "--model", "./alice.txt"), "is a folder or file of this machine"),
        (("alice.txt", "--span-tokens", "0"), "--span-tokens is 0"),
        (("alice.txt", "-o", "out"), "out is relative"),
        (("--remote-path", "books"), "--remote-path books is no absolute path"),
        (("--remote-path", f"https://me:{SECRET}@example.org/a/b"), "--remote-path https://example.org/a/b is an addr"),
        (("alice.txt", "-o", ""), "'' names no folder"),
        (("missing.txt",), "No such file or folder: 'missing.txt'"),
        ((f"https://me:{SECRET}@example.org/a/b",), "carries a name or a password"),
        (("@list.txt",), "list.txt, line 2: https://example.org/a/b carries a name or a password"),
        (("--config", "secret.toml"), "carries a name or a password"),
    ],
)
def test_what_is_wrong_here_is_said_before_anything_leaves(here, tmp_path, arguments, said) -> None:
    (tmp_path / "list.txt").write_text(f"alice.txt\nhttps://me:{SECRET}@example.org/a/b\n")
    (tmp_path / "secret.toml").write_text(f'sources = ["https://{SECRET}@example.org/a/b"]\n')
    with jobs_server(on_submit=willing) as server:
        ended = here("submit", "-o", "/shared/out", "--model", "tiny-random", "--address", server.url, *arguments)
        assert [path for _, path, *_ in server.requests] in ([], ["/api/version"])
        everything = sent(server)
    assert ended.code == 2
    assert said in ended.err
    assert SECRET not in ended.err + ended.out
    assert SECRET.encode() not in everything


def test_no_secret_of_the_environment_leaves_but_the_token_in_its_header(here, monkeypatch) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "t0ken")
    with jobs_server(on_submit=willing) as server:
        ended = here("submit", "alice.txt", "-o", "/shared/out", "--address", server.url, "--model", "tiny-random")
        everything = sent(server)
        bodies = b"".join(body for _, _, body, _ in server.requests)
    assert ended.code == 0
    assert SECRET.encode() not in everything
    assert b"t0ken" not in bodies
    assert "t0ken" not in ended.out + ended.err


def test_an_upload_over_the_cap_names_what_is_large_before_anything_is_sent(here, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(package, "MOST_BYTES", 4096)
    (tmp_path / "large.txt").write_bytes(os.urandom(10_000))
    with jobs_server(on_submit=willing) as server:
        ended = here("submit", "alice.txt", "large.txt", "-o", "/o", "--address", server.url, "--model", "tiny-random")
        assert [path for _, path, *_ in server.requests] == ["/api/version"]
    assert ended.code == 2
    assert ended.err.split("\n")[1].endswith(f"  {tmp_path}/large.txt")


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ({"ray_version": "2.9.0"}, "runs Ray 2.9.0, and longdoc needs 2."),
        ({"version": "1.0"}, "is no Jobs API of Ray"),
    ],
)
def test_another_ray_is_refused(here, version, said) -> None:
    with jobs_server(on_submit=willing, version=version) as server:
        ended = here("submit", "alice.txt", "-o", "/o", "--address", server.url, "--model", "tiny-random")
    assert ended.code == 2
    assert said in ended.err


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"longdoc": "0.0.9"}, "the cluster has longdoc 0.0.9, and this is 0.1.0. Install longdoc 0.1.0 on every node"),
        (
            {"problems": ("/o is not one folder", "no such path")},
            "cannot run this job:\n  /o is not one folder\n  no such",
        ),
    ],
)
def test_a_cluster_that_does_not_fit_is_refused_with_all_its_reasons(here, facts, said) -> None:
    with jobs_server(on_submit=lambda server, job: probed(server, job, **facts)) as server:
        ended = here("submit", "alice.txt", "-o", "/o", "--address", server.url, "--model", "tiny-random")
        assert (len(server.jobs), server.packages) == (1, {})
    assert ended.code == 2
    assert said in ended.err


@pytest.mark.parametrize(
    ("code", "log", "said"),
    [
        (127, "sh: 1: python: not found", "the cluster's nodes have no command python"),
        (1, "/usr/bin/python: No module named longdoc", "python on the cluster has no longdoc, or an older one"),
        (1, "x: (ModuleNotFoundError: No module named 'longdoc')", "python on the cluster has no longdoc, or an older"),
        (0, 'longdoc-probe: {"python": "3.11"}', "python on the cluster has another longdoc than 0.1.0"),
        (1, "Traceback\nOSError: disk", "could not say what it has; its probe ended FAILED: OSError: disk"),
        (None, "", "could not say what it has; its probe ended FAILED: runtime_env setup failed"),
    ],
)  # fmt: skip
def test_a_probe_without_an_answer_says_what_that_means(here, code, log, said) -> None:
    def fail(server, job) -> None:
        server.logs[job["submission_id"]] = log
        status = "SUCCEEDED" if code == 0 else "FAILED"
        server.end(job["submission_id"], code, status=status, message="runtime_env setup failed")

    with jobs_server(on_submit=fail) as server:
        ended = here("submit", "alice.txt", "-o", "/o", "--address", server.url, "--model", "tiny-random")
        assert (len(server.jobs), server.packages) == (1, {})
    assert ended.code == 2
    assert said in ended.err


def test_the_probe_is_asked_for_what_only_the_cluster_can_reach(here, tmp_path) -> None:
    asked = []

    def note(server, job) -> None:
        if probed(server, job):
            asked.append(job["entrypoint"])

    (tmp_path / "list.txt").write_text("https://example.org/listed/b\nalice.txt\n")
    sources = ("alice.txt", "https://example.org/a/b", "@list.txt", "--remote-path", "/shared/books")
    with jobs_server(on_submit=note) as server:
        here(
            "submit",
            *sources,
            "-o",
            "/o",
            "--address",
            server.url,
            "--model",
            "/shared/model",
            "--cluster-python",
            "py 3",
        )
    (command,) = asked
    assert command.startswith("exec 'py 3' -m longdoc.submission.probe '{")
    question = json.loads(command[command.index("{") : -1])
    assert question["sources"] == ["https://example.org/a/b", "/shared/books"]
    assert (question["output"], question["model_path"]) == ("/o", "/shared/model")
