"""`longdoc locate`: every token and byte of an output leads back to its place in what the output was made from."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic_output import IDENTITY, Synthetic, commit_document, make_document

from longdoc.cli.locate import locate as command
from longdoc.cli.main import call
from longdoc.errors import OutputError, StartError
from longdoc.locate import Location, locate
from longdoc.store import lookup, parts
from longdoc.store.commit import OutputStore

NUMBER = 7
NAMES = (
    *("token", "token_id", "text_byte_start", "text_byte_stop", "segment_index", "segment_kind", "path"),
    *("char_in_segment", "char", "line", "last_line", "column"),
)


def text_of(document: Synthetic) -> bytes:
    return "".join(span["text"] for span in document.tables["spans"]).encode()


def commit(output: Path, number: int = NUMBER, *, version: int = 0, with_text: bool = True, **row: Any) -> Synthetic:
    document = make_document(number, version=version, with_text=with_text)
    document = replace(document, row=document.row | row)
    assert commit_document(OutputStore.open(str(output), IDENTITY), document)
    return document


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out"


def expected(document: Synthetic, token: int) -> dict[str, Any]:
    """The place of a token, worked out from the segments and the text of the whole document."""
    text, tokens = text_of(document), document.tables["tokens"]
    start = tokens[token]["text_byte_start"]
    stop = tokens[token + 1]["text_byte_start"] if token + 1 < len(tokens) else len(text)
    (segment,) = (
        each for each in document.tables["segments"] if each["text_byte_start"] <= start < each["text_byte_stop"]
    )
    before = text[segment["text_byte_start"] : start].decode()
    lines = (before + "x").split("\n") if segment["kind"] == "file" else []
    return {
        "token": token,
        "token_id": tokens[token]["token_id"],
        "text_byte_start": start,
        "text_byte_stop": stop,
        "segment_index": segment["segment_index"],
        "segment_kind": segment["kind"],
        "path": segment["display_path"],
        "char_in_segment": len(before),
        "char": len(text[:start].decode()),
        "line": len(lines) or None,
        "last_line": len(lines) or None,
        "column": len(lines[-1]) if lines else None,
    }


def facts(found: Location) -> dict[str, Any]:
    return {name: getattr(found, name) for name in NAMES}


def test_every_token_leads_to_its_place(output: Path) -> None:
    document = commit(output)
    text = text_of(document)
    for token in range(len(document.tables["tokens"])):
        found = locate(str(output), document.doc_id, "token", token)
        assert facts(found) == expected(document, token)
        assert found.excerpt is not None
        start, stop = found.text_byte_start, found.text_byte_stop
        segment = document.tables["segments"][found.segment_index]
        assert found.excerpt.marked.encode() == text[start:stop]
        assert found.excerpt.before.encode() == text[segment["text_byte_start"] : start]
        assert found.excerpt.after.encode() == text[stop : segment["text_byte_stop"]]
        assert (found.excerpt.is_cut_before, found.excerpt.is_cut_after) == (False, False)


def test_a_byte_leads_to_the_token_that_holds_it(output: Path) -> None:
    document = commit(output)
    starts = [token["text_byte_start"] for token in document.tables["tokens"]]
    for token, stop in enumerate([*starts[1:], len(text_of(document))]):
        assert locate(str(output), document.doc_id, "byte", stop - 1).token == token


def test_a_byte_inside_a_token_has_its_own_line_and_column(output: Path) -> None:
    document = commit(output)
    text = text_of(document)
    byte = text.index(b"print(x)") + 3
    found = locate(str(output), document.doc_id, "byte", byte)
    assert (found.line, found.column) == (3, 4)


def test_a_byte_inside_a_character_is_that_character(output: Path) -> None:
    document = commit(output)
    byte = text_of(document).index("€".encode())
    marked = {locate(str(output), document.doc_id, "byte", byte + place).char for place in range(3)}
    assert len(marked) == 1


@pytest.mark.parametrize("chars", [0, 1, 3])
def test_the_text_around_is_cut_to_what_was_asked_for(output: Path, chars: int) -> None:
    document = commit(output)
    text = text_of(document)
    byte = text.index(b"print(x)")
    found = locate(str(output), document.doc_id, "byte", byte, context_chars=chars)
    assert found.excerpt is not None
    start, stop = found.text_byte_start, found.text_byte_stop
    assert found.excerpt.before == text[:start].decode()[len(text[:start].decode()) - chars :]
    assert found.excerpt.after == text[stop:].decode()[:chars]
    assert (found.excerpt.is_cut_before, found.excerpt.is_cut_after) == (True, True)


def test_without_text_the_lines_are_those_of_the_span(output: Path) -> None:
    document = commit(output, with_text=False)
    whole = make_document(NUMBER)
    for token in range(len(whole.tables["tokens"])):
        found = locate(str(output), document.doc_id, "token", token)
        told, right = facts(found), expected(whole, token)
        assert (found.excerpt, found.column) == (None, None)
        segment = whole.tables["segments"][found.segment_index]
        num_bytes = segment["text_byte_stop"] - segment["text_byte_start"]
        is_ascii = num_bytes == segment["char_stop"] - segment["char_start"]
        assert told["char"] == (right["char"] if is_ascii else None)
        if right["line"] is not None:
            assert told["line"] <= right["line"] <= told["last_line"]
        assert {name: told[name] for name in ("path", "token_id", "text_byte_stop")} == {
            name: right[name] for name in ("path", "token_id", "text_byte_stop")
        }


def test_only_row_groups_that_hold_the_place_are_read(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MAX_GROUP_ROWS", 4)
    document = commit(output)
    read: list[tuple[str, int]] = []
    real = lookup.read_group

    def counting(group: lookup.RowGroup, columns: Any) -> Any:
        read.append((group.path.parent.parent.name, group.number))
        return real(group, columns)

    monkeypatch.setattr(lookup, "read_group", counting)
    monkeypatch.setattr("longdoc.locate.read_group", counting)
    num_tokens = len(document.tables["tokens"])
    all_groups = sum(1 for _ in lookup.row_groups(output.glob("tokens/*/*.parquet"), "position"))
    assert all_groups > 6
    for token in (0, 3, num_tokens // 4, num_tokens // 2, num_tokens - 1):
        read.clear()
        locate(str(output), document.doc_id, "token", token, context_chars=0)
        # At a rank's border the next token lies with another rank, whose file may have one group around a gap.
        assert sum(table == "tokens" for table, _ in read) <= 4
        byte = expected(document, token)["text_byte_start"]
        assert facts(locate(str(output), document.doc_id, "byte", byte)) == expected(document, token)


def test_a_position_outside_the_document_is_refused(output: Path) -> None:
    document = commit(output, title="T")
    num_tokens, num_bytes = len(document.tables["tokens"]), len(text_of(document))
    with pytest.raises(StartError) as caught:
        locate(str(output), "T", "token", num_tokens)
    assert str(caught.value) == (
        f"T has {num_tokens} tokens, and token {num_tokens} is none of them. Name one from 0 to {num_tokens - 1}."
    )
    with pytest.raises(StartError, match=f"T has {num_bytes} bytes, and byte {num_bytes} is none of them"):
        locate(str(output), "T", "byte", num_bytes)
    locate(str(output), "T", "byte", num_bytes - 1)


def test_a_document_has_many_names(output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = (tmp_path / "Alice.txt").as_uri()
    document = commit(output, title="Alice’s Adventures", source_uri=uri)
    commit(output, 8, title="Other", source_uri="file:///other.txt")
    monkeypatch.chdir(tmp_path)
    for name in (
        *(document.doc_key, document.doc_key[:4], document.doc_id, uri, "Alice’s Adventures", "alice’s adventures"),
        *("Alice.txt", "./Alice.txt", str(tmp_path / "Alice.txt"), "alice.TXT", "alice"),
    ):
        assert locate(str(output), name, "token", 0).doc_key == document.doc_key, name


def test_of_several_versions_the_newest_is_meant(output: Path) -> None:
    found = []
    for version in range(4):  # their keys are hashes, in no order
        found.append(commit(output, version=version, title="T"))
        assert locate(str(output), "T", "token", 0).doc_key == found[-1].doc_key
    assert locate(str(output), found[0].doc_key[:16], "token", 0).doc_key == found[0].doc_key


def test_a_name_of_several_documents_is_refused_with_their_keys(output: Path) -> None:
    found = [commit(output, number, title="Poems") for number in (1, 2)]
    with pytest.raises(OutputError) as caught:
        locate(str(output), "Poems", "token", 0)
    assert str(caught.value).startswith(f"{output} holds 2 documents called Poems. Name one by its key:\n")
    for document in found:
        assert f"  {document.doc_key[:12]}  Poems  " in str(caught.value)


def test_a_name_of_none_is_refused_with_the_nearest(output: Path) -> None:
    commit(output, title="Moby Dick", source_uri="file:///moby.txt")
    commit(output, 8, title="Emma", source_uri="file:///emma.txt")
    with pytest.raises(OutputError, match=r"holds no document called Mobby Dick\. Near it: 'Moby Dick'"):
        locate(str(output), "Mobby Dick", "token", 0)


def test_what_is_no_output_or_empty_is_refused(tmp_path: Path, output: Path) -> None:
    with pytest.raises(OutputError, match="does not exist"):
        locate(str(tmp_path / "nope"), "T", "token", 0)
    OutputStore.open(str(output), IDENTITY)
    with pytest.raises(OutputError, match="holds no document"):
        locate(str(output), "T", "token", 0)


@pytest.mark.parametrize("table", ["documents", "segments", "spans", "tokens"])
def test_a_damaged_file_is_told(output: Path, table: str) -> None:
    document = commit(output)
    for path in output.glob(f"{table}/*/*.parquet"):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
    with pytest.raises(OutputError, match=r"cannot be read.*Run `longdoc verify`"):
        locate(str(output), document.doc_id, "token", 3)


def test_a_file_that_is_gone_is_told(output: Path) -> None:
    document = commit(output)
    for path in output.glob("tokens/*/*.parquet"):
        path.unlink()
    with pytest.raises(OutputError, match="Run `longdoc verify`"):
        locate(str(output), document.doc_id, "token", 3)


def test_the_command_prints_place_and_text(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = commit(output, title="tool", commit_id="c" * 40, revision="main")
    byte = text_of(document).index(b"print(x)")
    token = locate(str(output), "tool", "byte", byte)
    assert call(["locate", str(output), "tool", f"byte:{byte}", "--context", "9"]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert lines[:4] == [
        f"tool · repository · file:///somewhere · commit {'c' * 40} · revision main",
        f"token {token.token} · id {token.token_id} · bytes {byte} to {byte + 2} of the text",
        f"dir/0\\xff:3:1 · file · character {token.char_in_segment} of it · {token.char} of the text",
        "",
    ]
    # Nine characters on each side; the NUL of the next file's text does not belong to this one's.
    assert "\n".join(lines[4:]) == "…€'\ny = 2\n⟦pr⟧int(x)\n"


def test_the_command_as_json(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = commit(output)
    assert call(["locate", str(output), document.doc_key[:8], "token:3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {name: told[name] for name in expected(document, 3)} == expected(document, 3)


def test_an_output_without_text_says_so(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = commit(output, with_text=False)
    assert call(["locate", str(output), document.doc_id, "3"]) == 0
    assert capsys.readouterr().out.endswith("\nThis output holds no text (--no-text).\n")


def test_control_characters_of_a_text_cannot_drive_a_terminal(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = commit(output)
    byte = text_of(document).index(b"\0")
    assert call(["locate", str(output), document.doc_id, f"byte:{byte}"]) == 0
    assert "\\x00" in capsys.readouterr().out


@pytest.mark.parametrize("position", ["x", "byte:", "byte:-1", "line:3", "1.5", "²"])
def test_what_is_no_position_is_refused(output: Path, position: str, capsys: pytest.CaptureFixture[str]) -> None:
    commit(output)
    assert call(["locate", str(output), "x", position]) == 2
    assert "write a token's number, such as 1234, or byte:1234" in capsys.readouterr().err


def test_the_command_is_listed() -> None:
    from longdoc.cli.main import COMMANDS

    assert COMMANDS["locate"][0] == command.callback.__module__  # type: ignore[union-attr]  # it has one
