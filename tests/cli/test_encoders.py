"""Encoders on the command line: no log-probs, said where it is a default and refused where it was asked for."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, EuroBertConfig


@pytest.fixture
def encoder(tmp_path: Path, tiny_model) -> Path:
    config = EuroBertConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=49152,
        pad_token_id=0,
    )
    torch.manual_seed(3)
    folder = tmp_path / "encoder"
    AutoModel.from_config(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes((tiny_model.folder / "tokenizer.json").read_bytes())
    return folder


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text("CHAPTER 1\n\nThe lamp burned until four.\n")
    return path


def test_a_plan_says_that_an_encoder_gives_embeddings_only(here, encoder, book):
    ended = here("plan", book, "--model", encoder, "--json")
    assert ended.code == 0, ended.err
    assert "encoder is an encoder and has no log-probs: --outputs embeddings" in ended.err
    (document,) = json.loads(ended.out)["documents"]
    assert document["problem"] is None


def test_log_probs_of_an_encoder_are_refused_before_anything_is_written(here, encoder, book, tmp_path):
    out = tmp_path / "out"
    ended = here("run", book, "-o", out, "--model", encoder, "--outputs", "embeddings,logprobs")
    assert ended.code == 2
    assert "Error: model encoder is an encoder, and encoders have no log-probs" in ended.err
    assert "use --outputs embeddings" in ended.err
    assert not out.exists()


def test_the_first_token_is_no_pooling_for_a_model_without_one(here, encoder, book, tmp_path):
    ended = here("run", book, "-o", tmp_path / "out", "--model", encoder, "--pooling", "cls")
    assert ended.code == 2
    assert "its tokenizer puts none before a document; use --pooling mean" in ended.err
    assert not (tmp_path / "out").exists()
