"""Git repositories made for measuring: real source code in a chosen number of files and bytes, by `git fast-import`.

Owns where the code comes from: the files of this Python's own library and of the packages installed beside it, in the
order of their paths. Where those do not suffice they are taken again, each copy with a first line of its own, so that
no two files are alike. The same machine makes the same repository.
"""

import itertools
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from longdoc.errors import InfrastructureError

# What repositories of code hold, each with the mark of a comment.
_COMMENTS = {".py": "#", ".pyi": "#", ".c": "//", ".h": "//", ".js": "//", ".md": "<!-- -->", ".txt": "#", ".rst": ".."}
_LONGEST = 1 << 20
_FILES_A_FOLDER = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositorySize:
    """How large a repository is to be: at least `num_bytes`, in `num_files` files (None: as long as they are)."""

    num_bytes: int
    num_files: int | None = None


def make_repository(folder: Path, size: RepositorySize) -> None:
    """A bare repository with one commit on `main`. Raises `InfrastructureError` where git fails."""
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(folder)], check=True)
    command = ["git", f"--git-dir={folder}", "fast-import", "--quiet", "--done"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        _write_commit(process.stdin, size)
        process.stdin.close()
    if process.returncode:
        raise InfrastructureError(f"git fast-import failed with code {process.returncode}; is there room in {folder}?")


def _write_commit(out: IO[bytes], size: RepositorySize) -> None:
    # https://git-scm.com/docs/git-fast-import
    out.write(b"commit refs/heads/main\ncommitter A <a@example.org> 0 +0000\ndata 4\ncode\n")
    for path, content in _files(size):
        out.write(b"M 100644 inline %s\ndata %d\n" % (path, len(content)))
        out.write(content)
        out.write(b"\n")
    out.write(b"done\n")


def _files(size: RepositorySize) -> Iterator[tuple[bytes, bytes]]:
    num_bytes = 0
    per_file = None if size.num_files is None else -(-size.num_bytes // size.num_files)
    for number, (path, content) in enumerate(_endless(per_file)):
        if num_bytes >= size.num_bytes if size.num_files is None else number >= size.num_files:
            return
        num_bytes += len(content)
        yield b"part-%04d/%05d-%s" % (number // _FILES_A_FOLDER, number, path.name.encode()), content


def _endless(per_file: int | None) -> Iterator[tuple[Path, bytes]]:
    """The code again and again; with `per_file`, in files of at least that many bytes, cut between lines."""
    together = b""
    for copy in itertools.count():
        num_found = 0
        for path, content in _code():
            num_found += 1
            first = f"{_COMMENTS[path.suffix]} copy {copy}\n".encode() if copy else b""
            if per_file is None:
                yield path, first + content
                continue
            together += first + content
            *pieces, together = _cut(together, per_file)
            for piece in pieces:
                yield path, piece
        if not num_found:
            raise InfrastructureError("this Python has no library of source files to make a repository from.")


def _cut(content: bytes, per_file: int) -> list[bytes]:
    """Pieces of at least `per_file` bytes that end with a line, and what is left over, which may be nothing."""
    pieces, start = [], 0
    while len(content) - start >= per_file:
        newline = content.find(b"\n", start + per_file)
        if newline < 0:
            break
        pieces.append(content[start : newline + 1])
        start = newline + 1
    return [*pieces, content[start:]]


def _code() -> Iterator[tuple[Path, bytes]]:
    """Source files in UTF-8, each content once."""
    seen: set[bytes] = set()
    for name in ("stdlib", "purelib"):
        root = Path(sysconfig.get_paths()[name])
        for path in sorted(root.rglob("*")):
            if path.suffix not in _COMMENTS or "site-packages" in path.relative_to(root).parts:
                continue  # packages of another environment that lie inside the library's folder
            if not path.is_file() or not 0 < path.stat().st_size < _LONGEST:
                continue
            content = path.read_bytes()
            if b"\0" not in content and content not in seen and _is_utf8(content):
                seen.add(content)
                yield path, content


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
