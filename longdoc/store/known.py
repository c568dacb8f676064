"""Which commits an output holds, for whoever opens a repository: what was listed once is not listed again.

Owns nothing but the question. An output that is not there, or cannot be read, knows nothing: the run that opens it for
writing says what is wrong.
"""

from longdoc.errors import OutputError
from longdoc.store.ledger import Ledger
from longdoc.store.output import read_output

_COLUMNS = ("doc_id", "commit_id", "num_bytes_source")


class KnownCommits:
    """Bytes of source behind each committed commit, read when the first one is asked for."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._sizes: dict[tuple[str, str], int] | None = None

    def __call__(self, doc_id: str, commit_id: str) -> int | None:
        """The bytes of source of a document at a commit, or None where the output does not hold it."""
        if self._sizes is None:
            self._sizes = self._read()
        return self._sizes.get((doc_id, commit_id))

    def _read(self) -> dict[tuple[str, str], int]:
        try:
            rows = list(Ledger(*read_output(self._output)).rows("documents", _COLUMNS))
        except (OutputError, OSError):
            return {}
        return {(row["doc_id"], row["commit_id"]): row["num_bytes_source"] for row in rows if row["commit_id"]}
