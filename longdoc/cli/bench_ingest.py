"""`longdoc bench ingest`: how fast sources become tokens."""

from pathlib import Path

import click

from longdoc.cli.bench import bench_options, finish, progress
from longdoc.cli.options import model_option

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@model_option
@click.option(
    "--repeats", type=click.IntRange(1), default=3, show_default=True, metavar="N", help="Interleaved repeats."
)
@click.option(
    "--peers",
    type=_FILE,
    metavar="PYTHON",
    help="The Python of an environment that has gitingest and markitdown. They are not installed beside longdoc.",
)
@click.option("--book", "books", type=_FILE, multiple=True, help="A book to read beside markitdown; may be repeated.")
@click.option("--kernel-sized", is_flag=True, help="Also inspect a repository of 80,000 files and 1 GB.")
@click.option("--quick", is_flag=True, help="Small repositories: shows that it runs, not how well.")
@bench_options
def ingest(
    *,
    model: str,
    repeats: int,
    peers: Path | None,
    books: tuple[Path, ...],
    kernel_sized: bool,
    quick: bool,
    as_json: bool,
    enforce: bool,
) -> None:
    """Measure how fast git repositories and books become segments, ledger and tokens, without Ray.

    Makes repositories of real source code in a temporary folder. Beside it run tiktoken alone on one thread with the
    same vocabulary, gitingest with its token counting off, and markitdown on the same books.
    """
    from longdoc.bench.ingest import KERNEL, MB, IngestSettings, bench_ingest
    from longdoc.bench.repositories import RepositorySize

    sizes = (1 * MB, 1 * MB) if quick else (50 * MB, 18 * MB)
    settings = IngestSettings(
        model=model,
        repeats=1 if quick else repeats,
        large=RepositorySize(num_bytes=sizes[0]),
        small=RepositorySize(num_bytes=sizes[1]),
        books=tuple(path.absolute() for path in books),
        peers=None if peers is None else peers.absolute(),
        kernel=KERNEL if kernel_sized else None,
    )
    finish(bench_ingest(settings, report=progress), as_json=as_json, enforce=enforce)
