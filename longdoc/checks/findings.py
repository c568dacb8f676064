"""What a check has to say: faults, each naming the file or document it is about, and counts of what was looked at."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from longdoc.store.rows import DAMAGED


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong. `subject` is a path below the output, or a document by its doc_key."""

    table: str
    subject: str
    problem: str

    def __str__(self) -> str:
        return f"{self.table}: {self.subject}: {self.problem}"


@dataclass(slots=True, kw_only=True)
class Findings:
    """Collects faults and counts while checks run below `root`."""

    root: Path
    faults: list[Fault] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def fault(self, table: str, subject: str | Path, problem: str) -> None:
        """Note a fault. A path is shown relative to the output."""
        if isinstance(subject, Path):
            subject = subject.relative_to(self.root).as_posix()
        self.faults.append(Fault(table=table, subject=subject, problem=problem))

    @contextmanager
    def reading(self, table: str, subject: str | Path) -> Iterator[None]:
        """Turn a file that cannot be read inside the block into a fault; what follows in the block is skipped."""
        try:
            yield
        except DAMAGED as error:
            first_line = str(error).strip().partition("\n")[0] or type(error).__name__
            self.fault(table, subject, f"cannot be read: {first_line}")
