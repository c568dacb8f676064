"""What a submission carries, as records. Pipelines fill them; `longdoc.submission.package` makes the archive."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from longdoc.records import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class CargoFile:
    """One file of a job's working folder: its `name` there, a `label` for people, its bytes at `path` or in `content`.

    `sha256` is set where the bytes must be the ones that were listed.
    """

    name: str
    label: str
    path: Path | None = None
    content: bytes = b""
    sha256: str | None = None

    @property
    def num_bytes(self) -> int:
        """Its size before it is compressed; of a file that is gone, 0: opening it says so."""
        if self.path is None:
            return len(self.content)
        return self.path.stat().st_size if self.path.is_file() else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cargo:
    """The sources of a job. `arguments` are what `longdoc run` is given in the working folder.

    `named` are those among the arguments that the cluster must reach by itself: addresses, and paths of its own.
    `num_sources` counts them all, each line of a list too. `skipped` holds (path for people, reason) of what was passed
    over.
    """

    arguments: tuple[str, ...]
    files: tuple[CargoFile, ...]
    named: tuple[str, ...]
    num_sources: int
    skipped: tuple[tuple[str, str], ...]


#: What the pipelines offer under the name `shipping`: arguments, paths of the cluster, what is wanted, a folder of use.
Packer = Callable[[Sequence[str], Sequence[str], Selection, Path], Cargo]
