"""Which version of a document stands before another: the chain that `documents.previous_doc_key` tells.

Versions of a document share its doc_id. The one before a version is the newest that was committed when this one was:
what `current` named then, whatever its commit or configuration. Owns that choice, and the time that keeps it. What
another driver commits counts as soon as it is decided; two that decide at the same moment name the same version. A
version never names one that came after it, so that a chain always ends.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from longdoc.store.decisions import read_decision
from longdoc.store.ledger import CommittedDocument
from longdoc.store.places import Places
from longdoc.store.schemas import OutputIdentity

_COLUMNS = ("doc_id", "previous_doc_key", "committed_at")
# What the column of commit times can tell apart.
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    """What is known of a committed version."""

    doc_id: str
    doc_key: str
    previous_doc_key: str | None
    committed_at: datetime


class Versions:
    """The committed versions of every document of an output, as far as they were seen."""

    def __init__(self, places: Places, identity: OutputIdentity) -> None:
        self._places, self._identity = places, identity
        self._by_doc_id: dict[str, dict[str, _Version]] = {}
        self._seen: set[str] = set()

    def know(self, documents: Iterable[CommittedDocument]) -> None:
        """What was read of committed documents already need not be read again."""
        for document in documents:
            self._add(
                _Version(
                    doc_id=document.doc_id,
                    doc_key=document.doc_key,
                    previous_doc_key=document.previous_doc_key,
                    committed_at=document.committed_at,
                )
            )

    def _add(self, version: _Version) -> None:
        self._seen.add(version.doc_key)
        self._by_doc_id.setdefault(version.doc_id, {})[version.doc_key] = version

    def before(self, doc_id: str, doc_key: str) -> _Version | None:
        """The newest committed version of a document that does not come after `doc_key` itself, or None.

        One that comes after it is there already where a document was removed by hand and is computed again. Raises
        `InfrastructureError` where a decision cannot be read.
        """
        self._look()
        versions = self._by_doc_id.get(doc_id, {})
        earlier = [version for version in versions.values() if not _comes_after(version, doc_key, versions)]
        # Of two with one time the one that `current` names (longdoc.store.views).
        earlier.sort(key=lambda version: version.doc_key)
        return max(earlier, key=lambda version: version.committed_at, default=None)

    def _look(self) -> None:
        """Read what was decided since. One folder is listed, and only new files are opened."""
        names = os.listdir(self._places.decisions) if self._places.decisions.is_dir() else []  # noqa: PTH208, thousands
        for name in sorted(set(names) - self._seen):
            if name.startswith("."):
                continue  # it is being made
            path = self._places.decision(name)
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                continue  # removed by hand at this moment
            row = read_decision(path, name, self._identity, content, also=_COLUMNS)
            self._seen.add(name)
            self._add(_Version(doc_key=name, **{column: row[column] for column in _COLUMNS}))


def time_after(now: datetime, previous: _Version | None) -> datetime:
    """When a version is committed: now, or just after the one before it where the clock of that one was ahead."""
    return now if previous is None else max(now, previous.committed_at + _TICK)


def _comes_after(version: _Version, doc_key: str, versions: Mapping[str, _Version]) -> bool:
    """Whether a chain leads from `version` back to `doc_key`."""
    walked: set[str] = set()
    step: _Version | None = version
    while step is not None and step.doc_key not in walked:
        if doc_key in (step.doc_key, step.previous_doc_key):
            return True
        walked.add(step.doc_key)
        step = versions.get(step.previous_doc_key) if step.previous_doc_key else None
    return False
