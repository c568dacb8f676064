"""Which formats of books there are, and which one a file is in. Reads no book.

Owns the table of formats, and the rule that the content decides first and the name second: `book.txt` that begins with
`%PDF-` is a PDF, and is read as one with a warning. A new format is a module with

    def read_name(raw: bytes, *, path: Path) -> Document

and one line in `FORMATS`; where its files can be told by their first bytes or by what an archive holds, a line in
`_by_content` too. Refuses what is known to be no book (pictures, other archives), each by its name.
"""

import re
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO

from connectors.lfs_pointers import parse_pointer
from longdoc.errors import DocumentError
from longdoc.records import Document, display

Reader = Callable[..., Document]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format: its name for people, its extensions in lower case, and who reads it (`module:function`).

    `version` is raised when the same bytes would become another text or other segments; so does a new version of one
    of `libraries`, which have a say in that.
    """

    name: str
    extensions: tuple[str, ...]
    version: str
    reader: str
    libraries: tuple[str, ...] = ()

    @property
    def connector_version(self) -> str:
        """Changes whenever the same bytes may become another text; what wraps formats changes with each of them."""
        if self is FORMATS["gzip"]:
            others = (format_.connector_version for format_ in FORMATS.values() if format_ is not self)
            return "+".join([self.version, *dict.fromkeys("+".join(others).split("+"))])
        return "+".join([self.version, *(f"{library}-{version(library)}" for library in self.libraries)])

    def read(self, raw: bytes, *, path: Path) -> Document:
        """The book. Raises `DocumentError` where the file is at fault."""
        module, _, function = self.reader.partition(":")
        reader: Reader = getattr(import_module(module), function)
        return reader(raw, path=path)


_CHARSET = ("charset-normalizer",)

#: Every format that is read, by the key that `_by_content` gives: text, html, gzip, epub, fb2, fb2_zip, pdf, docx.
FORMATS: dict[str, Format] = {
    "text": Format(
        name="plain text",
        extensions=(".txt", ".text", ".md", ".markdown"),
        version="text-2",
        reader="connectors.text:read_book",
        libraries=_CHARSET,
    ),
    "html": Format(
        name="HTML",
        extensions=(".html", ".htm", ".xhtml", ".xht"),
        version="html-1",
        reader="connectors.html:read_html",
        libraries=("charset-normalizer", "lxml", "selectolax"),
    ),
    "gzip": Format(
        name="gzip",
        extensions=(
            *(".txt.gz", ".text.gz", ".md.gz", ".markdown.gz"),
            *(".html.gz", ".htm.gz", ".xhtml.gz", ".xht.gz", ".fb2.gz"),
        ),
        version="gzip-1",
        reader="connectors.gzipped:read_gzip",
    ),
    "epub": Format(
        name="EPUB",
        extensions=(".epub",),
        version="epub-1",
        reader="connectors.epub:read_epub",
        libraries=("charset-normalizer", "lxml", "selectolax"),
    ),
    "fb2": Format(
        name="FictionBook",
        extensions=(".fb2",),
        version="fb2-1",
        reader="connectors.fb2:read_fb2",
        libraries=("charset-normalizer", "lxml"),
    ),
    "fb2_zip": Format(
        name="zipped FictionBook",
        extensions=(".fb2.zip", ".fbz"),
        version="fb2-1",
        reader="connectors.fb2:read_fb2_zip",
        libraries=("charset-normalizer", "lxml"),
    ),
    "pdf": Format(
        name="PDF",
        extensions=(".pdf",),
        version="pdf-1",
        reader="connectors.pdf:read_pdf",
        libraries=("lxml", "pypdfium2"),
    ),
    "docx": Format(
        name="DOCX",
        extensions=(".docx", ".docm", ".dotx", ".dotm"),
        version="docx-2",
        reader="connectors.docx:read_docx",
        libraries=("charset-normalizer", "lxml"),
    ),
}

# What is no book, told by its first bytes: https://en.wikipedia.org/wiki/List_of_file_signatures
_OTHERS = (
    (b"\x89PNG\r\n\x1a\n", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"GIF87a", "a GIF picture"),
    (b"GIF89a", "a GIF picture"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"\xfd7zXZ\0", "an xz archive"),
    (b"BZh91AY&SY", "a bzip2 archive"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive"),
    (b"AT&TFORM", "a DjVu book"),
    (b"{\\rtf", "a Rich Text Format file"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\x7fELF", "a program"),
    (b"%!PS-Adobe", "a PostScript file"),
)
_KINDLE = b"BOOKMOBI"
_KINDLE_AT = 60
_ZIP = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_GZIP = b"\x1f\x8b"
# [MS-CFB] 2.2, and the stream of an encrypted Office document in it ([MS-OFFCRYPTO] 2.3.4.4), its name in UTF-16.
_COMPOUND_FILE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED_PACKAGE = "EncryptedPackage".encode("utf-16-le")
# What may stand before the root element, and the roots that are known.
_MARKUP = re.compile(
    r"\ufeff?\s*+(?:<\?xml.*?\?>)?(?>\s+|<!--.*?-->|<\?.*?\?>)*+"
    r"(?:(?P<html><!DOCTYPE\s+html\b|<html[\s>])|(?P<fb2><(?:\w+:)?FictionBook\b))",
    re.IGNORECASE | re.DOTALL,
)
_HEAD = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """The format a file is in, and what a user should know about how it was found."""

    format: Format
    warnings: tuple[str, ...] = ()


def extensions() -> tuple[str, ...]:
    """The extensions of all books, in the order of the table."""
    return tuple(extension for format_ in FORMATS.values() for extension in format_.extensions)


def format_of_name(name: str) -> Format | None:
    """The format that a file's name promises; of several extensions that fit, the longest."""
    lower = name.lower()
    fitting = [(len(e), format_) for format_ in FORMATS.values() for e in format_.extensions if lower.endswith(e)]
    return max(fitting, key=lambda each: each[0])[1] if fitting else None


def is_recognised(file: BinaryIO, name: str) -> bool:
    """Whether a file of an unknown extension is a book by its content."""
    try:
        return _by_content(file, name) is not None
    except DocumentError:
        return False


def recognise(file: BinaryIO, name: str) -> Recognised:
    """The format of a file that can be sought; what neither content nor name decides is plain text.

    Raises `DocumentError`: `unknown_format` for what is known to be no book or has no reader, `encrypted` for an
    Office document with a password, `damaged` for an archive that no extension explains, `lfs_pointer`.
    """
    promised = format_of_name(name)
    key = _by_content(file, name)
    if key is None:
        return Recognised(format=promised or FORMATS["text"])
    found = FORMATS.get(key)
    if found is None:
        raise _unknown(name, f"a file of the format {key}")
    if promised is None or promised is found:
        return Recognised(format=found)
    warning = f"The name {display(name)} promises {promised.name}, but its content is {found.name}: read as that."
    return Recognised(format=found, warnings=(warning,))


def _by_content(file: BinaryIO, name: str) -> str | None:
    """The key of the format that the first bytes, or an archive's directory, tell; None where they tell nothing."""
    file.seek(0)
    head = file.read(_HEAD)
    if head.startswith(_ZIP):
        return _archive(file, name)
    if head.startswith(_GZIP):
        return "gzip"
    if head.lstrip().startswith(b"%PDF-"):
        return "pdf"
    if head.startswith(_COMPOUND_FILE):
        raise _compound(file, name)
    if pointer := parse_pointer(head):
        message = f"{display(name)} is a Git LFS pointer to {pointer.size:,} bytes that are not here."
        action = "Run `git lfs pull` in its repository, or leave it out."
        raise DocumentError(f"{message} {action}", stage="read", reason="lfs_pointer", needs="its content")
    if markup := _MARKUP.match(_as_text(head)):
        return "html" if markup["html"] else "fb2"
    for signature, kind in _OTHERS:
        if head.startswith(signature):
            raise _unknown(name, kind)
    if head[_KINDLE_AT:].startswith(_KINDLE):
        raise _unknown(name, "a Kindle book (MOBI)")
    return None


def _as_text(head: bytes) -> str:
    """Enough of the text to see markup, which is ASCII: no byte is ever an error here."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return head.decode("utf-16", errors="replace")
    return head.removeprefix(b"\xef\xbb\xbf").decode("latin-1")


def _archive(file: BinaryIO, name: str) -> str | None:
    """What kind of book a ZIP archive is, by the names in its directory."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = [member.filename for member in archive.infolist()]
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, struct.error) as error:
        if format_of_name(name) is None or format_of_name(name) is FORMATS["text"]:
            cause = f"{display(name)} begins like a ZIP archive, but its directory cannot be read: {error}."
            message = f"{cause} Get a whole copy of it."
            raise DocumentError(message, stage="read", reason="damaged") from error
        return None
    if "META-INF/container.xml" in names or any(each.lower().endswith(".opf") for each in names):
        return "epub"
    if "[Content_Types].xml" in names and any(each.startswith("word/") for each in names):
        return "docx"
    if any(each.lower().endswith(".fb2") for each in names):
        return "fb2_zip"
    if format_of_name(name) in (None, FORMATS["text"]):
        raise _unknown(name, f"a ZIP archive of {len(names)} members, none of which makes it a book")
    return None


def _compound(file: BinaryIO, name: str) -> DocumentError:
    """Old Office documents, and new ones with a password, are compound files."""
    file.seek(0)
    if _ENCRYPTED_PACKAGE in file.read():
        message = f"{display(name)} is encrypted: an Office document that needs a password. Save a copy without one."
        return DocumentError(message, stage="read", reason="encrypted", needs="a copy without a password")
    message = f"{display(name)} is an old Office document (.doc and the like), which cannot be read. Save it as .docx."
    return DocumentError(message, stage="read", reason="unknown_format")


def _unknown(name: str, kind: str) -> DocumentError:
    cause = f"{display(name)} is {kind}, which cannot be read as a book."
    message = f"{cause} Convert it to one of {', '.join(extensions())}, or leave it out."
    return DocumentError(message, stage="read", reason="unknown_format")
