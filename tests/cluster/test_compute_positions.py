"""The path behind the rings hands the document's own length to positions that depend on it."""

import json
import shutil

import numpy as np
import torch
from loopback_path import BOOK, compute, make_case, make_engine, plain_answer

from longdoc.model.positions import choose_extension
from longdoc.model.sources import find_model


def test_dynamic_positions_come_from_the_document_and_not_from_the_one_before(tmp_path, tiny_model):
    folder = tmp_path / "dynamic"
    shutil.copytree(tiny_model.folder, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "max_position_embeddings": 64,
        "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4},
    }
    (folder / "config.json").write_text(json.dumps(config))
    model = find_model(str(folder))
    engine = make_engine(model, torch.float64)
    for text in (BOOK, BOOK[:40], BOOK[:200]):
        case = make_case(model, text)
        extension = choose_extension("auto", case.sequence.num_model_tokens, model.positions)
        assert extension.kind == ("dynamic" if case.sequence.num_model_tokens > 64 else "none")
        written = compute(case, engine, tmp_path / str(len(text)), num_ranks=3, extension=extension)
        logprob = np.asarray(written.tables["tokens"]["logprob"].to_pylist(), dtype=np.float64)
        np.testing.assert_allclose(logprob, plain_answer(model, case, torch.float64).logprob, rtol=0, atol=1e-6)
