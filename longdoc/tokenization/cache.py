"""Token ids of blobs, kept between documents and runs: the same blob in the next commit is not encoded again.

Owns one SQLite file that several processes may use at once. It is a cache and nothing more: what is missing, damaged
or locked away is computed again, after one warning, and an entry whose checksum is wrong is never returned.
It is not pruned; deleting the file is always safe.
"""

import hashlib
import logging
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from longdoc.records import Int32s

_LOG = logging.getLogger(__name__)
# The number is that of the layout: another one gets another table.
_CREATE = "CREATE TABLE IF NOT EXISTS token_ids_1 (key BLOB PRIMARY KEY, packed BLOB NOT NULL)"
_PUT = "INSERT OR REPLACE INTO token_ids_1 VALUES (?, ?)"
_GET = "SELECT key, packed FROM token_ids_1 WHERE key IN "
_ROWS_A_QUERY = 500
_WAIT_SECONDS = 10.0


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
    """A file of token ids by `TokenKey`. Pickled, it is its path; a connection belongs to one process and thread."""

    def __init__(self, path: Path, wait_seconds: float = _WAIT_SECONDS) -> None:
        self.path = path
        self._wait_seconds = wait_seconds
        self._connection: sqlite3.Connection | None = None
        self._is_broken = False

    def __reduce__(self) -> tuple[type["TokenCache"], tuple[Path, float]]:
        return (TokenCache, (self.path, self._wait_seconds))

    def __enter__(self) -> "TokenCache":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; the next use opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get_many(self, keys: Iterable[TokenKey]) -> dict[TokenKey, Int32s]:
        """The token ids, int32 [N] each, of those keys that are stored undamaged."""
        by_digest = {key.digest: key for key in keys}
        if not by_digest or self._is_broken:
            return {}
        found: dict[TokenKey, Int32s] = {}
        try:
            for digest, packed in self._rows(list(by_digest)):
                token_ids = _unpack(digest, packed)
                if token_ids is None:
                    _LOG.warning("%s: a damaged entry was left out; it is encoded again.", self.path)
                else:
                    found[by_digest[digest]] = token_ids
        except (sqlite3.Error, OSError) as error:
            self._give_up(error)
            return {}
        return found

    def put_many(self, entries: Mapping[TokenKey, Int32s]) -> None:
        """Store token ids; those stored before under the same key are replaced."""
        if not entries or self._is_broken:
            return
        rows = [(key.digest, _pack(key.digest, token_ids)) for key, token_ids in entries.items()]
        try:
            with self._open() as connection:
                connection.executemany(_PUT, rows)
        except (sqlite3.Error, OSError) as error:
            self._give_up(error)

    def _rows(self, digests: list[bytes]) -> Iterable[tuple[bytes, bytes]]:
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
            connection.execute(_CREATE)
        return self._connection

    def _give_up(self, error: Exception) -> None:
        self._is_broken = True
        self.close()
        _LOG.warning(
            "%s: the cache of token ids cannot be used (%s); texts are encoded again. Delete the file to start anew.",
            self.path,
            error,
        )


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
