"""After a commit only what changed is encoded, and every row is that of an index made anew."""

import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest
from loopback_path import SPAN_TOKENS, Case, compute

from connectors.repository import RepositoryRef
from longdoc.cluster.compute import Engine
from longdoc.cluster.ingest import read_tokens
from longdoc.outputs.spans import plan_spans
from longdoc.records import Document, Selection, TokenSequence
from longdoc.tokenization.vocabulary import Vocabulary
from pipelines.sources import open_sources

FILES = {f"src/part_{number}.py": f"def part_{number}():\n    return {number} * 'ahoy'\n" * 3 for number in range(12)}


def commit(folder: Path, files: dict[str, str]) -> RepositoryRef:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
    names = {f"GIT_{who}_{what}": "ada@x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for command in (("add", "-A"), ("commit", "-q", "-m", "test")):
        subprocess.run(["git", *command], cwd=folder, env=os.environ | names, check=True)
    (source,) = open_sources([str(folder)], Selection())
    (ref,) = source.documents()
    assert isinstance(ref, RepositoryRef)
    return ref


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", "-b", "main", str(tmp_path / "repo")], check=True)
    return tmp_path / "repo"


class PoolOfNone:
    """A pool that encodes in this process, when it is asked."""

    def __init__(self, folder: Path) -> None:
        self._vocabulary = Vocabulary.load(folder)

    def submit(self, texts: Sequence[bytes]) -> "Future[tuple[bytes, list[int]]]":
        ids, counts = self._vocabulary.encode_batch(texts)
        future: Future[tuple[bytes, list[int]]] = Future()
        future.set_result((ids.tobytes(), [count or 0 for count in counts]))
        return future


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every text that an encoder is given, but for the headers and newlines that belong to no blob."""
    texts: list[bytes] = []
    real = Vocabulary.encode_batch

    def watched(self: Vocabulary, some: Sequence[bytes]) -> object:
        texts.extend(text for text in some if not text.startswith((b"File: ", b"Repository: ", b"\n")))
        return real(self, some)

    monkeypatch.setattr(Vocabulary, "encode_batch", watched)
    return texts


@pytest.mark.parametrize("streams", [False, True])
def test_after_a_commit_only_what_changed_is_encoded_and_every_row_is_as_made_anew(
    repository: Path,
    tiny_model,
    engine: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    encoded: list[bytes],
    streams: bool,
) -> None:
    pool = PoolOfNone(tiny_model.folder) if streams else None

    def index(ref: RepositoryRef) -> tuple[Document, TokenSequence]:
        encoded.clear()
        return read_tokens(ref, str(tiny_model.folder), pool=pool)  # type: ignore[arg-type]  # a test's pool

    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))
    first = commit(repository, FILES)
    index(first)
    assert sorted(encoded) == sorted(text.encode() for text in FILES.values())
    index(first)
    assert encoded == []
    # One file changes, one comes, one has a new name: its blob is the same.
    (repository / "src/part_7.py").rename(repository / "src/renamed.py")
    second = commit(repository, {"src/part_3.py": "changed = True\n", "new.py": "new = True\n"})
    document, sequence = index(second)
    assert sorted(encoded) == [b"changed = True\n", b"new = True\n"]
    assert (second.doc_id, second.version != first.version) == (first.doc_id, True)

    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "another cache"))
    anew = index(second)
    assert len(encoded) == len(FILES) + 1
    tables = []
    for name, (each, ids) in {"cached": (document, sequence), "anew": anew}.items():
        case = Case(document=each, sequence=ids, spans=plan_spans(each, ids, SPAN_TOKENS))
        tables.append(compute(case, engine, tmp_path / name, num_ranks=2).tables)
    for table, rows in tables[0].items():
        assert rows.equals(tables[1][table]), table
        assert rows.num_rows > len(FILES)


def test_an_index_of_a_commit_that_was_here_before_encodes_nothing(
    repository: Path, tiny_model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoded: list[bytes]
) -> None:
    """A branch that returns to an earlier state, under a commit of its own."""
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))
    for files in (FILES, {"src/part_3.py": "changed = True\n"}, {"src/part_3.py": FILES["src/part_3.py"]}):
        encoded.clear()
        read_tokens(commit(repository, files), str(tiny_model.folder))
    assert encoded == []
