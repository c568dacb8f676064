"""`longdoc run` as a user runs it, on real Ray rings: what is written, resumed and set aside."""

import json
from pathlib import Path

import duckdb
import pytest
from command_line import git, longdoc
from run_outputs import TINY, assert_all_gone, book, rows, snapshot

from longdoc.machine import num_cores


@pytest.fixture(scope="module")
def finished(tmp_path_factory, tiny_model):
    """A book and a repository, read in one run."""
    folder = tmp_path_factory.mktemp("finished")
    repository = folder / "tool"
    (repository / "src").mkdir(parents=True)
    git(repository, "init", "-q", "-b", "main")
    (repository / "src" / "a.py").write_bytes(b"def a():\n    return 1\n")
    (repository / "src" / "b.py").write_bytes("ü = 2".encode("latin-1"))
    (repository / "logo.png").write_bytes(b"\x89PNG\0\0\0")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "one")
    source = book(folder / "night.txt")
    ended = longdoc("run", source, repository, "-o", folder / "out", *TINY, "--json", LONGDOC_TEST_MARK=str(folder))
    return folder, ended


def test_a_run_commits_every_document_and_says_so(finished):
    folder, ended = finished
    assert ended.code == 0, ended.err
    assert "2 documents to do" in ended.err
    assert "tiny-random in float32 on cpu, kernel torch, pooling mean; a ring of 2" in ended.err
    assert "night.txt: committed" in ended.err
    summary = ended.json
    assert (summary["num_planned"], summary["num_committed"], summary["num_quarantined"]) == (2, 2, 0)
    assert len(summary["peak_rss_bytes"]) == 2
    assert {row[0] for row in rows(folder / "out", "documents", "kind")} == {"book", "repository"}
    assert_all_gone(str(folder))


def test_its_output_passes_verify(finished):
    folder, _ = finished
    ended = longdoc("verify", folder / "out")
    assert ended.code == 0, ended.out
    assert "Everything is as promised." in ended.out


def test_tokens_decode_to_the_text_and_the_text_to_the_file(finished, tiny_model):
    from longdoc.tokenization.vocabulary import Vocabulary

    folder, _ = finished
    kind = f"(SELECT doc_key FROM read_parquet('{folder}/out/documents/*/*.parquet') WHERE kind = 'book')"
    tokens = duckdb.sql(
        f"SELECT token_id FROM read_parquet('{folder}/out/tokens/*/*.parquet') "
        f"WHERE doc_key IN {kind} ORDER BY position"
    ).fetchall()
    text = Vocabulary.load(tiny_model.folder).decode([token for (token,) in tokens])
    assert text == (folder / "night.txt").read_bytes()
    ((spans,),) = duckdb.sql(
        f"SELECT string_agg(text, '' ORDER BY span_index) FROM read_parquet('{folder}/out/spans/*/*.parquet') "
        f"WHERE doc_key IN {kind}"
    ).fetchall()
    assert spans.encode() == text


def test_its_tokens_lead_back_to_chapters_and_files(finished, here):
    folder, _ = finished
    source = (folder / "night.txt").read_bytes()
    byte = source.index("φάρος".encode())
    place = here("locate", folder / "out", "night.txt", f"byte:{byte}", "--json").json
    start = source.rindex(b"CHAPTER", 0, byte)
    title = source[start : source.index(b"\r\n", start)].decode()
    assert (place["section_title"], place["line"], place["char_in_segment"]) == (
        title,
        source[start:byte].count(b"\n") + 1,
        len(source[start:byte].decode()),
    )
    text = b"Repository: tool\n\nFile: src/a.py\ndef a():\n    return 1\n"
    ended = here("locate", folder / "out", "tool", f"byte:{text.index(b'1')}")
    assert git(folder / "tool", "rev-parse", "HEAD") in ended.out
    assert "src/a.py:2:12 · file" in ended.out, ended.out


def test_a_run_is_written_down(finished):
    folder, ended = finished
    ((run_id, configuration, versions, exit_code),) = rows(
        folder / "out", "runs", "run_id, configuration, versions, exit_code"
    )
    assert (run_id, exit_code) == (ended.json["run_id"], 0)
    assert json.loads(configuration)["model"] == "tiny-random"
    assert {"torch", "ray", "longdoc"} <= json.loads(versions).keys()


def test_readers_see_equal_values(finished):
    import pandas as pd
    import polars as pl

    folder, _ = finished
    for table, key in (("tokens", "position"), ("spans", "span_index"), ("segments", "segment_index")):
        root = folder / "out" / table
        columns = [name for name in pl.scan_parquet(root).collect_schema().names() if name != "bucket"]
        order = ["doc_key", key]
        seen = {
            "duckdb": duckdb.sql(
                f"SELECT {', '.join(columns)} FROM read_parquet('{root}/*/*.parquet') ORDER BY doc_key, {key}"
            ).to_arrow_table(),
            "polars": pl.scan_parquet(root).select(columns).sort(order).collect().to_arrow(),
        }
        frame = pd.read_parquet(root)[columns].sort_values(order)
        for column in columns:
            expected = seen["duckdb"][column].to_pylist()
            assert seen["polars"][column].to_pylist() == expected, (table, column)
            found = [
                None if not hasattr(value, "__len__") and pd.isna(value) else value for value in frame[column].tolist()
            ]
            found = [list(value) if hasattr(value, "tolist") else value for value in found]
            assert found == expected, (table, column)


def test_the_same_command_again_does_no_work_and_says_so(finished):
    folder, _ = finished
    before = snapshot(folder / "out")
    ended = longdoc("run", folder / "night.txt", folder / "tool", "-o", folder / "out", *TINY)
    assert ended.code == 0
    assert "Nothing to do: 2 already committed." in ended.err
    assert "computing" not in ended.err
    after = snapshot(folder / "out")
    assert {path: facts for path, facts in after.items() if not path.startswith("runs/")} == {
        path: facts for path, facts in before.items() if not path.startswith("runs/")
    }


def test_a_moved_branch_is_a_new_version_beside_the_old(finished, tmp_path):
    folder, _ = finished
    repository = folder / "tool"
    (repository / "src" / "c.py").write_bytes(b"c = 3\n")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "two")
    ended = longdoc("run", repository, "-o", folder / "out", *TINY, "--json")
    assert ended.code == 0, ended.err
    assert ended.json["num_committed"] == 1
    commits = {row[0] for row in rows(folder / "out", "documents", "commit_id") if row[0]}
    assert len(commits) == 2
    assert longdoc("verify", folder / "out").code == 0


def test_documents_at_fault_are_set_aside_and_the_others_finish(tmp_path, tiny_model):
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "empty.txt").write_bytes(b"")
    (tmp_path / "books" / "one.txt").write_bytes(b"the")
    book(tmp_path / "books" / "good.txt")
    (tmp_path / "books" / "long.txt").write_bytes(b"lamp " * 9000)
    arguments = ("run", tmp_path / "books", "-o", tmp_path / "out", *TINY, "--context-extension", "error")
    ended = longdoc(*arguments)
    assert ended.code == 3, ended.err
    assert "empty.txt: quarantined at read, empty" in ended.err
    assert "long.txt: quarantined at plan, over_trained_context" in ended.err
    assert {Path(uri).name for (uri,) in rows(tmp_path / "out", "documents", "source_uri")} == {"good.txt", "one.txt"}
    set_aside = dict(rows(tmp_path / "out", "quarantine", "reason, attempts"))
    assert set_aside == {"empty": 1, "over_trained_context": 1}
    (one,) = [row for row in rows(tmp_path / "out", "tokens", "doc_id, logprob") if row[0].endswith("one.txt")]
    assert one[1] is None
    assert longdoc("verify", tmp_path / "out").code == 0

    again = longdoc(*arguments)
    assert again.code == 3
    assert "Nothing to do: 2 already committed, 2 in quarantine (--retry-quarantine tries again)." in again.err
    assert dict(rows(tmp_path / "out", "quarantine", "reason, attempts")) == set_aside


def test_a_job_file_gives_options_and_a_flag_overrides_it(tmp_path, tiny_model):
    book(tmp_path / "night.txt")
    (tmp_path / "job.toml").write_text(
        'sources = ["night.txt"]\noutput = "out"\nmodel = "tiny-random"\nring-size = 2\noutputs = ["logprobs"]\n'
        'layout = "contiguous"\ntext = false\n'
    )
    ended = longdoc("run", "--config", "job.toml", "--ring-size", 3, cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert ("3 ranks share" in ended.err) == (num_cores() < 3)
    assert rows(tmp_path / "out", "documents", "ring_size, layout") == [(3, "contiguous")]
    assert {text for (text,) in rows(tmp_path / "out", "spans", "text")} == {None}
    assert longdoc("verify", tmp_path / "out").code == 0
