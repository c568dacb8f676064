"""The repositories job: how an argument that is a git repository, or lies inside one, is opened."""

import os
from pathlib import Path

from connectors.repository import RepositorySource, open_repository
from longdoc.records import Selection


def open_repositories(argument: str, selection: Selection) -> RepositorySource:
    """The repository that holds the argument, at the chosen revision. Raises `SourceError`."""
    # Not Path.is_dir: it raises where a link leads into a closed folder.
    folder = argument if os.path.isdir(argument) else str(Path(argument).parent)  # noqa: PTH112
    return open_repository(folder, selection)
