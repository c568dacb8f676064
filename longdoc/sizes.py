"""Numbers of bytes as people write and read them, and how many the parts of the cache folder may take."""

import os
import re

from longdoc.errors import StartError

#: What the parts of the cache folder may take, each by the environment variable that says otherwise.
CACHE_SIZES = {"LONGDOC_CLONE_CACHE_SIZE": 20 << 30, "LONGDOC_TOKEN_CACHE_SIZE": 4 << 30}
_SIZE = re.compile(r"(?P<count>\d+(?:\.\d+)?)\s*(?P<prefix>[KMGT]?)(?P<binary>I?)B?", re.IGNORECASE)
_PREFIXES = " KMGT"


def format_bytes(count: float) -> str:
    """A number of bytes for people, in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def cache_size(name: str) -> int:
    """The bytes that a part of the cache folder may take: what the variable `name` says, else a default.

    Raises `StartError` where it says no size.
    """
    text = os.environ.get(name, "").strip()
    if not text:
        return CACHE_SIZES[name]
    size = _SIZE.fullmatch(text)
    if size is None or (size["binary"] and not size["prefix"]):
        raise StartError(f"{name}={text!r} is not a size. Write it as 500MB, 20GiB or a number of bytes.")
    base = 1024 if size["binary"] else 1000
    return int(float(size["count"]) * base ** _PREFIXES.index(size["prefix"].upper() or " "))
