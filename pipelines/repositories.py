"""The repositories job: git repositories, each read whole at one commit. Written to be called, or copied and changed.

    from pipelines.repositories import index_repositories
    index_repositories(["@repositories.txt"], "index", exclude=["vendor/**"], model="smollm2-135m-instruct")

`longdoc run @repositories.txt -o index --kind repository --exclude 'vendor/**'` is the same job.
"""

from collections.abc import Sequence
from typing import Any

from longdoc.config import RunConfig
from longdoc.records import Selection
from longdoc.reporting import Reporter
from longdoc.runs.record import RunSummary
from longdoc.store.known import KnownCommits
from pipelines.jobs import run_job
from pipelines.sources import open_sources


def index_repositories(
    repositories: Sequence[str],
    output: str,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    revision: str | None = None,
    submodules: bool = False,
    lfs: bool = False,
    reporter: Reporter | None = None,
    **options: Any,
) -> RunSummary:
    """Read every repository whose commit `output` does not hold yet; an entry is a path, an address or `@list.txt`.

    `include` and `exclude` are globs over paths from a repository's root. A repository that is named directly and
    cannot be opened raises `SourceError`; on a line of a list it is set aside, and the others go on. `options` are
    those of `RunConfig`.
    """
    config = RunConfig(output=output, **options)
    selection = Selection(
        kind="repository",
        include=tuple(include),
        exclude=tuple(exclude),
        revision=revision,
        submodules=submodules,
        lfs=lfs,
        known=KnownCommits(output),
    )
    return run_job(config, open_sources(repositories, selection), reporter)
