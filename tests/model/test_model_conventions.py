"""Conventions of embedding models, read from the files that sentence-transformers writes beside a model."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from longdoc.errors import ModelError
from longdoc.model.conventions import EmbeddingConvention, read_convention
from longdoc.model.embedding_head import load_head

TRANSFORMER = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
POOLING = {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
NORMALIZE = {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
MEAN = {"word_embedding_dimension": 8, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}


def dense(index: int) -> dict[str, Any]:
    return {"idx": index, "name": str(index), "path": f"{index}_Dense", "type": "sentence_transformers.models.Dense"}


def write(folder: Path, modules: list[dict[str, Any]], **files: Any) -> Path:
    (folder / "modules.json").write_text(json.dumps(modules))
    files = {"1_Pooling/config.json": MEAN} | files
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    return folder


def write_dense(folder: Path, index: int, sizes: tuple[int, int], *, bias: bool, activation: str) -> torch.nn.Linear:
    torch.manual_seed(index)
    layer = torch.nn.Linear(*sizes, bias=bias)
    path = folder / f"{index}_Dense"
    path.mkdir()
    config = {"in_features": sizes[0], "out_features": sizes[1], "bias": bias, "activation_function": activation}
    (path / "config.json").write_text(json.dumps(config))
    save_file({f"linear.{name}": value for name, value in layer.state_dict().items()}, path / "model.safetensors")
    return layer


def refused(folder: Path) -> str:
    with pytest.raises(ModelError) as raised:
        read_convention(folder, 8)
    assert raised.value.exit_code == 2
    return str(raised.value)


def test_a_model_without_the_files_states_no_convention(tmp_path: Path) -> None:
    assert read_convention(tmp_path, 8) is None
    assert EmbeddingConvention().label == "mean"


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        (MEAN, "mean"),
        ({"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False}, "last"),
        ({"pooling_mode_cls_token": True}, "cls"),
        ({"embedding_dimension": 8, "pooling_mode": "lasttoken"}, "last"),
        ({"pooling_mode": ["mean"]}, "mean"),
    ],
)
@pytest.mark.parametrize("is_normalized", [False, True])
def test_pooling_and_unit_length(tmp_path: Path, pooling: dict[str, Any], expected: str, is_normalized: bool) -> None:
    modules = [TRANSFORMER, POOLING, *[NORMALIZE] * is_normalized]
    convention = read_convention(write(tmp_path, modules, **{"1_Pooling/config.json": pooling}), 8)
    assert convention == EmbeddingConvention(
        pooling=expected,
        is_normalized=is_normalized,
        document_tokens="all",  # type: ignore[arg-type]
    )
    assert convention.label == expected + ", normalized" * is_normalized


def test_the_classes_may_stand_anywhere_in_the_library(tmp_path: Path) -> None:
    package = "sentence_transformers.base.modules"
    modules = [
        TRANSFORMER | {"type": f"{package}.transformer.Transformer"},
        POOLING | {"type": f"{package}.pooling.Pooling"},
        NORMALIZE | {"type": f"{package}.normalize.Normalize"},
    ]
    convention = read_convention(write(tmp_path, modules), 8)
    assert convention is not None
    assert convention.label == "mean, normalized"


@pytest.mark.parametrize(
    ("pooling", "said"),
    [
        ({"pooling_mode_max_tokens": True}, "its 1_Pooling/config.json pools max_tokens"),
        ({"pooling_mode_weightedmean_tokens": True}, "pools weightedmean_tokens"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, "pools mean_tokens and cls_token"),
        ({"pooling_mode": "max"}, "pools max"),
        ({"pooling_mode_mean_tokens": False}, "pools nothing"),
    ],
)
def test_a_pooling_that_is_not_implemented_is_refused_by_name(
    tmp_path: Path, pooling: dict[str, Any], said: str
) -> None:
    message = refused(write(tmp_path, [TRANSFORMER, POOLING], **{"1_Pooling/config.json": pooling}))
    assert said in message
    assert message.endswith("which is not supported for embeddings; use --outputs logprobs, or another model")


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        (
            [TRANSFORMER, POOLING, {"path": "2_LayerNorm", "type": "a.LayerNorm"}],
            "Transformer then Pooling then LayerNo",
        ),
        ([{"path": "", "type": "custom_st.Transformer3"}, POOLING], "lists Transformer3 then Pooling"),
        ([TRANSFORMER], "lists Transformer,"),
        ([TRANSFORMER, POOLING, NORMALIZE, dense(3)], "Normalize then Dense"),
        ([TRANSFORMER | {"path": "0_Transformer"}, POOLING], "keeps the transformer in 0_Transformer"),
        ([], "lists nothing"),
    ],
)
def test_other_modules_are_refused_by_name(tmp_path: Path, modules: list[dict[str, Any]], said: str) -> None:
    assert said in refused(write(tmp_path, modules))


def test_lowered_case_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, [TRANSFORMER, POOLING], **{"sentence_bert_config.json": {"do_lower_case": True}})
    assert "its sentence_bert_config.json lowers the case of the text" in refused(folder)
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": false, "max_seq_length": 512}')
    assert read_convention(folder, 8) is not None


@pytest.mark.parametrize(
    ("config", "prompt"),
    [
        ({"prompts": {"query": "Q: ", "document": "D: "}, "default_prompt_name": None}, "D: "),
        ({"prompts": {"query": "Q: ", "passage": "P: ", "corpus": "C: "}}, "P: "),
        ({"prompts": {"query": "Q: ", "document": ""}, "default_prompt_name": "other"}, ""),
        ({"prompts": {"query": "Q: ", "task": "T: "}, "default_prompt_name": "task"}, "T: "),
        ({"prompts": {"query": "Q: "}, "default_prompt_name": "query"}, ""),
        ({"prompts": None}, ""),
        ({}, ""),
    ],
)
def test_the_prompt_of_documents_is_read_and_that_of_queries_is_not(
    tmp_path: Path, config: dict[str, Any], prompt: str
) -> None:
    convention = read_convention(
        write(tmp_path, [TRANSFORMER, POOLING], **{"config_sentence_transformers.json": config}), 8
    )
    assert convention is not None
    assert convention.prompt == prompt


def test_linear_layers_work_on_the_pooled_state_in_their_order(tmp_path: Path) -> None:
    write(tmp_path, [TRANSFORMER, POOLING, dense(2), dense(3), NORMALIZE | {"path": "4_Normalize"}])
    first = write_dense(tmp_path, 2, (8, 20), bias=False, activation="torch.nn.modules.linear.Identity")
    second = write_dense(tmp_path, 3, (20, 5), bias=True, activation="torch.nn.modules.activation.Tanh")
    convention = read_convention(tmp_path, 8)
    assert convention is not None
    assert (convention.label, convention.embedding_size(8)) == ("mean, dense, normalized", 5)
    pooled = torch.randn(3, 8, dtype=torch.float64)
    pooled[1] = torch.nan
    with torch.no_grad():
        expected = torch.tanh(second.double()(first.double()(pooled)))
    expected /= expected.norm(dim=1, keepdim=True)
    found = load_head(tmp_path, convention)(pooled)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0, equal_nan=True)


def test_the_weights_of_linear_layers_count_in_the_convention(tmp_path: Path) -> None:
    write(tmp_path, [TRANSFORMER, POOLING, dense(2)])
    write_dense(tmp_path, 2, (8, 4), bias=False, activation="torch.nn.modules.linear.Identity")
    before = read_convention(tmp_path, 8)
    save_file({"linear.weight": torch.ones(4, 8)}, tmp_path / "2_Dense" / "model.safetensors")
    assert read_convention(tmp_path, 8) != before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"activation_function": "torch.nn.modules.activation.GELU"}, "its 2_Dense/config.json applies GELU"),
        ({"module_input_name": "token_embeddings"}, "its 2_Dense/config.json works on token_embeddings"),
        ({"in_features": 9}, "2_Dense/config.json cannot be read (it takes 9 numbers of 8)"),
        ({"out_features": None}, "2_Dense/config.json cannot be read"),
    ],
)
def test_a_linear_layer_that_cannot_be_applied_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    write(tmp_path, [TRANSFORMER, POOLING, dense(2)])
    write_dense(tmp_path, 2, (8, 4), bias=False, activation="torch.nn.modules.linear.Identity")
    path = tmp_path / "2_Dense" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert said in refused(tmp_path)


def test_pickled_and_misshapen_layers_are_refused(tmp_path: Path) -> None:
    write(tmp_path, [TRANSFORMER, POOLING, dense(2)])
    write_dense(tmp_path, 2, (8, 4), bias=False, activation="torch.nn.modules.linear.Identity")
    weights = tmp_path / "2_Dense" / "model.safetensors"
    save_file({"linear.weight": torch.ones(4, 7)}, weights)
    convention = read_convention(tmp_path, 8)
    assert convention is not None
    with pytest.raises(ModelError, match=r"it holds .*\(4, 7\).*, and its config.json states .*\(4, 8\)"):
        load_head(tmp_path, convention)
    weights.rename(weights.with_name("pytorch_model.bin"))
    assert "no 2_Dense/model.safetensors, which modules.json needs; add it (pickles are never loaded)" in refused(
        tmp_path
    )


@pytest.mark.parametrize("content", ["", "[1]", "[{}]", '"a"', "{" * 100_000])
def test_a_damaged_list_of_modules_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "modules.json").write_text(content)
    assert "modules.json cannot be read" in refused(tmp_path)


def test_a_missing_or_damaged_pooling_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, [TRANSFORMER, POOLING])
    (tmp_path / "1_Pooling" / "config.json").write_text("[]")
    assert "1_Pooling/config.json cannot be read (it holds a list)" in refused(tmp_path)
    (tmp_path / "1_Pooling" / "config.json").unlink()
    assert "no 1_Pooling/config.json, which modules.json needs; add it" in refused(tmp_path)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"document_tokens": "all"}, (0, 9)),
        ({"document_tokens": "from_text"}, (2, 9)),
        ({"pooling": "last"}, (8, 9)),
        ({"pooling": "cls"}, (0, 1)),
    ],
)
def test_what_the_document_is_pooled_from(fields: dict[str, Any], expected: tuple[int, int] | None) -> None:
    assert EmbeddingConvention(**fields).document_range(num_prefix=2, num_tokens=9) == expected


def test_makers_who_leave_their_prompt_out_are_heeded(tmp_path: Path) -> None:
    folder = write(tmp_path, [TRANSFORMER, POOLING], **{"1_Pooling/config.json": MEAN | {"include_prompt": False}})
    convention = read_convention(folder, 8)
    assert convention is not None
    assert convention.document_tokens == "from_text"
