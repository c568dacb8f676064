"""What every command prints the same way."""

import re

from longdoc.records import display

# Between :// and @, before the path: user:password, and over HTTP a token alone.
_LOGIN = re.compile(r"(?<=://)[^\s/:@]*:[^\s/]*@|(?:(?<=http://)|(?<=https://))[^\s/]+@")


def printable(text: str) -> str:
    """`text` with everything escaped that could move a terminal's cursor or is no character, newlines too."""
    return display(text)


def printable_lines(text: str) -> str:
    """The same for a message of several lines."""
    return "\n".join(printable(line) for line in text.split("\n"))


def without_passwords(text: str) -> str:
    """`text` without what stands before the host of an address, wherever a user may have typed one."""
    return _LOGIN.sub("", text)


def short_name(source_uri: str) -> str:
    """The last part of an address: enough to tell documents apart on a line."""
    return printable(source_uri.rstrip("/").rpartition("/")[2] or source_uri)


def plural(count: int, noun: str) -> str:
    """A count with its noun: `1 document`, `2 documents`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
