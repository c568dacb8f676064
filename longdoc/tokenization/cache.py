"""Token ids of blobs, kept between documents and runs: the same blob in the next commit is not encoded again.

Owns one SQLite file that several processes may use at once, and its bound, `$LONGDOC_TOKEN_CACHE_SIZE`: what was used
longest ago, to a day, makes room for what is new, and what alone is larger than the bound is not kept. It is a cache
and nothing more: what is missing, damaged or locked away is computed again, and an entry whose checksum is wrong is
never returned. A file that cannot be used, or a full disk, is said once in a process and done without. Deleting the
file is always safe.
"""

import functools
import hashlib
import logging
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from longdoc.records import Int32s
from longdoc.sizes import cache_size

_LOG = logging.getLogger(__name__)
TOKENS = "LONGDOC_TOKEN_CACHE_SIZE"
# The number is that of the layout: another one gets other tables. Uses stand apart from ids, so that going through them
# all, or noting one, moves few bytes.
_CREATE = (
    "CREATE TABLE IF NOT EXISTS token_ids_2 (key BLOB PRIMARY KEY, packed BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS token_uses_2 (key BLOB PRIMARY KEY, used INTEGER, num_bytes INTEGER) WITHOUT ROWID",
    "DROP TABLE IF EXISTS token_ids_1",
)
_PUT = "INSERT OR REPLACE INTO token_ids_2 VALUES (?, ?)"
_PUT_USE = "INSERT OR REPLACE INTO token_uses_2 VALUES (?, ?, ?)"
_GET = "SELECT key, packed, used FROM token_ids_2 LEFT JOIN token_uses_2 USING (key) WHERE key IN "
_OLDEST = "SELECT key, num_bytes FROM token_uses_2 ORDER BY used"
_DELETE = ("DELETE FROM token_ids_2 WHERE key = ?", "DELETE FROM token_uses_2 WHERE key = ?")
_NOTE = "UPDATE token_uses_2 SET used = ? WHERE key = ?"
_ROWS_A_QUERY = 500
_WAIT_SECONDS = 10.0
# A use is noted again only after this time: a run that finds everything writes nothing.
_USE_SECONDS = 24 * 3600
# Eviction makes more room than is needed now, so that it is rare.
_ROOM_LEFT = 0.1
# A row's share of its page and of the tables' trees, beside its ids.
_ROW_BYTES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenKey:
    """What token ids depend on: the blob's bytes, how they became text, and the tokenizer (`Vocabulary.identity`)."""

    blob_id: str
    encoding: str
    tokenizer_sha256: str

    @property
    def digest(self) -> bytes:
        """16 bytes that stand for the key. Lengths are part of what is hashed, so that no two keys run together."""
        fields = (self.blob_id, self.encoding, self.tokenizer_sha256)
        return hashlib.blake2b(repr(fields).encode("utf-8"), digest_size=16).digest()


class TokenCache:
    """A file of token ids by `TokenKey`. Pickled, it is its path; a connection belongs to one process and thread.

    `most_bytes` bounds what the file holds; None stands for what the environment says.
    """

    def __init__(self, path: Path, wait_seconds: float = _WAIT_SECONDS, most_bytes: int | None = None) -> None:
        self.path = path
        self._wait_seconds = wait_seconds
        self._most_bytes = cache_size(TOKENS) if most_bytes is None else most_bytes
        self._connection: sqlite3.Connection | None = None
        self._is_broken = False
        self._used_again: set[bytes] = set()

    def __reduce__(self) -> tuple[type["TokenCache"], tuple[Path, float, int]]:
        return (TokenCache, (self.path, self._wait_seconds, self._most_bytes))

    def __enter__(self) -> "TokenCache":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Note what was used, and let go of the file; the next use opens it again."""
        if self._connection is not None and self._used_again:
            # A use that cannot be noted costs an entry its place at worst.
            with suppress(sqlite3.Error, OSError), self._connection as connection:
                self._note_uses(connection)
        self._disconnect()

    def get_many(self, keys: Iterable[TokenKey]) -> dict[TokenKey, Int32s]:
        """The token ids, int32 [N] each, of those keys that are stored undamaged."""
        by_digest = {key.digest: key for key in keys}
        if not by_digest or self._is_broken:
            return {}
        found: dict[TokenKey, Int32s] = {}
        due = time.time() - _USE_SECONDS
        try:
            for digest, packed, used in self._rows(list(by_digest)):
                token_ids = _unpack(digest, packed)
                if token_ids is None:
                    _LOG.warning("%s: a damaged entry was left out; it is encoded again.", self.path)
                    continue
                found[by_digest[digest]] = token_ids
                if used is None or used < due:
                    self._used_again.add(digest)
        except (sqlite3.Error, OSError) as error:
            self._give_up(error)
            return {}
        return found

    def put_many(self, entries: Mapping[TokenKey, Int32s]) -> None:
        """Store token ids; those stored before under the same key are replaced, what does not fit is left out."""
        if not entries or self._is_broken:
            return
        rows = list(_that_fit(entries, self._most_bytes))
        now = int(time.time())
        try:
            connection = self._open()
            # The lock is taken first: another process may be making room at this moment.
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                self._note_uses(connection)
                self._make_room(connection, sum(len(packed) + _ROW_BYTES for _, packed in rows))
                connection.executemany(_PUT, rows)
                connection.executemany(_PUT_USE, [(digest, now, len(packed)) for digest, packed in rows])
        except (sqlite3.Error, OSError) as error:
            self._give_up(error)

    def _note_uses(self, connection: sqlite3.Connection) -> None:
        now = int(time.time())
        connection.executemany(_NOTE, [(now, digest) for digest in self._used_again])
        self._used_again.clear()

    def _make_room(self, connection: sqlite3.Connection, num_bytes: int) -> None:
        """Delete what was used longest ago where `num_bytes` more would be too many. Asks SQLite for its pages only."""
        over = _bytes_in_use(connection) + num_bytes - self._most_bytes
        if over <= 0:
            return
        wanted = over + int(_ROOM_LEFT * self._most_bytes)
        doomed, freed = [], 0
        with closing(connection.execute(_OLDEST)) as oldest:
            for digest, size in oldest:
                if freed >= wanted:
                    break
                doomed.append((digest,))
                freed += size + _ROW_BYTES
        for statement in _DELETE:
            connection.executemany(statement, doomed)

    def _rows(self, digests: list[bytes]) -> Iterator[tuple[bytes, bytes, int | None]]:
        for start in range(0, len(digests), _ROWS_A_QUERY):
            some = digests[start : start + _ROWS_A_QUERY]
            marks = ",".join("?" * len(some))
            with closing(self._open().execute(_GET + f"({marks})", some)) as rows:
                yield from rows

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=self._wait_seconds)
            self._connection = connection
            # Another process may be switching the new file at this moment; then it is done, or slower.
            with suppress(sqlite3.OperationalError):
                connection.execute("PRAGMA journal_mode=WAL")
            # A power cut may lose the newest entries, never the file.
            connection.execute("PRAGMA synchronous=NORMAL")
            for statement in _CREATE:
                connection.execute(statement)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _give_up(self, error: Exception) -> None:
        self._is_broken = True
        self._used_again.clear()
        self._disconnect()
        _warn_once(self.path, str(error))


@functools.cache
def _warn_once(path: Path, cause: str) -> None:
    action = "Make room for it" if "full" in cause or "space" in cause else "Delete the file to start anew"
    _LOG.warning("%s: the cache of token ids cannot be used (%s); texts are encoded again. %s.", path, cause, action)


def _bytes_in_use(connection: sqlite3.Connection) -> int:
    pages, free, page_bytes = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * page_bytes


def _that_fit(entries: Mapping[TokenKey, Int32s], most_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    """The rows of as many entries as fit into a file that holds nothing else."""
    room = most_bytes
    for key, token_ids in entries.items():
        room -= 4 * len(token_ids) + _ROW_BYTES
        if room < 0:
            return
        yield key.digest, _pack(key.digest, token_ids)


def _pack(digest: bytes, token_ids: Int32s) -> bytes:
    """A checksum of 16 bytes over key and ids, then the ids as little-endian int32."""
    # Not deflated: that takes as long as encoding the text.
    raw = np.ascontiguousarray(token_ids, dtype="<i4").tobytes()
    return _checksum(digest, raw) + raw


def _unpack(digest: bytes, packed: object) -> Int32s | None:
    if not isinstance(packed, bytes):
        return None
    checksum, raw = packed[:16], packed[16:]
    if len(raw) % 4 or checksum != _checksum(digest, raw):
        return None
    return np.frombuffer(raw, dtype="<i4").astype(np.int32)


def _checksum(digest: bytes, raw: bytes) -> bytes:
    return hashlib.blake2b(digest + raw, digest_size=16).digest()
