"""Opening an output: what is refused, and with which words."""

import dataclasses
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from synthetic_output import IDENTITY

from longdoc.errors import OutputError
from longdoc.store.commit import OutputStore
from longdoc.store.schemas import OutputIdentity


def test_an_output_is_opened_again_with_the_same_identity(tmp_path: Path) -> None:
    OutputStore.open(str(tmp_path / "a" / "b"), IDENTITY)
    assert OutputStore.open(str(tmp_path / "a" / "b"), IDENTITY).identity == IDENTITY
    assert OutputStore.read(str(tmp_path / "a" / "b")).identity == IDENTITY


OTHERS: list[tuple[dict[str, Any], str]] = [
    (
        {"model": "other", "model_digest": "c" * 64},
        r"holds model arithmetic \(aaaaaaaaaaaa\), this run uses other \(cccc",
    ),
    ({"tokenizer_sha256": "c" * 64}, "holds model arithmetic"),
    ({"outputs": ("embeddings",)}, "holds the outputs embeddings,logprobs, this run computes the outputs embeddings. "),
    ({"embedding_size": 8}, "holds embeddings of 4 numbers, this run's have 8"),
]


@pytest.mark.parametrize(("change", "message"), OTHERS)
def test_another_identity_is_refused_naming_both(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    OutputStore.open(str(tmp_path), IDENTITY)
    with pytest.raises(OutputError, match=message) as refusal:
        OutputStore.open(str(tmp_path), dataclasses.replace(IDENTITY, **change))
    assert refusal.value.exit_code == 2
    assert "--output" in str(refusal.value)


def test_the_same_model_under_another_name_is_the_same_model(tmp_path: Path) -> None:
    OutputStore.open(str(tmp_path), IDENTITY)
    OutputStore.open(str(tmp_path), dataclasses.replace(IDENTITY, model="./arithmetic"))


def test_another_schema_version_is_refused_for_writing_and_reading(tmp_path: Path) -> None:
    OutputStore.open(str(tmp_path), IDENTITY)
    path = tmp_path / "_longdoc" / "output.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 7, "unknown": 1}))
    for again in (lambda: OutputStore.open(str(tmp_path), IDENTITY), lambda: OutputStore.read(str(tmp_path))):
        with pytest.raises(OutputError, match="has schema version 7, this longdoc has version 3"):
            again()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema_version": 3}', b"\xff"])
def test_a_damaged_identity_is_named(tmp_path: Path, content: bytes) -> None:
    OutputStore.open(str(tmp_path), IDENTITY)
    (tmp_path / "_longdoc" / "output.json").write_bytes(content)
    with pytest.raises(OutputError, match=r"_longdoc/output\.json is damaged"):
        OutputStore.read(str(tmp_path))


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(OutputError, match="is not empty and not an output of longdoc"):
        OutputStore.open(str(tmp_path), IDENTITY)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_output_that_was_being_made_when_its_run_died_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "_longdoc").mkdir()
    (tmp_path / "_longdoc" / ".output.json.0123").touch()
    OutputStore.open(str(tmp_path), IDENTITY)


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for output in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OutputError, match=r"is not writable: (Not a directory|File exists). Choose another folder"):
            OutputStore.open(str(output), IDENTITY)


def test_an_existing_output_that_became_read_only_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    OutputStore.open(str(tmp_path), IDENTITY)

    def read_only(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("longdoc.store.output.write_new", read_only)
    with pytest.raises(OutputError, match="is not writable: Read-only file system"):
        OutputStore.open(str(tmp_path), IDENTITY)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_hard_links_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def unsupported(source: Any, target: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", unsupported)
    with pytest.raises(OutputError, match=r"has no hard links, which commits need; choose a folder on a local disk"):
        OutputStore.open(str(tmp_path), IDENTITY)
    assert list((tmp_path / "_longdoc" / "scratch").iterdir()) == []


def test_a_disk_that_is_full_while_an_output_is_made_is_no_file_system_without_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Any, target: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(OutputError, match="is not writable: No space left on device"):
        OutputStore.open(str(tmp_path), IDENTITY)


def test_a_path_that_is_not_utf8_is_refused_in_words_that_can_be_printed(tmp_path: Path) -> None:
    for again in (OutputStore.read, lambda output: OutputStore.open(output, IDENTITY)):
        with pytest.raises(OutputError, match="the path is not UTF-8") as refusal:
            again(os.fsdecode(bytes(tmp_path) + b"/\xff"))
        assert str(refusal.value).isprintable()


@pytest.mark.parametrize("output", ["s3://bucket/x", "gs://bucket/x", "https://host/x"])
def test_object_stores_are_refused_by_name(output: str) -> None:
    for again in (lambda: OutputStore.open(output, IDENTITY), lambda: OutputStore.read(output)):
        with pytest.raises(
            OutputError, match=f"{output.partition('//')[0]}// are not supported yet. Give a local folder"
        ):
            again()


def test_reading_what_is_no_output_says_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="does not exist"):
        OutputStore.read(str(tmp_path / "nowhere"))
    with pytest.raises(OutputError, match="is not an output of longdoc"):
        OutputStore.read(str(tmp_path))


@pytest.mark.parametrize(
    "fields",
    [
        {"outputs": ("logprobs", "embeddings")},
        {"outputs": ("embeddings", "smells")},
        {"outputs": ("logprobs",)},
        {"embedding_size": 0},
    ],
)
def test_an_identity_that_contradicts_itself_is_a_mistake(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="outputs"):
        dataclasses.replace(IDENTITY, **fields)


def test_an_output_of_nothing_but_tokens_has_an_identity() -> None:
    none = OutputIdentity(model="m", model_digest="d", tokenizer_sha256="t", outputs=(), embedding_size=0)
    assert OutputIdentity.from_json(none.to_json()) == none
