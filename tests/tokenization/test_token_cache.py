"""The cache of token ids gives back what was stored, or nothing; never anything else."""

import logging
import multiprocessing
import pickle
import sqlite3
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longdoc.errors import StartError
from longdoc.records import Int32s
from longdoc.tokenization.cache import TokenCache, TokenKey


def key(number: int, encoding: str = "utf-8", tokenizer: str = "t") -> TokenKey:
    return TokenKey(blob_id=f"{number:040x}", encoding=encoding, tokenizer_sha256=tokenizer)


def ids(*values: int) -> Int32s:
    return np.array(values, dtype=np.int32)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[TokenCache]:
    with TokenCache(tmp_path / "folder" / "tokens.sqlite") as opened:
        yield opened


def listed(found: Mapping[TokenKey, Int32s]) -> dict[TokenKey, list[int]]:
    return {stored: token_ids.tolist() for stored, token_ids in found.items()}


def test_what_was_stored_comes_back_and_nothing_else(cache: TokenCache) -> None:
    cache.put_many({key(1): ids(1, 2, 3), key(2): ids()})
    found = cache.get_many([key(1), key(2), key(3)])
    assert listed(found) == {key(1): [1, 2, 3], key(2): []}
    assert all(token_ids.dtype == np.int32 for token_ids in found.values())


def test_blob_encoding_and_tokenizer_are_all_part_of_the_key(cache: TokenCache) -> None:
    cache.put_many({key(1): ids(1), key(1, encoding="latin-1"): ids(2), key(1, tokenizer="u"): ids(3)})
    assert listed(cache.get_many([key(1, tokenizer="u")])) == {key(1, tokenizer="u"): [3]}
    assert listed(cache.get_many([key(1, encoding="latin-1")])) == {key(1, encoding="latin-1"): [2]}
    assert cache.get_many([key(1, encoding="utf-16")]) == {}


def test_thousands_of_keys_are_one_call(cache: TokenCache) -> None:
    entries = {key(number): ids(number, 2**31 - 1) for number in range(3000)}
    cache.put_many(entries)
    assert listed(cache.get_many(entries)) == {stored: token_ids.tolist() for stored, token_ids in entries.items()}


def test_a_second_store_replaces_the_first(cache: TokenCache) -> None:
    cache.put_many({key(1): ids(1)})
    cache.put_many({key(1): ids(2)})
    assert listed(cache.get_many([key(1)])) == {key(1): [2]}


def test_entries_outlive_the_process_that_made_them(tmp_path: Path) -> None:
    with TokenCache(tmp_path / "c") as first:
        first.put_many({key(1): ids(7)})
    with TokenCache(tmp_path / "c") as second:
        assert listed(second.get_many([key(1)])) == {key(1): [7]}
        assert listed(pickle.loads(pickle.dumps(second)).get_many([])) == {}


@pytest.mark.parametrize("damage", ["flip", "cut", "swap", "empty", "text"])
def test_a_damaged_entry_is_left_out_with_a_warning(
    cache: TokenCache, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    cache.put_many({key(1): ids(1, 2, 3), key(2): ids(4, 5, 6)})
    with sqlite3.connect(cache.path) as connection:
        stored = dict(connection.execute("SELECT key, packed FROM token_ids_2"))
        good = stored[key(1).digest]
        bad = {
            "flip": good[:-6] + bytes([good[-6] ^ 1]) + good[-5:],
            "cut": good[:-1],
            "swap": stored[key(2).digest],
            "empty": b"",
            "text": "text",
        }[damage]
        connection.execute("UPDATE token_ids_2 SET packed = ? WHERE key = ?", (bad, key(1).digest))
    connection.close()
    with caplog.at_level(logging.WARNING):
        assert listed(cache.get_many([key(1), key(2)])) == {key(2): [4, 5, 6]}
    assert [record.getMessage() for record in caplog.records] == [
        f"{cache.path}: a damaged entry was left out; it is encoded again."
    ]


def test_a_damaged_file_is_reported_once_and_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tokens.sqlite"
    path.write_bytes(b"this is no database" * 100)
    with TokenCache(path) as cache, caplog.at_level(logging.WARNING):
        assert cache.get_many([key(1)]) == {}
        cache.put_many({key(1): ids(1)})
        assert cache.get_many([key(1)]) == {}
    (record,) = caplog.records
    assert record.getMessage() == (
        f"{path}: the cache of token ids cannot be used (file is not a database); texts are encoded again. "
        "Delete the file to start anew."
    )
    assert path.read_bytes() == b"this is no database" * 100


def test_a_locked_file_is_reported_once_and_done_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with TokenCache(tmp_path / "c") as first:
        first.put_many({key(1): ids(1)})
    holder = sqlite3.connect(tmp_path / "c", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with TokenCache(tmp_path / "c", wait_seconds=0.05) as cache, caplog.at_level(logging.WARNING):
        cache.put_many({key(2): ids(2)})
        cache.put_many({key(3): ids(3)})
        assert cache.get_many([key(1)]) == {}
    holder.execute("ROLLBACK")
    holder.close()
    (record,) = caplog.records
    assert "cannot be used (database is locked)" in record.getMessage()
    with TokenCache(tmp_path / "c") as cache:
        assert listed(cache.get_many([key(1), key(2)])) == {key(1): [1]}


def test_a_folder_that_cannot_be_made_is_done_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    with TokenCache(tmp_path / "file" / "tokens.sqlite") as cache, caplog.at_level(logging.WARNING):
        cache.put_many({key(1): ids(1)})
        assert cache.get_many([key(1)]) == {}
    assert len(caplog.records) == 1


def store_some(path: Path, first: int) -> int:
    with TokenCache(path) as cache:
        for number in range(first, first + 40):
            cache.put_many({key(number): ids(number)})
            assert listed(cache.get_many([key(number)])) == {key(number): [number]}
    return first


def test_several_processes_store_at_once(tmp_path: Path) -> None:
    path = tmp_path / "tokens.sqlite"
    with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(store_some, [path] * 3, [0, 40, 80])) == [0, 40, 80]
    with TokenCache(path) as cache:
        assert listed(cache.get_many(map(key, range(120)))) == {key(number): [number] for number in range(120)}


def stored(path: Path, numbers: range) -> set[int]:
    with TokenCache(path, most_bytes=1 << 40) as cache:
        return {int(found.blob_id, 16) for found in cache.get_many(map(key, numbers))}


def at(monkeypatch: pytest.MonkeyPatch, day: float) -> None:
    monkeypatch.setattr("longdoc.tokenization.cache.time.time", lambda: 1e9 + day * 86400)


LARGE = np.arange(25_000, dtype=np.int32)  # 100 kB


def test_what_was_used_longest_ago_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c"
    for day in range(10):
        at(monkeypatch, day)
        with TokenCache(path, most_bytes=1_200_000) as cache:
            cache.put_many({key(day): LARGE})
    at(monkeypatch, 10)
    with TokenCache(path, most_bytes=1_200_000) as cache:
        assert len(cache.get_many([key(0), key(2)])) == 2  # used again, though stored first
    with TokenCache(path, most_bytes=1_200_000) as cache:
        cache.put_many({key(number): LARGE for number in (20, 21, 22)})
    assert stored(path, range(30)) >= {0, 2, 9, 20, 21, 22}
    assert not stored(path, range(30)) & {1, 3}


@pytest.mark.parametrize("at_once", [1, 7])
def test_the_file_stays_below_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    path = tmp_path / "c"
    for day in range(30):
        at(monkeypatch, day)
        with TokenCache(path, most_bytes=1_000_000) as cache:
            cache.put_many({key(day * at_once + number): LARGE[: 25_000 - number] for number in range(at_once)})
            assert len(cache.get_many(key(day * at_once + number) for number in range(at_once))) == at_once
    assert path.stat().st_size < 1_050_000
    assert len(stored(path, range(300))) >= 7


def test_many_small_entries_are_bounded_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c"
    for day in range(8):
        at(monkeypatch, day)
        with TokenCache(path, most_bytes=400_000) as cache:
            cache.put_many({key(day * 1000 + number): ids(*range(10)) for number in range(1000)})
    assert path.stat().st_size < 500_000
    assert set(range(7000, 8000)) <= stored(path, range(8000))


def test_what_alone_is_larger_than_the_bound_is_not_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with TokenCache(tmp_path / "c", most_bytes=250_000) as cache:
        cache.put_many({key(1): ids(1)})
        cache.put_many({key(number): LARGE for number in range(10, 20)})
    assert len(stored(tmp_path / "c", range(30)) & set(range(10, 20))) == 2
    assert (tmp_path / "c").stat().st_size < 300_000
    assert caplog.records == []


def test_a_run_that_finds_everything_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c"
    at(monkeypatch, 0)
    with TokenCache(path) as cache:
        cache.put_many({key(number): ids(number) for number in range(100)})
    before = path.read_bytes()
    at(monkeypatch, 0.9)
    with TokenCache(path) as cache:
        assert len(cache.get_many(map(key, range(100)))) == 100
    assert path.read_bytes() == before


def test_the_bound_is_what_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGDOC_TOKEN_CACHE_SIZE", "250kB")
    with TokenCache(tmp_path / "c") as cache:
        cache.put_many({key(number): LARGE for number in range(5)})
    assert len(stored(tmp_path / "c", range(5))) == 2
    monkeypatch.setenv("LONGDOC_TOKEN_CACHE_SIZE", "lots")
    with pytest.raises(StartError, match="LONGDOC_TOKEN_CACHE_SIZE='lots' is not a size"):
        TokenCache(tmp_path / "c")


def test_a_full_disk_is_said_once_and_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "c"
    with TokenCache(path) as cache:
        cache.put_many({key(1): ids(1)})
    connect = sqlite3.connect

    def nearly_full(*arguments: Any, **named: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **named)
        connection.execute("PRAGMA max_page_count = 10")  # SQLite answers as it does on a full disk
        return connection

    monkeypatch.setattr("longdoc.tokenization.cache.sqlite3.connect", nearly_full)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):  # a document each
            with TokenCache(path) as cache:
                assert listed(cache.get_many([key(1)])) == {key(1): [1]}
                cache.put_many({key(2): LARGE})
    (record,) = caplog.records
    assert record.getMessage() == (
        f"{path}: the cache of token ids cannot be used (database or disk is full); texts are encoded again. Make room "
        "for it."
    )


def test_ids_of_an_older_layout_are_let_go(tmp_path: Path) -> None:
    path = tmp_path / "c"
    old = sqlite3.connect(path)
    old.execute("CREATE TABLE token_ids_1 (key BLOB PRIMARY KEY, packed BLOB NOT NULL)")
    old.execute("INSERT INTO token_ids_1 VALUES (x'00', zeroblob(1000000))")
    old.commit()
    old.close()
    with TokenCache(path, most_bytes=300_000) as cache:
        cache.put_many({key(1): LARGE})
        assert len(cache.get_many([key(1)])) == 1
    with closing(sqlite3.connect(path)) as new:
        assert "token_ids_1" not in {name for (name,) in new.execute("SELECT name FROM sqlite_master")}


def fill(path: Path, first: int) -> None:
    with TokenCache(path, most_bytes=1_000_000) as cache:
        for number in range(first, first + 20):
            cache.put_many({key(number): LARGE})
            cache.get_many([key(number)])


def test_several_processes_make_room_at_once(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(fill, [path] * 2, [0, 100]))
    assert path.stat().st_size < 1_100_000
    assert len(stored(path, range(200))) >= 7
