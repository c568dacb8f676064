"""Results that take seconds to find and depend on many things: kept as small JSON files in the cache folder.

Owns the files. Each holds the subject it is about (everything that the result depends on) beside the result, and counts
only for that subject. One that cannot be read counts for nothing; one that cannot be kept is found again next time.
"""

import contextlib
import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import longdoc
from longdoc.errors import LongdocError
from longdoc.files import cache_folder, replace_file

Subject = Mapping[str, Any]


def kept(kind: str, subject: Subject) -> dict[str, Any] | None:
    """What was kept for exactly this subject, or None. `kind` is a folder below the cache folder."""
    try:
        content = json.loads(_path(kind, subject).read_text())
        return dict(content) if content["subject"] == subject else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(kind: str, subject: Subject, **result: Any) -> None:
    """Keep what was found for a subject, in place of what was kept before."""
    with contextlib.suppress(OSError, LongdocError):
        content = {"subject": subject, **result}
        replace_file(_path(kind, subject), json.dumps(content, indent=2).encode())


def _path(kind: str, subject: Subject) -> Path:
    return cache_folder() / kind / f"{hashlib.sha256(json.dumps(subject).encode()).hexdigest()[:32]}.json"


@functools.cache
def code_sha256(packages: tuple[str, ...]) -> str:
    """SHA-256 of the modules of some packages below longdoc/: between releases text changes, the version does not."""
    root, digest = Path(longdoc.__file__).parent, hashlib.sha256()
    for path in sorted(path for package in packages for path in (root / package).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
