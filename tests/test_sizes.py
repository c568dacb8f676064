"""Numbers of bytes as people write and read them."""

import pytest

from longdoc.sizes import cache_size, format_bytes


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("500MB", 500_000_000),
        ("20GiB", 20 << 30),
        ("1.5 kB", 1500),
        ("12", 12),
        ("0", 0),
        ("7B", 7),
        ("2t", 2 * 10**12),
        ("", 20 << 30),
    ],
)
def test_sizes(monkeypatch: pytest.MonkeyPatch, text: str, num_bytes: int) -> None:
    monkeypatch.setenv("LONGDOC_CLONE_CACHE_SIZE", text)
    assert cache_size("LONGDOC_CLONE_CACHE_SIZE") == num_bytes


def test_bytes_are_told_in_binary_units():
    assert [format_bytes(n) for n in (0, 1023, 1024, 3 << 29, 5 << 40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 GiB",
        "5.0 TiB",
    ]
