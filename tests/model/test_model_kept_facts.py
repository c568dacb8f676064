"""What a model's files say is read once: a run that has nothing to do needs no transformers, and no torch."""

import subprocess
import sys

from longdoc.model import local
from longdoc.model.sources import find_model


def test_a_model_that_was_read_before_is_known_without_its_configuration(tiny_model, monkeypatch):
    def configurations(folder):
        raise AssertionError("read again")

    monkeypatch.setattr(local, "configurations", configurations)
    assert find_model("tiny-random") == tiny_model


def test_facts_of_other_code_count_for_nothing(tiny_model, monkeypatch):
    monkeypatch.setattr("longdoc.model.kept_facts.code_sha256", lambda packages: "other")
    monkeypatch.setattr("longdoc.model.kept_facts.keep", lambda *_, **__: None)
    seen = []
    configurations = local.configurations
    monkeypatch.setattr(local, "configurations", lambda folder: (seen.append(folder), configurations(folder))[1])
    assert find_model("tiny-random") == tiny_model
    assert seen == [tiny_model.folder]


def test_neither_a_known_model_nor_a_run_imports_torch_or_transformers(tiny_model):
    code = (
        "import sys, longdoc.run, longdoc.model.sources as sources\n"
        "sources.find_model('tiny-random')\n"
        "print(sorted({'torch', 'transformers', 'ray'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
