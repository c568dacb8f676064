"""Where the objects of a repository are: in a folder of this machine, or in the cache of an address.

Owns what follows from that: which git directory to read, which address relative ones start from, and where the content
of LFS pointers is looked for. Fetches nothing.
"""

from dataclasses import dataclass
from pathlib import Path

from connectors.address import Address, parse_address
from connectors.clones import cache_place
from connectors.git import find_remote
from connectors.git_cache import objects_dir
from connectors.lfs import LfsStore, server_url
from longdoc.errors import SourceError


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """A git directory of this machine (`path`), or else an address. It may be sent to another machine with a cache."""

    path: str = ""
    address: Address | None = None

    @property
    def git_dir(self) -> str:
        """The git directory; that of an address is found anew on each machine."""
        return self.path if self.address is None else objects_dir(self.address)

    def remote(self) -> Address | None:
        """The address that relative ones start from: a clone has that of the remote it was made from."""
        if self.address is not None:
            return self.address
        url = find_remote(self.path)
        try:
            return None if url is None else parse_address(url)
        except SourceError:
            return None  # a path, or an address that may not be used

    def lfs_store(self, server: str | None) -> LfsStore:
        """Where the content of its LFS pointers is. `server` is the one that the commit names, if it names one."""
        remote = self.remote()
        folders = [Path(self.git_dir) / "lfs" / "objects"]
        if remote is not None and remote.scheme == "file":
            folders += [Path(remote.path, *inside, "lfs", "objects") for inside in ((), (".git",))]
        if remote is None or remote.scheme == "file":
            return LfsStore(folders=tuple(folders))
        return LfsStore(
            folders=tuple(folders),
            download_folder=cache_place(remote) / "lfs",
            url=server or server_url(remote),
            address=remote,
        )
