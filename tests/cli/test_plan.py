"""`longdoc plan`: counts and forecasts, and what a run would set aside."""

import json

from longdoc.estimate import ModelShape, bytes_per_rank
from longdoc.records import Selection

TINY = ("--model", "tiny-random")


def test_a_plan_counts_what_a_run_would_write(here, tmp_path, tiny_model):
    from longdoc.cli.sources import open_sources
    from longdoc.cluster.ingest import read_tokens

    path = tmp_path / "book.txt"
    path.write_text("CHAPTER I\n\nThe lamp burned.\n\nCHAPTER II\n\nIt went out.\n")
    ended = here("plan", path, *TINY, "--json", "--ring-size", 3, "--span-tokens", 4)
    assert ended.code == 0, ended.err
    (document,) = json.loads(ended.out)["documents"]
    (ref,) = open_sources([str(path)], Selection())[0].documents()
    read, sequence = read_tokens(ref, str(tiny_model.folder))
    assert document["num_tokens"] == sequence.num_tokens
    assert document["num_segments"] == len(read.segments) == 2
    assert document["num_spans"] >= sequence.num_tokens // 4
    assert document["ring_size"] == 3
    assert document["bytes_per_rank"] == bytes_per_rank(ModelShape.of(tiny_model, "float32"), sequence.num_tokens, 3)
    assert document["problem"] is None


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
