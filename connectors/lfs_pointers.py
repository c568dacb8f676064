"""Git LFS pointers: small files that stand in a repository, or in a work tree, for a content that lies elsewhere.

Owns their format (https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md). A file is one by the whole of its text
or not at all; the content is `connectors.lfs`'s.
"""

import re
from dataclasses import dataclass

# Under 1024 bytes, `version` first, then sorted keys.
LONGEST_POINTER = 1023
_POINTER = re.compile(
    rb"version https://(?:git-lfs\.github\.com|hawser\.github\.com)/spec/v\d\n(?:[a-z0-9.-]+ [^\n]*\n)*?"
    rb"oid sha256:(?P<oid>[0-9a-f]{64})\n(?:[a-z0-9.-]+ [^\n]*\n)*?size (?P<size>\d{1,18})\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """What a pointer points at: SHA-256 and length of a content that lies elsewhere."""

    oid: str
    size: int

    @property
    def title(self) -> str:
        """The pointer for people."""
        return f"oid sha256:{self.oid}, size {self.size}"


def parse_pointer(content: bytes) -> Pointer | None:
    """The pointer that a file is, or None for any other file."""
    match = _POINTER.fullmatch(content) if len(content) <= LONGEST_POINTER else None
    return None if match is None else Pointer(oid=match["oid"].decode("ascii"), size=int(match["size"]))
