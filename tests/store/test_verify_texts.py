"""verify takes stored text back to the bytes it was read from, whatever encoding they were in."""

import copy
import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic_output import IDENTITY, Synthetic, commit_document, make_document, sha256
from verify_actions import faults_of, is_told

import longdoc.checks.documents
import longdoc.checks.texts
from longdoc.checks.documents import check_documents
from longdoc.checks.findings import Findings
from longdoc.checks.inventory import inventory
from longdoc.store.commit import OutputStore

# Both chapters end in the two-byte mode of ISO-2022-JP, so the first one's bytes do not close it.
CHAPTERS = ("日本", "語の本\n終わり")
# Encoding, its source, and the bytes of the book by Python's own codecs.
BOOKS: list[tuple[str, str, bytes]] = [
    ("utf-8", "utf-8", "".join(CHAPTERS).encode()),
    ("utf-8-sig", "bom", "".join(CHAPTERS).encode("utf-8-sig")),
    ("utf-16", "bom", b"\xff\xfe" + "".join(CHAPTERS).encode("utf-16-le")),
    ("utf-16-be", "bom", b"\xfe\xff" + "".join(CHAPTERS).encode("utf-16-be")),
    ("utf-32", "bom", b"\xff\xfe\0\0" + "".join(CHAPTERS).encode("utf-32-le")),
    ("iso2022_jp", "guess", "".join(CHAPTERS).encode("iso2022_jp")),
    ("shift_jis", "guess", "".join(CHAPTERS).encode("shift_jis")),
]
# Where the second chapter begins in those bytes, counted by hand from the formats' definitions.
CUTS = {"utf-8": 6, "utf-8-sig": 9, "utf-16": 6, "utf-16-be": 6, "utf-32": 12, "iso2022_jp": 7, "shift_jis": 4}


def make_book(encoding: str, source: str, raw: bytes) -> Synthetic:
    """A book of two chapters, a token a character, a span a chapter, without scores and embeddings of its own."""
    segments, tokens, spans = [], [], []
    byte = char = 0
    for index, (text, part) in enumerate(zip(CHAPTERS, (raw[: CUTS[encoding]], raw[CUTS[encoding] :]), strict=True)):
        start, start_byte = char, byte
        for letter in text:
            tokens.append({"position": char, "token_id": ord(letter), "text_byte_start": byte, "segment_index": index})
            tokens[-1] |= {"logprob": -1.0 if char else None, "entropy": 0.5 if char else None}
            tokens[-1]["rank_in_vocabulary"] = 1 if char else None
            byte, char = byte + len(letter.encode()), char + 1
        place = {"token_start": start, "token_stop": char, "text_byte_start": start_byte, "text_byte_stop": byte}
        names = {"segment_index": index, "title": f"Chapter {index}"}
        segments.append(
            {"unit": index, "kind": "chapter", "is_content": True, "encoding": encoding, "encoding_source": source}
            | {"num_bytes_source": len(part), "source_sha256": hashlib.sha256(part).hexdigest()}
            | {"char_start": start, "char_stop": char, "num_lines": text.count("\n") + 1, "embedding": [0.0] * 4}
            | place
            | names
        )
        spans.append(
            {"span_index": index, "line_start": 1, "line_stop": text.count("\n") + 2, "text": text}
            | {"embedding": [0.0] * 4, "mean_logprob": -1.0, "max_surprisal": 1.0}
            | place
            | names
        )
    text = "".join(CHAPTERS).encode()
    ids = b"".join(token["token_id"].to_bytes(4, "little") for token in tokens)
    row: dict[str, Any] = make_document(1).row | {
        "kind": "book",
        "num_bytes_source": len(raw),
        "num_bytes_text": len(text),
        "num_tokens": len(tokens),
        "text_sha256": sha256(text),
        "tokens_sha256": sha256(ids),
        "mean_logprob": -1.0,
        "perplexity": 2.718281828459045,
    }
    tables = {"segments": segments, "tokens": tokens, "spans": spans}
    return dataclasses.replace(make_document(1), tables=tables, row=row)


def verified(output: Path, document: Synthetic) -> list[str]:
    assert commit_document(OutputStore.open(str(output), IDENTITY), document)
    return faults_of(output)


@pytest.mark.parametrize("book", BOOKS, ids=[f"{book[0]} by {book[1]}" for book in BOOKS])
@pytest.mark.parametrize("rows", [1, 16_384])
def test_a_books_chapters_give_its_bytes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, book: tuple[str, str, bytes], rows: int
) -> None:
    monkeypatch.setattr(longdoc.checks.texts, "TEXT_WINDOW_ROWS", rows)
    assert verified(tmp_path, make_book(*book)) == []


def swap_letters(document: Synthetic) -> None:
    """The text and all that is hashed of it agree; the source had it in another order."""
    spans, tokens, row = document.tables["spans"], document.tables["tokens"], document.row
    spans[1]["text"] = spans[1]["text"][1] + spans[1]["text"][0] + spans[1]["text"][2:]
    tokens[2]["token_id"], tokens[3]["token_id"] = tokens[3]["token_id"], tokens[2]["token_id"]
    row["text_sha256"] = sha256("".join(span["text"] for span in spans).encode())
    row["tokens_sha256"] = sha256(b"".join(token["token_id"].to_bytes(4, "little") for token in tokens))


def move_bytes(document: Synthetic) -> None:
    document.tables["segments"][0]["num_bytes_source"] += 1
    document.tables["segments"][1]["num_bytes_source"] -= 1


def call_it_latin1(document: Synthetic) -> None:
    for segment in document.tables["segments"]:
        segment |= {"encoding": "latin-1", "encoding_source": "latin-1"}


def drop_the_mark(document: Synthetic) -> None:
    for segment in document.tables["segments"]:
        segment |= {"encoding": "utf-16-le", "encoding_source": "guess"}


def move_a_byte_border(document: Synthetic) -> None:
    """The chapters' border lies inside a character."""
    document.tables["segments"][0]["text_byte_stop"] -= 1
    document.tables["segments"][1]["text_byte_start"] -= 1


def forget_a_line(document: Synthetic) -> None:
    document.tables["spans"][1]["line_stop"] -= 1


WRONG: list[tuple[Callable[[Synthetic], None], str, str]] = [
    (swap_letters, "utf-16", "segment 1 has source_sha256 [0-9a-f]{64}, its text gives [0-9a-f]{64}"),
    (swap_letters, "iso2022_jp", "segment 1 has source_sha256"),
    (move_bytes, "utf-8", "segment 0 has 7 bytes of the source, its text gives 6"),
    (move_bytes, "utf-8-sig", "segment 0 has 10 bytes of the source, its text gives 9"),
    (call_it_latin1, "utf-8", "segment 0 has text that latin-1 cannot hold"),
    (drop_the_mark, "utf-16", "segment 0 has 6 bytes of the source, its text gives 4"),
    (move_a_byte_border, "utf-8", "segment 0 starts or ends inside a character"),
    (forget_a_line, "utf-8", "span 1 has lines 1 to 2, its text 1 to 3"),
]


@pytest.mark.parametrize(
    ("change", "encoding", "fault"), WRONG, ids=[f"{case[0].__name__} {case[1]}" for case in WRONG]
)
def test_text_that_is_not_the_sources_is_named(
    tmp_path: Path, change: Callable[[Synthetic], None], encoding: str, fault: str
) -> None:
    (book,) = (book for book in BOOKS if book[0] == encoding)
    document = make_book(*book)
    change(document)
    found = verified(tmp_path, document)
    assert is_told(fault, found), found


def test_without_its_text_a_document_is_not_taken_back(tmp_path: Path) -> None:
    """What can be seen from numbers alone still is."""
    document = make_book(*BOOKS[0])
    swap_letters(document)
    for span in document.tables["spans"]:
        span["text"] = None
    assert verified(tmp_path / "sound", document) == []
    document.tables["segments"][1]["num_lines"] = 1
    found = verified(tmp_path / "wrong", document)
    assert is_told("span 1 has lines 1 to 3 of a segment of 1", found), found


def test_a_text_that_stops_being_stored_midway_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(longdoc.checks.texts, "TEXT_WINDOW_ROWS", 1)
    for missing in (0, 1):
        document = copy.deepcopy(make_book(*BOOKS[0]))
        document.tables["spans"][missing]["text"] = None
        found = verified(tmp_path / str(missing), document)
        assert is_told("some spans have a text and some have none", found), found


def test_documents_are_looked_at_one_at_a_time_and_without_their_embeddings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = OutputStore.open(str(tmp_path), IDENTITY)
    for number in (1, 2, 3):
        commit_document(store, make_document(number))
    reads = []
    real = longdoc.checks.documents.read_table

    def noted(content: bytes, *arguments: Any) -> Any:
        reads.append(content)
        return real(content, *arguments)

    monkeypatch.setattr(longdoc.checks.documents, "read_table", noted)
    findings = Findings(root=tmp_path)
    files = inventory(findings, store.places)["documents"]
    rows = check_documents(findings, store.places, IDENTITY, files)
    for number in (1, 2, 3):
        assert "embedding" not in next(rows)
        assert len(reads) == 2 * number, "the file and its decision, and nothing ahead"
    assert findings.faults == []
