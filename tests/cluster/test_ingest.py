"""Reading and encoding for a ring: parallel encoding is the whole's, and a document at fault is an answer."""

from dataclasses import dataclass

import numpy as np
import pytest

from connectors.books import list_book
from longdoc.cluster import ingest
from longdoc.cluster.messages import DocumentSummary, IngestSpec
from longdoc.cluster.placement import Capacity
from longdoc.errors import InfrastructureError
from longdoc.estimate import ModelShape
from longdoc.outputs.work import RankWork
from longdoc.reporting import Fault
from longdoc.tokenization.vocabulary import Vocabulary


class Tasks:
    """Ray's side of `encode_texts`, run here: what is under way is counted, results come when they are asked for."""

    def __init__(self, monkeypatch):
        self.under_way = self.most = 0
        monkeypatch.setattr(ingest, "result", self.result)

    def remote(self, model_folder, batch):
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        return model_folder, batch

    def result(self, reference, what):
        self.under_way -= 1
        return ingest.encode_texts(*reference)


def test_pieces_encoded_by_tasks_are_in_order_and_few_at_a_time(monkeypatch, tiny_model):
    tasks = Tasks(monkeypatch)
    batches = [[f"lamp {number} ", f"and {number}"] for number in range(20)]
    found = list(ingest._in_window(tasks, str(tiny_model.folder), iter(batches)))
    vocabulary = Vocabulary.load(tiny_model.folder)
    expected = [vocabulary.encode(text) for batch in batches for text in batch]
    assert [ids.tolist() for ids in found] == [ids.tolist() for ids in expected]
    assert tasks.most == ingest.PARALLEL_TASKS


def spec(model, **changes) -> IngestSpec:
    fields = {
        "model_folder": str(model.folder),
        "span_tokens": 8,
        "layout": "zigzag",
        "num_ranks": 3,
        "context_extension": "auto",
        "positions": model.positions,
        "with_text": True,
        "prompt_token_ids": (),
        "capacity": Capacity(num_bytes=1 << 40, is_shared=True),
        "most_ranks": 8,
    }
    return IngestSpec(**(fields | changes))


@pytest.fixture
def shape(tiny_model) -> ModelShape:
    return ModelShape.of(tiny_model, "float32")


def test_a_document_becomes_a_summary_and_one_work_a_rank(tmp_path, tiny_model, shape):
    (tmp_path / "a.txt").write_text("CHAPTER I\n\nThe lamp burned all night.\n")
    summary, *works = ingest.ingest(list_book(tmp_path / "a.txt"), spec(tiny_model), shape)
    assert isinstance(summary, DocumentSummary)
    assert [type(work) for work in works] == [RankWork] * 3
    positions = np.sort(np.concatenate([work.shard.positions for work in works]))
    assert positions.tolist() == list(range(summary.num_tokens))


@pytest.mark.parametrize(
    ("content", "changes", "reason"),
    [
        (b"", {}, "empty"),
        (b"lamp " * 9000, {"context_extension": "error"}, "over_trained_context"),
        (b"lamp " * 9000, {"capacity": Capacity(num_bytes=1, is_shared=True)}, "over_capacity"),
    ],
)
def test_a_fault_of_the_document_is_an_answer(tmp_path, tiny_model, shape, content, changes, reason):
    (tmp_path / "a.txt").write_bytes(content)
    fault, *works = ingest.ingest(list_book(tmp_path / "a.txt"), spec(tiny_model, **changes), shape)
    assert isinstance(fault, Fault)
    assert fault.reason == reason
    assert works == [None] * 3


@dataclass(frozen=True)
class Broken:
    error: Exception
    source_uri: str = "file:///a.txt"

    def read(self):
        raise self.error


def test_an_error_that_nobody_foresaw_sets_one_document_aside(tiny_model, shape):
    fault, *_ = ingest.ingest(Broken(KeyError("oops")), spec(tiny_model), shape)
    assert (fault.reason, fault.stage) == ("internal_error", "read")
    assert "KeyError: 'oops'. This is a fault in longdoc; please report it" in fault.error


@pytest.mark.parametrize("error", [InfrastructureError("disk"), OSError("disk"), MemoryError()])
def test_faults_of_the_machine_are_never_the_documents(tiny_model, shape, error):
    with pytest.raises(type(error)):
        ingest.ingest(Broken(error), spec(tiny_model), shape)


def test_without_text_no_text_travels(tmp_path, tiny_model, shape):
    (tmp_path / "a.txt").write_text("The lamp burned.\n" * 50)
    _, *works = ingest.ingest(list_book(tmp_path / "a.txt"), spec(tiny_model, with_text=False), shape)
    assert {work.span_texts for work in works} == {None}
