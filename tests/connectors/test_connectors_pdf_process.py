"""The process that runs pdfium: whatever happens to it is told in words, and the one that asked goes on."""

from pathlib import Path

import psutil
import pytest
from book_checks import check_document
from small_pdf import SmallPdf, lines, one_page

from connectors import pdf_process
from connectors.pdf import read_pdf
from connectors.pdf_process import read_records
from connectors.pdf_records import Bookmark, End, Fault, FileFacts, Line, Page, Record, from_wire, to_wire
from longdoc.errors import DocumentError, InfrastructureError

RAW = one_page("text")


def outcome(monkeypatch: pytest.MonkeyPatch, script: str, raw: bytes = RAW) -> DocumentError | InfrastructureError:
    """What becomes of a process that does this in place of reading."""
    monkeypatch.setattr(pdf_process, "_WORKER", ("-c", script))
    with pytest.raises((DocumentError, InfrastructureError)) as caught:
        read_pdf(raw, path=Path("book.pdf"))
    assert str(caught.value).startswith("book.pdf: ")
    return caught.value


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("import os; os.kill(os.getpid(), 11)", "makes pdfium crash (SIGSEGV)"),
        ("import sys; sys.stdin.read(); import os; os.abort()", "makes pdfium crash (SIGABRT)"),
        ("import os; os.kill(os.getpid(), 27)", "makes pdfium stand still: 60 processor seconds without a page"),
        ("raise SystemExit(1)", "makes pdfium fail (exit code 1) before its first page"),
        ("pass", "makes pdfium fail (exit code 0) before its first page"),
        ("print('[\"file\", ', end='')", "makes pdfium fail (exit code 0) before its first page"),
    ],
)
def test_a_process_that_ends_early_is_the_documents_fault(
    monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    error = outcome(monkeypatch, script)
    assert isinstance(error, DocumentError)
    assert (error.stage, error.reason) == ("read", "damaged")
    assert words in str(error)
    assert str(error).endswith("Get a whole copy of it, or print it to a new PDF.")


def test_the_page_before_a_crash_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "import os, sys; from connectors.pdf_records import *\n"
        "sys.stdout.buffer.write(to_wire(Page(index=0)) + to_wire(Page(index=1))); sys.stdout.flush()\n"
        "os.kill(os.getpid(), 11)"
    )
    assert "behind page 2." in str(outcome(monkeypatch, script))


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("import os; os.kill(os.getpid(), 9)", "was killed (SIGKILL) before its first page. See whether the machine"),
        ("import sys; sys.modules['pypdfium2'] = None; from connectors.pdf_worker import main; main()", "Install the"),
    ],
)
def test_a_machine_at_fault_is_told_from_a_document_at_fault(
    monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    error = outcome(monkeypatch, script)
    assert isinstance(error, InfrastructureError)
    assert words in str(error)


def test_more_text_than_is_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf_process, "FREELY_EXPANDED", 1000)
    monkeypatch.setattr(pdf_process, "MOST_RATIO", 1)
    script = "from connectors.pdf_records import *\nwhile True: print(to_wire(Page(index=0)).decode(), end='')"
    error = outcome(monkeypatch, script)
    assert isinstance(error, DocumentError)
    assert error.reason == "too_large_when_expanded"


def test_more_memory_than_is_given_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "from connectors import pdf_worker, pdfium\n"
        "pdf_worker.MOST_MEMORY = 1 << 30\n"
        "pdfium.records = lambda raw: iter([bytearray(1 << 31)])\n"
        "pdf_worker.main()"
    )
    error = outcome(monkeypatch, script)
    assert isinstance(error, DocumentError)
    assert error.reason == "too_large_when_expanded"


def nested(levels: int) -> bytes:
    """A drawing that draws another one ten times, and so on: 10 to the power of `levels` letters."""
    pdf = SmallPdf()
    resources = b"/Resources << /Font << /F1 %d 0 R >> >>" % pdf.font()
    shape = b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] "
    inner = pdf.stream(b"BT /F1 12 Tf (x) Tj ET", shape + resources)
    for _ in range(levels):
        inner = pdf.stream(b"/X Do " * 10, shape + b"/Resources << /XObject << /X %d 0 R >> >>" % inner)
    pdf.page(b"/X Do", resources=b"/XObject << /X %d 0 R >>" % inner)
    return pdf.write()


def test_a_page_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = nested(12)
    script = "from connectors import pdf_worker; pdf_worker.CPU_SECONDS_A_RECORD = 1; pdf_worker.main()"
    error = outcome(monkeypatch, script, raw)
    assert isinstance(error, DocumentError)
    assert error.reason == "damaged"
    assert "stand still" in str(error)


def test_progress_is_counted_from_the_last_record(monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "import time; from connectors import pdf_worker, pdfium; from connectors.pdf_records import *\n"
        "pdf_worker.CPU_SECONDS_A_RECORD = 0.8\n"
        "def records(raw):\n"
        "    yield FileFacts(num_pages=4, info={}, language='', is_rebuilt=False, bookmarks=(), attachments=())\n"
        "    for index in range(4):\n"
        "        start = time.process_time()\n"
        "        while time.process_time() < start + 0.3: pass\n"
        "        yield Page(index=index, text='slow')\n"
        "pdfium.records = records; pdf_worker.main()"
    )
    monkeypatch.setattr(pdf_process, "_WORKER", ("-c", script))
    assert read_pdf(RAW, path=Path("book.pdf")).text == b"slow\n\nslow\n\nslow\n\nslow"


def test_no_process_stays_behind() -> None:
    def workers() -> list[int]:
        # Other tests' children may be gone between being listed and being asked.
        children = psutil.Process().children()
        return [each.pid for each in children if "connectors.pdf_worker" in " ".join(told_command(each))]

    def told_command(process: psutil.Process) -> list[str]:
        try:
            return process.cmdline()
        except psutil.Error:
            return []

    pdf = SmallPdf()
    for _ in range(3):
        pdf.page(lines("text"))
    found = read_records(pdf.write(), "book.pdf")
    assert isinstance(next(found), FileFacts)
    assert len(workers()) == 1
    found.close()  # type: ignore[attr-defined]  # it is a generator
    assert workers() == []


def test_records_are_the_same_on_the_other_side() -> None:
    sent: list[Record] = [
        FileFacts(num_pages=2, info={"Title": "Ü\n"}, language="", is_rebuilt=True, bookmarks=(), attachments=("a",)),
        FileFacts(
            num_pages=1,
            info={},
            language="de",
            is_rebuilt=False,
            bookmarks=(Bookmark(0, "x", None, 1.5),),
            attachments=(),
        ),
        Page(
            index=3, text="é\n\U0001d400\0", lines=(Line(0, 12.0, 700, 3.5, 1, 0),), hyphens=(1,), alt_texts=("a", "b")
        ),
        Page(index=4, fault="why"),
        Fault(reason="damaged", cause="x"),
        End(),
    ]
    assert [from_wire(to_wire(record)) for record in sent] == sent
    assert all(to_wire(record).count(b"\n") == 1 for record in sent)


def test_a_book_is_read_where_the_folder_is_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "connectors.py").write_text("raise SystemExit(1)")
    document = read_pdf(RAW, path=tmp_path / "book.pdf")
    check_document(document, RAW)
    assert document.text == b"text"
