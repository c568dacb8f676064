"""The nouns of longdoc as plain records. They know nothing of Ray, torch or Arrow.

Offsets are half-open. `text_byte_*` count bytes of the document's text in UTF-8, `char_*` its code points,
`token_*` its tokens without the special tokens that a model wants around a document. Nothing here reads a file.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from longdoc.errors import ensure

DocumentKind = Literal["book", "repository"]
# To the last @ of what has no white space in it: passwords hold @, / and quotes. Taking too much shows nothing.
_CREDENTIALS = re.compile(r"(?<=://)\S*@")
if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Int32s = npt.NDArray[np.int32]
    Int64s = npt.NDArray[np.int64]
else:
    # numpy takes longer to import than most books take to be read, and connectors have no use for it.
    Int32s = Int64s = Any


def display(path: bytes | str) -> str:
    """A path for people: UTF-8 where it is, bytes that are not as \\xNN; control characters escaped.

    A `str` is a path as Python hands it over, with bytes that are not UTF-8 as lone surrogates (PEP 383): those cannot
    be written to any file or table. What was made for people once stays as it is.
    """
    text = path.decode("utf-8", errors="surrogateescape") if isinstance(path, bytes) else path
    return text if text.isprintable() else "".join(char if char.isprintable() else _escaped(char) for char in text)


def without_credentials(text: str) -> str:
    """`text` with user names and passwords taken out of its URLs."""
    return _CREDENTIALS.sub("", text)


def _escaped(char: str) -> str:
    byte = ord(char) - 0xDC00
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else char.encode("unicode_escape").decode("ascii")


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The smallest piece with provenance. The text ranges of a document's segments tile its text, in order.

    A segment without text (`text_byte_start == text_byte_stop`) that stands for source bytes carries a `reason`.
    `unit` numbers the file, chapter or page a segment belongs to: a file's header, content and padding share one;
    spans never cross a unit. `owner` of a unit, the segment its spans are named after, is its `is_content` segment.
    `encoding` turns the text back into the source's bytes; where the format's own rules transformed the text, it is
    None and `transform` names them (`html; charset=utf-8`, `pdf`). `place` is where the text begins in its file, in
    the format's own terms: `page 12`, or an element path.
    """

    segment_index: int
    unit: int
    kind: str
    is_content: bool
    path: bytes | None = None
    title: str | None = None
    encoding: str | None = None
    encoding_source: str | None = None
    reason: str | None = None
    num_bytes_source: int = 0
    source_sha256: str | None = None
    blob_id: str | None = None
    transform: str | None = None
    place: str | None = None
    text_byte_start: int
    text_byte_stop: int
    char_start: int
    char_stop: int
    num_lines: int

    @property
    def display_path(self) -> str | None:
        """The path for people, see `display`."""
        return None if self.path is None else display(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One measured part of a source: a member of an archive, its header, a page, a stretch of markup.

    Entries form a tree, parents first: `parent` is an entry's index, None for a part of the source itself. `num_bytes`
    is the part's own size inside its parent and is measured, never what is left over. An entry whose bytes stand for
    other bytes (compressed, encoded) and that is broken down further says how many in `num_bytes_content`, and its
    children add up to that. `reason` says why a part is not text; parts that became text have none.
    """

    entry_index: int
    parent: int | None = None
    kind: str
    path: bytes | None = None
    num_bytes: int
    num_bytes_content: int | None = None
    encoding: str | None = None
    reason: str | None = None
    detail: str | None = None

    @property
    def display_path(self) -> str | None:
        """The path for people, see `display`."""
        return None if self.path is None else display(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRange:
    """Where a stretch of a transformed text came from: an entry of the ledger, and the element path or page in it."""

    text_byte_start: int
    text_byte_stop: int
    entry_index: int
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One whole book or one whole repository: `text` in UTF-8 and the segments that tile it.

    `ledger` breaks a source with an inner structure down to its parts; it is empty where the segments say it all.
    `source_map` relates text that a format's rules transformed to where it came from, in the order of the text.
    `date` is the date of publication as the source states it. `warnings` are for the reader of the result.
    """

    kind: DocumentKind
    source_uri: str
    revision: str | None = None
    commit_id: str | None = None
    title: str | None = None
    authors: tuple[str, ...] = ()
    language: str | None = None
    identifiers: tuple[str, ...] = ()
    publisher: str | None = None
    date: str | None = None
    warnings: tuple[str, ...] = ()
    num_bytes_source: int
    text: bytes = field(repr=False)
    segments: tuple[Segment, ...] = field(repr=False)
    ledger: tuple[LedgerEntry, ...] = field(default=(), repr=False)
    source_map: tuple[SourceRange, ...] = field(default=(), repr=False)

    def segment_text(self, segment: Segment) -> bytes:
        """The UTF-8 text of one segment."""
        return self.text[segment.text_byte_start : segment.text_byte_stop]

    @property
    def text_sha256(self) -> str:
        """SHA-256 of the text in UTF-8, hexadecimal."""
        return hashlib.sha256(self.text).hexdigest()

    def check(self) -> None:
        """Raise `AssertionError` unless the segments tile the text and account for every byte of the source."""
        byte, char = 0, 0
        for index, segment in enumerate(self.segments):
            ensure(segment.segment_index == index, f"segment {index} is numbered {segment.segment_index}")
            ensure((segment.text_byte_start, segment.char_start) == (byte, char), f"segment {index} leaves a gap")
            ensure(segment.text_byte_stop >= byte, f"segment {index} runs backwards")
            byte, char = segment.text_byte_stop, segment.char_stop
        ensure(byte == len(self.text), f"segments end at byte {byte} of {len(self.text)}")
        accounted = sum(segment.num_bytes_source for segment in self.segments)
        ensure(accounted == self.num_bytes_source, f"{accounted} of {self.num_bytes_source} source bytes accounted for")
        self._check_ledger()
        self._check_source_map()

    def _check_ledger(self) -> None:
        """Every entry that is broken down, and the source itself, is the sum of its parts."""
        if not self.ledger:
            return
        inside: dict[int | None, int] = {None: 0}
        for index, entry in enumerate(self.ledger):
            ensure(entry.entry_index == index, f"ledger entry {index} is numbered {entry.entry_index}")
            ensure(entry.parent in inside, f"ledger entry {index} lies in entry {entry.parent}, which is no parent")
            inside[entry.parent] += entry.num_bytes
            if entry.num_bytes_content is not None:
                inside[index] = 0
        for parent, num_bytes in inside.items():
            whole = self.num_bytes_source if parent is None else self.ledger[parent].num_bytes_content
            name = "the source" if parent is None else f"ledger entry {parent}"
            ensure(num_bytes == whole, f"the parts of {name} have {num_bytes} bytes, it has {whole}")

    def _check_source_map(self) -> None:
        stop = 0
        for each in self.source_map:
            # A book has hundreds of thousands of them: the messages are made for those that are wrong only.
            if not stop <= each.text_byte_start <= each.text_byte_stop:
                raise AssertionError(f"{each} overlaps what stands before it")
            if not 0 <= each.entry_index < len(self.ledger):
                raise AssertionError(f"{each} names no entry of the ledger")
            stop = each.text_byte_stop
        ensure(stop <= len(self.text), f"the source map ends at byte {stop} of {len(self.text)}")


class DocumentRef(Protocol):
    """A document that was found but not read. Picklable: it is read where there is room for it.

    `doc_id` names the source without its version (canonical address + selection globs), `version` is the commit id or
    the file's digest, `connector_version` changes whenever the same bytes would become another text.
    """

    @property
    def doc_id(self) -> str: ...  # noqa: D102
    @property
    def version(self) -> str: ...  # noqa: D102
    @property
    def connector_version(self) -> str: ...  # noqa: D102
    @property
    def kind(self) -> DocumentKind: ...  # noqa: D102
    @property
    def source_uri(self) -> str: ...  # noqa: D102
    @property
    def num_bytes_source(self) -> int: ...  # noqa: D102

    def read(self) -> Document:
        """Read the whole document. Raises `DocumentError` where the document is at fault."""
        ...


@runtime_checkable
class StreamingRef(DocumentRef, Protocol):
    """A document that can be read a segment at a time too, so that looking at it needs no room for all of it."""

    @property
    def title(self) -> str | None: ...  # noqa: D102
    @property
    def revision(self) -> str | None: ...  # noqa: D102

    def stream(self) -> Iterator[tuple[Segment, bytes]]:
        """Every segment with its text in UTF-8, exactly as `read` has them. Raises `DocumentError` where that does."""
        ...


def head_of(ref: StreamingRef, *, text: bytes = b"", segments: tuple[Segment, ...] = ()) -> Document:
    """The document of a reference that streams: what is known before its segments, and those where they are given."""
    return Document(
        kind=ref.kind,
        source_uri=ref.source_uri,
        revision=None if ref.revision is None else display(ref.revision),
        commit_id=ref.version if ref.kind == "repository" else None,
        title=ref.title,
        num_bytes_source=ref.num_bytes_source,
        text=text,
        segments=segments,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A document that was found but cannot even be opened; it goes to quarantine without a doc_key."""

    doc_id: str
    kind: DocumentKind
    source_uri: str
    stage: str
    reason: str
    error: str


class Source(Protocol):
    """Where documents come from. Opening one raises `SourceError`; listing it reads no document."""

    @property
    def source_uri(self) -> str:
        """The canonical address, credentials removed."""
        ...

    def documents(self) -> Iterator["DocumentRef | Unreadable"]:
        """The documents in a stable order, each resolved to a version."""
        ...


def _nothing_known(doc_id: str, commit_id: str) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which part of a source is wanted. Globs are over repository paths, from the repository's root.

    `submodules` and `lfs`: whether the files of submodules, and the content that LFS pointers stand for, are read too.
    `known` tells the bytes of source of a document (doc_id) at a commit that an output holds already: its paths are not
    listed again, and nothing of it is read or fetched.
    """

    kind: Literal["auto", "book", "repository"] = "auto"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    revision: str | None = None
    submodules: bool = False
    lfs: bool = False
    known: Callable[[str, str], int | None] = field(default=_nothing_known, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSequence:
    """A document as token ids. Token t covers text bytes [byte_starts[t], byte_starts[t+1]).

    token_ids: int32 [N]; byte_starts: int64 [N + 1], the last one is the length of the text;
    segment_starts: int64 [S + 1], tokens before each segment, the last one is N.
    `prefix_token_ids` and `suffix_token_ids` are what the model wants around a document (BOS, EOS); not counted in N.
    """

    token_ids: Int32s = field(repr=False)
    byte_starts: Int64s = field(repr=False)
    segment_starts: Int64s = field(repr=False)
    prefix_token_ids: tuple[int, ...] = ()
    suffix_token_ids: tuple[int, ...] = ()

    @property
    def num_tokens(self) -> int:
        """N, the tokens of the text."""
        return int(self.token_ids.shape[0])

    @property
    def num_model_tokens(self) -> int:
        """What the model sees: the text's tokens and the special ones around them."""
        return len(self.prefix_token_ids) + self.num_tokens + len(self.suffix_token_ids)

    @property
    def tokens_sha256(self) -> str:
        """SHA-256 of the text's token ids as little-endian int32, hexadecimal."""
        import numpy as np

        return hashlib.sha256(np.ascontiguousarray(self.token_ids, dtype="<i4").tobytes()).hexdigest()

    def segment_of_token(self, token: int) -> int:
        """The index of the segment that holds a token."""
        return int(self.segment_starts.searchsorted(token, side="right")) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of tokens that gets one embedding and one set of scores. Spans tile the document."""

    span_index: int
    segment_index: int
    token_start: int
    token_stop: int
    text_byte_start: int
    text_byte_stop: int
    line_start: int
    line_stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One finished Parquet file of one attempt. `path` is relative to the output, below its table."""

    table: str
    path: str
    num_rows: int
    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a rank hands back: facts and file names, never a tensor of the document."""

    rank: int
    parts: tuple[Part, ...]
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowIdentity:
    """What every row of every table carries."""

    doc_id: str
    doc_key: str
    attempt_id: str


def fingerprint(fields: Iterable[tuple[str, str]]) -> str:
    """SHA-256 over named fields, hexadecimal. Lengths are hashed too, so that no two lists of fields collide."""
    digest = hashlib.sha256()
    for name, value in fields:
        for part in (name, value):
            raw = part.encode("utf-8", errors="surrogatepass")
            digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.hexdigest()
