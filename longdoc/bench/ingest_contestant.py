"""One contestant of `longdoc bench ingest`, in a process of its own.

`python -m longdoc.bench.ingest_contestant WHAT ...` prints one JSON object: what it counted, and the seconds of the
work itself, without starting Python and importing. The parent times the whole process. Imports no more than a user of
the same thing would.
"""

import functools
import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longdoc.records import DocumentRef, Unreadable


def ingest(source: str, model: str, num_processes: str, *, is_warm: bool = False) -> dict[str, Any]:
    """Git objects to segments, ledger, token ids, and the map from tokens to bytes.

    `is_warm`: with everything imported that this takes, as in a process that has read another source before.
    """
    from longdoc.cli.sources import find_opener
    from longdoc.model.tokenizer import find_tokenizer_folder
    from longdoc.records import Selection
    from longdoc.tokenization.pool import EncodingPool
    from longdoc.tokenization.stream import read_and_encode
    from longdoc.tokenization.vocabulary import Vocabulary

    folder = find_tokenizer_folder(model, report=_silent)
    vocabulary, open_sources = Vocabulary.load(folder), find_opener()
    if is_warm:
        open_sources([source], Selection())
    started = time.perf_counter()
    num_bytes = num_segments = num_tokens = 0
    with EncodingPool(folder, num_processes=int(num_processes)) as pool:
        for opened in open_sources([source], Selection()):
            for ref in opened.documents():
                document, sequence = read_and_encode(_readable(ref), vocabulary, pool)
                num_bytes += document.num_bytes_source
                num_segments += len(document.segments)
                num_tokens += sequence.num_tokens
        seconds = time.perf_counter() - started
    return {"seconds": seconds, "bytes": num_bytes, "segments": num_segments, "tokens": num_tokens}


def tiktoken(source: str, model: str) -> dict[str, Any]:
    """The texts of the same files, read before the clock starts, through `encode_ordinary`, one after another."""
    from longdoc.cli.sources import find_opener
    from longdoc.model.tokenizer import find_vocabulary
    from longdoc.records import Selection

    (opened,) = find_opener()([source], Selection())
    (ref,) = opened.documents()
    document = _readable(ref).read()
    segments = [segment for segment in document.segments if segment.is_content]
    texts = [document.segment_text(segment).decode("utf-8") for segment in segments]
    encoding = find_vocabulary(model, report=_silent).tiktoken_encoding()
    started = time.perf_counter()
    num_tokens = sum(len(encoding.encode_ordinary(text)) for text in texts)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "bytes": sum(segment.num_bytes_source for segment in segments), "tokens": num_tokens}


def book(path: str) -> dict[str, Any]:
    """One book as a document, with its ledger."""
    from longdoc.cli.sources import find_opener
    from longdoc.records import Selection

    open_sources = find_opener()
    started = time.perf_counter()
    (opened,) = open_sources([path], Selection(kind="book"))
    (ref,) = opened.documents()
    document = _readable(ref).read()
    return {"seconds": time.perf_counter() - started, "bytes": document.num_bytes_source, "text": len(document.text)}


def _readable(ref: "DocumentRef | Unreadable") -> "DocumentRef":
    """The document that was found, if it can be opened. Raises `SourceError`."""
    from longdoc.errors import SourceError
    from longdoc.records import Unreadable

    if isinstance(ref, Unreadable):
        raise SourceError(f"{ref.source_uri}: {ref.error}")
    return ref


def _silent(_: str) -> None:
    return None


_CONTESTANTS: dict[str, Callable[..., dict[str, Any]]] = {
    "ingest": ingest,
    "ingest-warm": functools.partial(ingest, is_warm=True),
    "tiktoken": tiktoken,
    "book": book,
}

if __name__ == "__main__":
    print(json.dumps(_CONTESTANTS[sys.argv[1]](*sys.argv[2:])))  # noqa: T201


#: The same for tools of others, run by the Python of the environment that has them.
GITINGEST = """
import json, sys, time
import gitingest.output_formatter as formatter
formatter._format_token_count = lambda text: None  # it has no option for that
from gitingest import ingest
started = time.perf_counter()
_, _, content = ingest(sys.argv[1])
print(json.dumps({"seconds": time.perf_counter() - started, "text": len(content.encode("utf-8", "replace"))}))
"""
MARKITDOWN = """
import json, sys, time
from markitdown import MarkItDown
started = time.perf_counter()
content = MarkItDown().convert(sys.argv[1]).text_content
print(json.dumps({"seconds": time.perf_counter() - started, "text": len(content.encode("utf-8", "replace"))}))
"""
VERSION = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"
