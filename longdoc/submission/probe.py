"""What is looked at on the cluster before a job is sent there; run there, as `python -m longdoc.submission.probe`.

Owns the questions and their answers, one line of JSON behind `MARK`. Reads no document and writes no row. Answers a
question that it cannot settle with the reason as a problem, in the words that the run itself would have used.
"""

import contextlib
import json
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from longdoc import __version__
from longdoc.errors import LongdocError
from longdoc.records import Selection, display
from longdoc.store.output import check_ours

MARK = "longdoc-probe: "
#: What of a selection can be said in a command line.
_CHOSEN = ("kind", "include", "exclude", "revision", "submodules", "lfs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a job needs of the cluster. Nothing in it may be a secret: it stands in a command line there.

    `sources` are those that the cluster must reach by itself, `model_path` a model's path on its nodes.
    """

    output: str
    device: str
    ring_size: int | None
    sources: tuple[str, ...]
    selection: Selection
    model_path: str | None

    def to_json(self) -> str:
        """As one argument."""
        chosen = {name: getattr(self.selection, name) for name in _CHOSEN}
        fields = {name: getattr(self, name) for name in ("output", "device", "ring_size", "sources", "model_path")}
        return json.dumps(fields | {"selection": chosen})

    @classmethod
    def from_json(cls, text: str) -> "Question":
        """The same question."""
        fields: dict[str, Any] = json.loads(text)
        chosen = fields["selection"]
        chosen |= {name: tuple(chosen[name]) for name in ("include", "exclude")}
        return cls(**fields | {"sources": tuple(fields["sources"]), "selection": Selection(**chosen)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the cluster has. `problems` are whole messages; none means that the job can start."""

    python: str
    ray: str
    longdoc: str
    num_nodes: int
    problems: tuple[str, ...]

    def to_json(self) -> str:
        """As one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Answer":
        """The same answer. Raises `ValueError`, `KeyError` or `TypeError` for anything else."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields | {"problems": tuple(fields["problems"])})


def answer(question: Question) -> Answer:
    """Look at everything, so that one submission tells all that is wrong."""
    problems: list[str] = []
    with _noted(problems):
        _check_sources(question)
    if question.model_path is not None and not Path(question.model_path).exists():
        shown = display(question.model_path)
        problems.append(f"model {shown}: no such folder or file on the cluster. Put it there, or name one that is.")
    with _noted(problems):
        check_ours(question.output)
    num_nodes = 0
    with _noted(problems):
        num_nodes = _check_nodes(question)
    return Answer(
        python=platform.python_version(),
        ray=version("ray"),
        longdoc=__version__,
        num_nodes=num_nodes,
        problems=tuple(problems),
    )


def _check_sources(question: Question) -> None:
    """Open what was named, as the run will; what is fetched for that stays in the cache and is not fetched again."""
    from longdoc.cli.sources import find_opener

    if question.sources:
        find_opener()(question.sources, question.selection)


def _check_nodes(question: Question) -> int:
    """The number of nodes. Raises `LongdocError` where they do not fit each other or the ring, or share no output."""
    from longdoc.cli.progress import PlainReporter
    from longdoc.config import RunConfig
    from longdoc.runs.site import Cluster, site_of

    config = RunConfig(output=question.output, device=question.device, ring_size=question.ring_size, address="auto")
    with site_of(config, PlainReporter()) as site:
        config = site.settled(config)
        if not isinstance(site, Cluster):
            return 1
        site.check_size(config)
        return len(site.nodes)


@contextlib.contextmanager
def _noted(problems: list[str]) -> Iterator[None]:
    try:
        yield
    except LongdocError as error:
        problems.append("\n".join([str(error), *getattr(error, "__notes__", ())]))


def main() -> None:
    """Answer the question that is the one argument."""
    print(f"\n{MARK}{answer(Question.from_json(sys.argv[1])).to_json()}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
