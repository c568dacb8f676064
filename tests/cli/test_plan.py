"""`longdoc plan`: counts and forecasts, and what a run would set aside."""

import json

from tokenizers import Tokenizer

TINY = ("--model", "tiny-random", "--no-time")


def test_a_plan_counts_what_a_run_would_write(here, tmp_path, tiny_model):
    """Tokens by the tokenizers library, spans and memory from their definitions."""
    path = tmp_path / "book.txt"
    path.write_text("CHAPTER 1\n\n" + "7" * 1000 + "\n\nCHAPTER 2\n\n" + "8" * 500 + "\n")
    oracle = Tokenizer.from_file(str(tiny_model.folder / "tokenizer.json"))
    first, second = path.read_text().split("CHAPTER 2")
    tokens = [len(oracle.encode(text, add_special_tokens=False).ids) for text in (first, "CHAPTER 2" + second)]
    assert tokens[0] > 1000
    ended = here("plan", path, *TINY, "--json", "--ring-size", 3, "--span-tokens", 100)
    assert ended.code == 0, ended.err
    (document,) = json.loads(ended.out)["documents"]
    assert document["num_tokens"] == sum(tokens)
    assert document["num_segments"] == 2
    assert document["num_spans"] == sum(-(-count // 100) for count in tokens)
    assert (document["ring_size"], document["smallest_ring"], document["problem"]) == (3, 1, None)
    assert document["seconds"] is None
    # tiny-random in float32: 32 wide, 2 heads of 16, 1 key head. While a ring runs a token takes 2 × 32 for the
    # stream, 32 of queries, 3 × 32 of keys and values, 2 × 16 angles, and 32 + 3 × 2 of the accumulator, and a kernel
    # takes 24 MiB beside; the allocator holds 1.4 times as much (docs/architecture.md).
    fixed = (515 << 20) + 4 * tiny_model.num_parameters
    per_token = 4 * (64 + 32 + 96 + 32) + 4 * 38 + 360
    assert document["bytes_per_rank"] == fixed + int(1.4 * ((24 << 20) + per_token * -(-sum(tokens) // 3)))


def test_a_name_stays_whole_on_a_narrow_terminal(here, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "the-lighthouse.md").write_text("lamp " * 20_000)
    ended = here("plan", tmp_path / "the-lighthouse.md", *TINY)
    (row,) = [line for line in ended.out.splitlines() if line.startswith("the-lighthouse.md")]
    assert len(row) <= 80
    assert "100,000" in row


def test_seconds_are_forecast_from_what_this_machine_does(here, tmp_path, tiny_model):
    """Really measured, by processes of its own, the first time; known the second time."""
    (tmp_path / "short.txt").write_text("lamp " * 100)
    (tmp_path / "long.txt").write_text("lamp " * 5000)
    asked = (
        "plan",
        tmp_path / "short.txt",
        tmp_path / "long.txt",
        "--model",
        "tiny-random",
        "--ring-size",
        1,
        "--json",
    )
    first = here(*asked, "--recalibrate")
    assert (first.code, first.err.count("measuring this machine")) == (0, 1)
    short, long = (document["seconds"] for document in json.loads(first.out)["documents"])
    assert 0 < short < long
    second = here(*asked)
    assert "measuring" not in second.err
    assert json.loads(second.out) == json.loads(first.out)


def test_a_plan_names_what_would_be_quarantined_and_exits_3(here, tmp_path, tiny_model):
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "good.txt").write_text("Fine.\n")
    (tmp_path / "books" / "long.txt").write_text("lamp " * 9000)
    (tmp_path / "books" / "empty.txt").write_text("")
    (tmp_path / "books" / "cover.jpg").write_bytes(b"")
    ended = here("plan", tmp_path / "books", *TINY, "--context-extension", "error")
    assert ended.code == 3
    assert "skipped" in ended.err
    assert "cover.jpg" in ended.err
    assert "long.txt would be quarantined: the document has" in ended.out
    assert "tokens and the model is trained to 8,192" in ended.out
    assert "empty.txt would be quarantined" in ended.out
    assert "good.txt would" not in ended.out


def test_a_plan_runs_nothing_and_writes_nothing(here, tmp_path, tiny_model, monkeypatch):
    import ray

    (tmp_path / "book.txt").write_text("Fine.\n")
    monkeypatch.chdir(tmp_path)
    assert here("plan", "book.txt", *TINY).code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["book.txt"]
    assert not ray.is_initialized()


def test_a_ring_larger_than_the_machine_is_refused(here, tmp_path, tiny_model):
    (tmp_path / "book.txt").write_text("Fine.\n")
    ended = here("plan", tmp_path / "book.txt", *TINY, "--ring-size", 9999)
    assert ended.code == 2
    assert "does not fit this machine" in ended.err
