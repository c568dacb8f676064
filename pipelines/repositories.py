"""The repositories job: how an argument that is a git repository, or lies inside one, is opened."""

from pathlib import Path

from connectors.repository import RepositorySource, open_repository
from longdoc.records import Selection


def open_repositories(argument: str, selection: Selection) -> RepositorySource:
    """The repository that holds the argument, at the chosen revision. Raises `SourceError`."""
    path = Path(argument)
    return open_repository(str(path if path.is_dir() else path.parent), selection)
