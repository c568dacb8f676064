"""Which document of an output somebody means: by its key, its address, its title or the name of its file.

Owns the order of these, what happens when several fit (of the versions of one source the newest; of several sources
none), and the words for none. Reads the documents table alone, and no embedding in it.
"""

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from longdoc.errors import OutputError
from longdoc.records import display
from longdoc.store.lookup import damaged
from longdoc.store.output import read_output
from longdoc.store.rows import DAMAGED
from longdoc.store.schemas import schema_of

_NAMED = ("doc_id", "doc_key", "kind", "source_uri", "title", "revision", "commit_id")
_COLUMNS = (*_NAMED, "num_tokens", "num_bytes_text", "committed_at")
_KEY_PREFIX = re.compile(r"[0-9a-f]{4,64}")
_SHOWN = 5

_Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDocument:
    """A committed document: what its row says of it, and its files by table."""

    root: Path
    row: _Row = field(repr=False)
    paths: dict[str, list[Path]] = field(repr=False)

    @property
    def name(self) -> str:
        """Its title, or its address, for people."""
        return _name(self.row)

    @property
    def num_tokens(self) -> int:
        """Tokens of its text."""
        return int(self.row["num_tokens"])

    @property
    def num_bytes_text(self) -> int:
        """Bytes of its text in UTF-8."""
        return int(self.row["num_bytes_text"])

    def named(self) -> _Row:
        """The columns that say which document it is."""
        return {name: self.row[name] for name in _NAMED}

    def files(self, table: str) -> list[Path]:
        """The files that hold its rows of a table."""
        return self.paths.get(table, [])


def find_document(output: str, name: str) -> FoundDocument:
    """The document that `name` means. Raises `OutputError` where the output is none, or none or several fit."""
    places, identity = read_output(output)
    files = [str(path) for path in sorted((places.root / "documents").glob("*/*.parquet"))]
    try:
        table = ds.dataset(files, schema=schema_of("documents", identity), format="parquet")
        rows = table.to_table(columns=list(_COLUMNS)).to_pylist() if files else []
        row = _choose(rows, name, display(output))
        (parts,) = table.to_table(columns=["parts"], filter=ds.field("doc_key") == row["doc_key"])["parts"].to_pylist()
    except DAMAGED as error:
        raise damaged(places.root / "documents", error) from error
    paths: dict[str, list[Path]] = {}
    for part in parts:
        paths.setdefault(part["table"], []).append(places.root / part["path"])
    return FoundDocument(root=places.root, row=row, paths=paths)


def _choose(rows: Sequence[_Row], name: str, shown: str) -> _Row:
    if not rows:
        raise OutputError(f"{shown} holds no document. `longdoc run` commits them.")
    for fits in _rules(name):
        fitting = [row for row in rows if fits(row)]
        if len({row["doc_id"] for row in fitting}) > 1:
            raise _several(fitting, name, shown)
        if fitting:
            return max(fitting, key=lambda row: (row["committed_at"], row["doc_key"]))
    raise _none(rows, name, shown)


def _rules(name: str) -> list[Callable[[_Row], bool]]:
    """What a name may be, the surest first."""
    folded, uri = name.casefold(), _as_uri(name)
    rules: list[Callable[[_Row], bool]] = [
        lambda row: name in (row["doc_key"], row["doc_id"], row["source_uri"]),
        lambda row: uri == row["source_uri"],
        lambda row: name == row["title"],
        lambda row: folded in (_file_name(row).casefold(), (row["title"] or "").casefold()),
        lambda row: folded == _file_name(row).rpartition(".")[0].casefold(),
    ]
    if _KEY_PREFIX.fullmatch(name):
        rules.append(lambda row: row["doc_key"].startswith(name))
    return rules


def _as_uri(name: str) -> str | None:
    try:
        return Path(name).resolve().as_uri()
    except (OSError, ValueError):  # too long, or with a NUL: no path of any document
        return None


def _several(fitting: Sequence[_Row], name: str, shown: str) -> OutputError:
    newest = {row["doc_id"]: row for row in sorted(fitting, key=lambda row: row["committed_at"])}
    lines = [f"  {row['doc_key'][:12]}  {_name(row)}  {row['source_uri']}" for row in newest.values()]
    more = [f"  and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    listed = "\n".join(lines[:_SHOWN] + more)
    return OutputError(f"{shown} holds {len(lines)} documents called {display(name)}. Name one by its key:\n{listed}")


def _none(rows: Sequence[_Row], name: str, shown: str) -> OutputError:
    names = dict.fromkeys(each for row in rows for each in (_name(row), _file_name(row), row["source_uri"]))
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.3) or list(names)[:1]
    return OutputError(
        f"{shown} holds no document called {display(name)}. Near it: {', '.join(map(repr, near))}. A document is named "
        "by its title, its file, its address (source_uri), its doc_id, or the beginning of its doc_key."
    )


def _name(row: _Row) -> str:
    return display(row["title"] or row["source_uri"])


def _file_name(row: _Row) -> str:
    return str(row["source_uri"]).rstrip("/").rpartition("/")[2]
