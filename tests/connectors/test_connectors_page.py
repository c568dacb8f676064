"""docs/connectors.md says what is so: its example runs, and its table knows every reason."""

import ast
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from book_checks import PAGE, check_document, documented_reasons, mapped, mutations, read_or_refuse, texts
from hypothesis import HealthCheck, given, settings

from connectors.books import read_book
from connectors.folder import open_folder
from connectors.formats import FORMATS, Format
from connectors.markup_names import UNREAD
from longdoc.errors import DocumentError

ROOT = Path(__file__).resolve().parents[2]
READER, LINE = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
FIRST, SECOND = "00:00:01,000 --> 00:00:02,500", "00:01:00,000 --> 00:01:02,000"
SUBTITLES = f"1\r\n{FIRST}\r\nDown, down,\r\n<i>down</i>.\r\n\r\n2\r\n{SECOND}\r\nÉté\r\n"


@pytest.fixture(scope="module", autouse=True)
def subtitles() -> object:
    """The example as a module, and its line in the table."""
    module = ModuleType("connectors.subtitles")
    exec(READER, module.__dict__)
    sys.modules[module.__name__] = module
    FORMATS.update(eval(f"{{{LINE}}}", {"Format": Format}))
    yield
    del FORMATS["subtitles"], sys.modules[module.__name__]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252"])
def test_the_example_reads_a_new_format(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "film.srt"
    path.write_bytes(SUBTITLES.encode(encoding))
    (ref,) = open_folder(tmp_path).documents()
    document = ref.read()
    check_document(document, path.read_bytes())
    if encoding != "cp1252":  # two bytes are too few for a guess
        assert texts(document) == [("text", "Down, down,\n<i>down</i>.\n\nÉté")]
    assert [place for place, _ in mapped(document)] == [FIRST, SECOND]
    assert ref.connector_version.startswith("srt-1+charset-normalizer-")
    spoken = "Down, down,\r\n<i>down</i>.\r\nÉté\r\n".encode("utf-8" if encoding == "utf-8-sig" else encoding)
    assert [entry.num_bytes for entry in document.ledger if entry.kind == "text"] == [len(spoken)]


def test_the_example_refuses_what_holds_nothing() -> None:
    with pytest.raises(DocumentError, match=r"x\.srt holds no subtitle") as caught:
        read_book(b"1\n\n", path=Path("x.srt"))
    assert caught.value.reason == "empty"


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=mutations(SUBTITLES.encode()))
def test_the_example_survives_damage(raw: bytes) -> None:
    read_or_refuse(raw, "film.srt")


def test_every_format_has_its_extensions_on_the_page() -> None:
    for key, format_ in FORMATS.items():
        if key not in ("subtitles", "gzip"):
            for extension in format_.extensions:
                assert f"`{extension}`" in PAGE, (key, extension)


def test_every_reason_is_in_the_table() -> None:
    table = set(documented_reasons())
    written = {
        reason
        for module in (ROOT / "connectors").glob("*.py")
        for reason in re.findall(r"\breason=\"([a-z_]+)\"", module.read_text())
    }
    assert written | set(UNREAD.values()) | {"comment", "hidden"} <= table


def test_every_word_of_the_table_is_given_by_some_code() -> None:
    modules = [
        path for folder in ("connectors", "pipelines", "longdoc/tokenization") for path in (ROOT / folder).glob("*.py")
    ]
    words = {
        word
        for module in modules
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for word in node.value.split()  # extensions by their reason stand in one string
    }
    assert set(documented_reasons()) - words == set()
    assert all(where <= {"document", "bytes"} for where in documented_reasons().values())
